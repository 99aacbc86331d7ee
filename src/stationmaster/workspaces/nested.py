"""Finds repositories that an agent made inside its worktree and moves them out, whole, so that their files are saved.

It never follows a symbolic link and never deletes.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path

# Git refuses to store any spelling that some file system takes for `.git`, so each would block a whole save.
_DOT_GIT = re.compile(r"(\.git|git~1)[ .]*(:.*)?", re.IGNORECASE)


def is_dot_git(name: str) -> bool:
    """Tells whether git would refuse `name` as a path component because it could be read as `.git`."""
    return _DOT_GIT.fullmatch(name) is not None


def find(tree: Path) -> list[str]:
    """Returns the relative paths of everything called `.git` below the worktree, but not its own at the top."""
    found: list[str] = []
    todo = [""]
    while todo:
        folder = todo.pop()
        try:
            entries = list(os.scandir(tree / folder))
        except OSError:
            # Git meets the same folder later and says why it cannot be read.
            continue
        for entry in entries:
            relative = f"{folder}/{entry.name}" if folder else entry.name
            if is_dot_git(entry.name):
                if relative != ".git":
                    found.append(relative)
            elif entry.is_dir(follow_symlinks=False):
                todo.append(relative)
    return sorted(found)


def move_out(tree: Path, relative: str, to: Path) -> Path:
    """Moves one found path to `<to>/<relative>`, never over something that is there already."""
    target = to / relative
    number = 1
    while os.path.lexists(target):
        number += 1
        target = to / f"{relative}.{number}"
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        (tree / relative).rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(tree / relative, target)
    return target
