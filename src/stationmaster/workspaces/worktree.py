"""The worktree of one issue or pull request: made, looked at, saved, moved between branches.

No step is forced: nothing is reset, cleaned, stashed or deleted, and no lock of git's is ever removed (GW-R-128).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stationmaster import faults
from stationmaster.errors import StationmasterError, Unavailable
from stationmaster.workspaces import mirror, nested, paths, status
from stationmaster.workspaces.git import Author, Git, lines
from stationmaster.workspaces.status import TreeState

_PAUSE_S = 0.05
_GIT_FILE_LIMIT = 8192
_TREE_LOCKS = ("index.lock", "HEAD.lock")
_SHARED_LOCKS = ("HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock")


@dataclass(frozen=True, slots=True)
class Saved:
    """What a save did: the task branch before and after, and which nested repositories it moved away first."""

    before: str
    after: str
    changed: bool
    nested: tuple[str, ...] = ()


def git_file(bare: Path, tree: Path) -> str:
    """Returns what the `.git` file of a worktree must hold."""
    return f"gitdir: {paths.admin(bare, tree)}\n"


def has_own_git_file(bare: Path, tree: Path) -> bool:
    """Tells whether the worktree's `.git` is the plain file that git wrote."""
    try:
        handle = os.open(tree / ".git", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return False
        return os.read(handle, _GIT_FILE_LIMIT) == git_file(bare, tree).encode()
    finally:
        os.close(handle)


def is_registered(bare: Path, tree: Path) -> bool:
    """Tells whether git's own folder for this worktree is whole and points back to it."""
    folder = paths.admin(bare, tree)
    try:
        points_to = (folder / "gitdir").read_text().strip()
        whole = (folder / "HEAD").is_file() and (folder / "commondir").is_file()
        unfinished = (folder / "locked").is_file() and (folder / "locked").read_text().strip() == "initializing"
    except (OSError, UnicodeDecodeError):
        return False
    return whole and not unfinished and points_to == str(tree / ".git")


def ensure(git: Git, bare: Path, tree: Path, branch: str, start: str) -> None:
    """Makes the task branch at `start` and a worktree that stands on it; what is already so stays as it is.

    A branch that exists keeps its place. Something half-made or foreign in the way is refused, untouched.
    """
    paths.check_sha(start)
    paths.check_branch(branch)
    if is_registered(bare, tree) and has_own_git_file(bare, tree):
        on = current_branch(bare, tree)
        if on != branch:
            raise Unavailable(
                f"The worktree {tree} stands on {on or 'no branch'}, not on {branch}.",
                code="workspace_branch_busy",
                hint="Move it with a switch.",
            )
        return
    if _occupied(tree) or os.path.lexists(paths.admin(bare, tree)):
        raise Unavailable(
            f"Something half-made is in the way of the worktree {tree}.",
            code="workspace_missing",
            hint="Move the folder away and run `git worktree prune` in the bare repository; then unblock the task.",
        )
    make_branch(git, bare, branch, start)
    faults.point("workspace.worktree.after_branch")
    tree.mkdir(parents=True, exist_ok=True)
    git.bare(bare, "worktree", "add", "--quiet", "--", str(tree), branch, planting=tree)
    faults.point("workspace.worktree.after_add")


def _occupied(tree: Path) -> bool:
    if tree.is_symlink() or not tree.is_dir():
        return os.path.lexists(tree)
    return any(tree.iterdir())


def make_branch(git: Git, bare: Path, branch: str, start: str) -> None:
    """Makes a branch at `start` unless it exists; an existing one is never moved."""
    if mirror.local_tip(git, bare, branch) is None:
        git.bare(bare, "branch", "--no-track", "--", branch, paths.check_sha(start))


def current_branch(bare: Path, tree: Path) -> str | None:
    """Returns the branch a worktree stands on; None when it stands on a bare commit."""
    head = (paths.admin(bare, tree) / "HEAD").read_text().strip()
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else None


def shared_locks_now(bare: Path) -> tuple[Path, ...]:
    """Returns the lock files that are in the way of every worktree of a repository."""
    return tuple(path for path in (bare / name for name in _SHARED_LOCKS) if os.path.lexists(path))


def locks_now(bare: Path, tree: Path) -> tuple[Path, ...]:
    """Returns git's lock files in the way of this worktree."""
    folder = paths.admin(bare, tree)
    wanted = [folder / name for name in _TREE_LOCKS] + [bare / name for name in _SHARED_LOCKS]
    try:
        branch = current_branch(bare, tree)
    except OSError:
        branch = None
    if branch:
        wanted.append(bare / "refs" / "heads" / f"{branch}.lock")
    return tuple(path for path in wanted if os.path.lexists(path))


def staying_locks(git: Git, present: Callable[[], tuple[Path, ...]]) -> tuple[Path, ...]:
    """Returns the locks that were there for the whole of `git.lock_wait_s`; most belong to a command that ends."""
    deadline = time.monotonic() + git.lock_wait_s
    staying = set(present())
    while staying and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        staying &= set(present())
    return tuple(sorted(staying))


def inspect(git: Git, bare: Path, tree: Path) -> TreeState:
    """Looks at a worktree through read-only mounts; nothing on disk changes, not even git's index."""
    if not is_registered(bare, tree) or tree.is_symlink() or not tree.is_dir():
        return TreeState(head="", branch=None, missing=True)
    locks = staying_locks(git, lambda: locks_now(bare, tree))
    asked = git.tree(
        bare,
        tree,
        "status",
        "--porcelain=v2",
        "--branch",
        "--no-ahead-behind",
        "--untracked-files=normal",
        # Never `none`: looking into a submodule starts a git there that would obey the submodule's own config.
        "--ignore-submodules=dirty",
        "-z",
        write=False,
    )
    seen = status.parse(asked.stdout, lambda name: os.path.lexists(tree / name / ".git"))
    folder = paths.admin(bare, tree)
    begun = next((what for marker, what in status.OPERATIONS if os.path.lexists(folder / marker)), None)
    return TreeState(seen.head, seen.branch, seen.dirty, seen.conflicts, locks, begun)


def save(git: Git, bare: Path, tree: Path, message: str, nested_to: Path, author: Author) -> Saved:
    """Commits everything in the worktree on the branch it stands on; an unchanged tree makes no commit.

    Repositories nested in the tree that are no registered submodule are moved to `nested_to` first, so that their
    files are saved as files. Any failure is Unavailable `workspace_save_failed` with git's words (architecture §8).
    """
    try:
        moved, skipped = _move_nested(git, bare, tree, nested_to)
        faults.point("workspace.save.after_nested")
        before, after = _commit_all(git, bare, tree, message, author, skipped)
    except (StationmasterError, OSError) as error:
        said = error.message if isinstance(error, StationmasterError) else f"{error.strerror}: {error.filename}"
        raise Unavailable(
            f"The work in {tree} could not be committed: {said}",
            code="workspace_save_failed",
            hint="Nothing was removed; set right what git names there, then unblock the task.",
        ) from error
    return Saved(before, after, before != after, tuple(status.shown(name) for name in moved))


def _move_nested(git: Git, bare: Path, tree: Path, to: Path) -> tuple[list[str], list[str]]:
    # Returns what was moved, and the submodules in use, which a save leaves alone.
    moved: list[str] = []
    if not has_own_git_file(bare, tree):
        if os.path.lexists(tree / ".git"):
            nested.move_out(tree, ".git", to)
            moved.append(".git")
        (tree / ".git").write_text(git_file(bare, tree))
    found = nested.find(tree)
    if not found:
        return moved, []
    holders = [name.rpartition("/")[0] for name in found]
    submodules = _submodules(git, bare, tree)
    ignored = _ignored(git, bare, tree, [holder for holder in holders if holder])
    skipped: list[str] = []
    for name, holder in zip(found, holders, strict=True):
        inside = next((s for s in submodules if holder == s or holder.startswith(f"{s}/")), None)
        if inside is not None:
            skipped.append(inside)
        elif holder not in ignored:
            nested.move_out(tree, name, to)
            moved.append(name)
    return moved, sorted(set(skipped))


def _submodules(git: Git, bare: Path, tree: Path) -> set[str]:
    listed = git.tree(bare, tree, "ls-files", "--stage", "-z", write=False).stdout.split("\0")
    return {entry.split("\t", 1)[1] for entry in listed if entry.startswith("160000 ")}


def _ignored(git: Git, bare: Path, tree: Path, folders: list[str]) -> set[str]:
    # A dependency cache may hold repositories; as git saves nothing of it, they stay.
    if not folders:
        return set()
    asked = git.tree(bare, tree, "check-ignore", "-z", "--stdin", input=lines(folders), write=False, check=False)
    return {name for name in asked.stdout.split("\0") if name}


def _commit_all(git: Git, bare: Path, tree: Path, message: str, author: Author, skipped: list[str]) -> tuple[str, str]:
    spec = [":/", *(f":(top,exclude,literal){name}" for name in skipped)]
    git.tree(bare, tree, "add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul", input=lines(spec))
    faults.point("workspace.save.after_add")
    new_tree = git.tree(bare, tree, "write-tree").stdout.strip()
    heads = git.tree(bare, tree, "rev-parse", "HEAD^{commit}", "HEAD^{tree}", write=False).stdout.split()
    before, old_tree = heads[0], heads[1]
    if new_tree == old_tree:
        return before, before
    text = message.replace("\0", "")
    after = git.tree(
        bare, tree, "commit-tree", new_tree, "-p", before, "-F", "-", input=text, author=author
    ).stdout.strip()
    # Compare and swap: a head that moved meanwhile is not ours to overwrite.
    git.tree(bare, tree, "update-ref", "-m", "stationmaster: save", "HEAD", after, before)
    faults.point("workspace.save.after_commit")
    return before, after


def switch(git: Git, bare: Path, tree: Path, branch: str, start: str) -> None:
    """Moves a clean worktree to `branch`, made at `start` when it does not exist; refuses to lose anything."""
    paths.check_branch(branch)
    if current_branch(bare, tree) == branch:
        return
    _require_clean(git, bare, tree)
    make_branch(git, bare, branch, start)
    faults.point("workspace.switch.after_branch")
    git.tree(bare, tree, "switch", "--quiet", "--no-guess", "--no-overwrite-ignore", branch)


def fast_forward(git: Git, bare: Path, tree: Path, to_sha: str) -> bool:
    """Moves the branch of a clean worktree forward to `to_sha`; False when that would not be a forward move."""
    paths.check_sha(to_sha)
    state = _require_clean(git, bare, tree)
    if state.head == to_sha:
        return True
    if not mirror.is_ancestor(git, bare, state.head, to_sha):
        return False
    git.tree(bare, tree, "merge", "--quiet", "--ff-only", "--no-overwrite-ignore", "--no-stat", to_sha)
    return True


def _require_clean(git: Git, bare: Path, tree: Path) -> TreeState:
    state = inspect(git, bare, tree)
    if state.problem:
        raise Unavailable(
            f"The worktree {tree} is not clean.",
            code=state.problem,
            hint="Commit, move or remove what git status shows there; then unblock the task.",
            paths=state.dirty or state.locks,
        )
    return state


def orphan(path: Path, intent_seq: int) -> Path:
    """Renames something of ours that is half-made to `<path>.orphan-<seq>`; never deletes, and may be repeated."""
    target = path.with_name(f"{path.name}.orphan-{intent_seq}")
    return _rename_free(path, target)


def orphan_worktree(bare: Path, tree: Path, intent_seq: int) -> tuple[Path, ...]:
    """Renames a half-made worktree of ours, both its folder and git's own folder for it, out of the way.

    Git's folder leaves `worktrees/`, where it would go on holding the branch.
    """
    away = [orphan(tree, intent_seq)] if os.path.lexists(tree) else []
    folder = paths.admin(bare, tree)
    if os.path.lexists(folder):
        home = bare / "orphaned"
        home.mkdir(exist_ok=True)
        away.append(_rename_free(folder, home / f"{folder.name}.orphan-{intent_seq}"))
    return tuple(away)


def _rename_free(path: Path, target: Path) -> Path:
    if not os.path.lexists(path):
        return target
    free, number = target, 1
    while os.path.lexists(free):
        number += 1
        free = target.with_name(f"{target.name}-{number}")
    path.rename(free)
    return free
