"""Puts away what an act of ours on disk left half-made: renamed, never deleted, so that the step can be done again.

Only what the act's own intent names is touched, and of locks only those that did not stand there before it; everything
else that is in the way is somebody else's and stays as it is (architecture §8, GW-R-128).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stationmaster.errors import Busy, Unavailable
from stationmaster.gitea import codes
from stationmaster.workspaces import mirror, paths, worktree
from stationmaster.workspaces.git import Git

_PROC = Path("/proc")
_PROGRAMS = frozenset({b"git", b"bwrap"})


def put_away(git: Git, seq: int, about: Mapping[str, Any]) -> tuple[str, ...]:
    """Renames what the act with intent `seq` left half-made, and returns where that is now.

    `about` is what its intent says: `bare`, perhaps `tree`, the `locks` that stood there before (`standing`), `part`
    for a clone and `branch_step` for one that moved a worktree between branches. Doing it again changes nothing.
    """
    bare = Path(about["bare"])
    tree = Path(about["tree"]) if about.get("tree") else None
    moved: list[Path] = []
    if about.get("part") and os.path.lexists(about["part"]):
        moved.append(worktree.orphan(Path(about["part"]), seq))
    if bare.is_dir():
        before = set(about.get("locks", ()))
        moved += [_aside(bare, lock, seq) for lock in _locks(bare, tree) if _mark(lock) not in before]
        if tree is not None and about.get("branch_step") and _spoiled(git, bare, tree):
            moved += worktree.orphan_worktree(bare, tree, seq)
        if tree is not None:
            _restore_git_file(bare, tree)
    return tuple(str(path) for path in moved)


def standing(about: Mapping[str, Any]) -> list[str]:
    """Returns the locks that stand where an act is about to work, each with what tells it from a later one.

    Times would not do: a file's is some milliseconds older than the clock says, and clocks are set back.
    """
    bare = Path(about["bare"])
    tree = Path(about["tree"]) if about.get("tree") else None
    return [_mark(lock) for lock in _locks(bare, tree)] if bare.is_dir() else []


def _locks(bare: Path, tree: Path | None) -> list[Path]:
    found = {*worktree.shared_locks_now(bare), *(bare / "refs").rglob("*.lock")}
    if tree is not None:
        found.update(worktree.locks_now(bare, tree))
    return sorted(found)


def _mark(path: Path) -> str:
    try:
        seen = path.lstat()
    except OSError:
        return f"{path}:gone"
    return f"{path}:{seen.st_ino}:{seen.st_mtime_ns}"


def _aside(bare: Path, lock: Path, seq: int) -> Path:
    # Never within refs/: git would take the new name for a reference, and a broken one.
    home = bare / "orphaned"
    home.mkdir(exist_ok=True)
    target, number = home / f"{lock.name}.orphan-{seq}", 1
    while os.path.lexists(target):
        number += 1
        target = home / f"{lock.name}.orphan-{seq}-{number}"
    lock.rename(target)
    return target


def _spoiled(git: Git, bare: Path, tree: Path) -> bool:
    # The tree was clean, or not there, when the act began: whatever is wrong with it now, the act began it.
    if not (worktree.is_registered(bare, tree) and worktree.has_own_git_file(bare, tree)):
        return os.path.lexists(paths.admin(bare, tree)) or (tree.is_dir() and any(tree.iterdir()))
    try:
        state = worktree.inspect(git, bare, tree)
    except Unavailable as error:
        if error.code != codes.GIT_FAILED:
            raise
        return True
    return bool(state.dirty or state.conflicts or state.operation)


def _restore_git_file(bare: Path, tree: Path) -> None:
    # A save moves a repository that took the place of the tree's own `.git` away, then puts the file back.
    if worktree.is_registered(bare, tree) and tree.is_dir() and not os.path.lexists(tree / ".git"):
        (tree / ".git").write_text(worktree.git_file(bare, tree))


def require_unused(bare: Path) -> None:
    """Raises Busy while a git process of this user still works on a repository: nothing there is a leftover yet."""
    wanted = str(bare).encode()
    for words in _commands():
        if os.path.basename(words[0]) in _PROGRAMS and any(wanted in word for word in words):  # noqa: PTH119 - bytes
            raise Busy(
                f"A git process of an earlier run still works on {bare}.",
                code=codes.GIT_LOCKED,
                hint="Wait until it has ended, or end it.",
            )


def part_of(bare: Path) -> str:
    """Returns where a clone of a repository grows, as an intent names it."""
    return str(mirror.part_of(bare))


def _commands() -> Iterator[list[bytes]]:
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if folder.stat().st_uid != os.geteuid():
                continue
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words and words[0]:
            yield words
