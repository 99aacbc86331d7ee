"""Reads `git status --porcelain=v2 -z` and the marker files beside it into one picture of a worktree. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# A listing is for people and events; what decides is whether there is any.
MOST_LISTED = 100

OPERATIONS = (
    ("MERGE_HEAD", "merge"),
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("sequencer", "sequence"),
    ("BISECT_LOG", "bisect"),
)


@dataclass(frozen=True, slots=True)
class TreeState:
    """What a worktree looks like now.

    `dirty` lists changed, untracked and unmerged paths, printable and at most 100. `locks` are git's lock files that
    stayed for the whole waiting time. `operation` is one that was begun and not ended. `problem` is the code of the
    first thing that keeps work from starting here, or None.
    """

    head: str
    branch: str | None
    dirty: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    locks: tuple[Path, ...] = ()
    operation: str | None = None
    missing: bool = False

    @property
    def problem(self) -> str | None:
        """The stable code of what is wrong, or None (GW-R-128)."""
        if self.missing:
            return "workspace_missing"
        if self.conflicts:
            return "workspace_conflict"
        if self.locks or self.operation:
            return "workspace_locked"
        return "workspace_dirty" if self.dirty else None


@dataclass(frozen=True, slots=True)
class Porcelain:
    """The parsed output of git status."""

    head: str
    branch: str | None
    dirty: tuple[str, ...]
    conflicts: tuple[str, ...]


def shown(name: str) -> str:
    """Makes a path printable: bytes that are no text and control characters are written as escapes."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def parse(output: str, is_foreign_repository: Callable[[str], bool]) -> Porcelain:
    """Reads the output of `status --porcelain=v2 --branch -z`.

    A submodule that has a repository of its own in place is left out: what happens inside is not ours to judge.
    """
    head, branch = "", None
    dirty: list[str] = []
    conflicts: list[str] = []
    fields = iter(output.split("\0"))
    for field in fields:
        kind, _, rest = field.partition(" ")
        if kind == "#":
            head, branch = _header(rest, head, branch)
        elif kind == "1":
            sub, name = rest.split(" ", 1)[1].split(" ", 1)[0], rest.split(" ", 7)[7]
            if not (sub.startswith("S") and is_foreign_repository(name)):
                dirty.append(name)
        elif kind == "2":
            dirty.append(rest.split(" ", 8)[8])
            next(fields)
        elif kind == "u":
            conflicts.append(rest.split(" ", 9)[9])
        elif kind == "?":
            dirty.append(rest)
    return Porcelain(head, branch, _listed(dirty + conflicts), _listed(conflicts))


def _header(rest: str, head: str, branch: str | None) -> tuple[str, str | None]:
    key, _, value = rest.partition(" ")
    if key == "branch.oid":
        return ("" if value == "(initial)" else value), branch
    if key == "branch.head":
        return head, (None if value == "(detached)" else value)
    return head, branch


def _listed(names: list[str]) -> tuple[str, ...]:
    listed = tuple(shown(name) for name in names[:MOST_LISTED])
    more = len(names) - len(listed)
    return (*listed, f"… and {more} more") if more else listed
