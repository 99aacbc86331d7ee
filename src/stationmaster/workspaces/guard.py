"""Looks at a workspace before a run and says in one sentence what keeps work from starting there.

It changes nothing on disk, not even git's index: what it meets here belongs to somebody else, for what an open intent
of ours left behind was moved away before (GW-R-128, architecture §8).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stationmaster.errors import Invalid, Unavailable
from stationmaster.workspaces import mirror, paths, worktree
from stationmaster.workspaces.git import Git
from stationmaster.workspaces.paths import Layout
from stationmaster.workspaces.status import TreeState

_MOST_NAMED = 5
_PARTS_OF_A_REPOSITORY = ("HEAD", "config", "objects", "refs")

CODES = frozenset(
    {
        "workspace_branch_busy",
        "workspace_conflict",
        "workspace_dirty",
        "workspace_locked",
        "workspace_missing",
        "workspace_path_invalid",
    }
)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why no run may start: a stable code and a sentence that says what to do.

    `scope` tells how much is blocked: the one worktree, or the bare repository that all worktrees share.
    """

    code: str
    sentence: str
    scope: Literal["worktree", "repository"] = "worktree"


def check(git: Git, layout: Layout, repository_id: str, name: str, *, branch: str | None = None) -> Problem | None:
    """Returns the first problem of a repository and its worktree `name`, or None; what is not made yet is none.

    `branch` is the one that the worktree stands on or is going to stand on.
    """
    bare, tree = layout.bare(repository_id), layout.tree(repository_id, name)
    try:
        return (
            _places(layout, bare, tree)
            or _repository(git, bare, tree)
            or _registration(bare, tree)
            or (_elsewhere(bare, tree, branch) if branch else None)
            or _contents(git, bare, tree)
        )
    except OSError as error:
        return Problem("workspace_path_invalid", f"{error.filename} could not be read: {error.strerror}. Set it right.")


def _places(layout: Layout, bare: Path, tree: Path) -> Problem | None:
    for path in (bare, tree):
        try:
            paths.ensure_inside(layout.root, path)
        except Invalid as error:
            return Problem("workspace_path_invalid", str(error))
        if not os.path.lexists(path):
            continue
        if not path.is_dir():
            return Problem("workspace_path_invalid", f"{path} is not a folder. Move it away.")
        owner = path.lstat().st_uid
        if owner != os.geteuid():
            return Problem(
                "workspace_path_invalid",
                f"{path} belongs to user {owner}, and Stationmaster runs as user {os.geteuid()}. "
                "Give it back with chown, or run Stationmaster as that user.",
            )
    return None


def _repository(git: Git, bare: Path, tree: Path) -> Problem | None:
    part = mirror.part_of(bare)
    if os.path.lexists(part):
        return Problem("workspace_missing", f"An unfinished clone is in the way: {part}. Move it away.", "repository")
    if not bare.exists():
        if os.path.lexists(tree):
            return Problem(
                "workspace_missing",
                f"The worktree {tree} is there, but its repository {bare} is not. "
                "Put the repository back, or move the worktree away.",
                "repository",
            )
        return None
    lacking = [part_name for part_name in _PARTS_OF_A_REPOSITORY if not (bare / part_name).exists()]
    if lacking:
        return Problem(
            "workspace_missing",
            f"{bare} is not a whole repository: {', '.join(lacking)} is missing. Restore it, or move it away.",
            "repository",
        )
    locks = worktree.staying_locks(git, lambda: worktree.shared_locks_now(bare))
    return _locked(locks, "repository") if locks else None


def _locked(locks: tuple[Path, ...], scope: Literal["worktree", "repository"]) -> Problem:
    return Problem(
        "workspace_locked",
        f"A git lock is in the way: {_named([str(lock) for lock in locks])}. "
        "If no git command is running there, move the lock file away.",
        scope,
    )


def _registration(bare: Path, tree: Path) -> Problem | None:
    folder = paths.admin(bare, tree)
    here, known = os.path.lexists(tree), os.path.lexists(folder)
    if here and not known and not any(tree.iterdir()):
        return None
    if here and not known:
        return Problem(
            "workspace_missing",
            f"{tree} is there, but its repository does not know it as a worktree. Move the folder away.",
        )
    if known and not here:
        return Problem(
            "workspace_missing",
            f"The worktree {tree} is gone, but its repository still expects it. "
            f"Put the folder back, or run `git --git-dir={bare} worktree prune`.",
        )
    if known and not worktree.is_registered(bare, tree):
        return Problem(
            "workspace_missing",
            f"The worktree {tree} is half made or was moved. Move the folder away "
            f"and run `git --git-dir={bare} worktree prune --expire=now`.",
        )
    if here and not worktree.has_own_git_file(bare, tree):
        return Problem(
            "workspace_path_invalid",
            f"{tree / '.git'} is not the file that git made. Put back a file with the one line "
            f"`{worktree.git_file(bare, tree).strip()}`.",
        )
    return None


def _elsewhere(bare: Path, tree: Path, branch: str) -> Problem | None:
    wanted = f"ref: {paths.check_branch(branch)}"
    try:
        folders = sorted((bare / "worktrees").iterdir())
    except FileNotFoundError:
        return None
    for folder in folders:
        head = folder / "HEAD"
        if folder.name == tree.name or not head.is_file() or head.read_text(errors="replace").strip() != wanted:
            continue
        place = (folder / "gitdir").read_text(errors="replace").strip().removesuffix("/.git")
        way_out = "Switch that worktree to another branch" if Path(place).exists() else "Run `git worktree prune`"
        return Problem("workspace_branch_busy", f"The branch {branch} is checked out elsewhere, in {place}. {way_out}.")
    return None


def _contents(git: Git, bare: Path, tree: Path) -> Problem | None:
    if not bare.exists() or not os.path.lexists(paths.admin(bare, tree)):
        return None
    try:
        state = worktree.inspect(git, bare, tree)
    except Unavailable as error:
        if error.code != "git_failed":
            raise
        return Problem("workspace_missing", f"git could not read the worktree {tree}: {error.message}")
    return of_state(state, tree)


def of_state(state: TreeState, tree: Path) -> Problem | None:
    """Words the problem of a worktree that was looked at, or returns None when it is clean."""
    if state.conflicts:
        return Problem(
            "workspace_conflict",
            f"{tree} has unresolved conflicts in {_named(state.conflicts)}. Resolve and commit them.",
        )
    if state.locks:
        return _locked(state.locks, "worktree")
    if state.operation:
        return Problem(
            "workspace_locked", f"A {state.operation} was begun in {tree} and not ended. Finish or abort it there."
        )
    if state.dirty:
        return Problem(
            "workspace_dirty",
            f"{tree} holds changes that are not ours: {_named(state.dirty)}. Commit them, or move them away.",
        )
    if state.missing:
        return Problem("workspace_missing", f"{tree} is not a whole worktree. Restore it, or move it away.")
    return None


def _named(names: tuple[str, ...] | list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
