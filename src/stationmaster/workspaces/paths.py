"""Where repositories, worktrees and moved folders live, and which names may become paths, refs and commits.

It starts nothing and writes nothing; `ensure_inside` alone looks at the disk, to see through symbolic links.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from stationmaster.errors import Invalid

_COMPONENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_LONGEST_COMPONENT = 120
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BAD_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")
_BAD_IN_NAME = re.compile(r"[/\\\x00]|\.\.")


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of one workspace root.

    `runs` is where run folders live (default: below the root). It should share the root's file system, so that
    moving a nested repository out of a worktree is a rename.
    """

    root: Path
    runs: Path | None = None

    def repository(self, repository_id: str) -> Path:
        """Returns the folder that holds everything of one repository."""
        return self.root / "repositories" / _component(repository_id)

    def bare(self, repository_id: str) -> Path:
        """Returns the bare repository."""
        return self.repository(repository_id) / "bare.git"

    def tree(self, repository_id: str, name: str) -> Path:
        """Returns the worktree of one issue or pull request; `name` is such as `issue-7`."""
        return self.repository(repository_id) / "trees" / _component(name)

    def nested(self, run_id: str) -> Path:
        """Returns where repositories that an agent made inside its worktree are kept."""
        return (self.runs or self.root / "runs") / _component(run_id) / "nested"


def admin(bare: Path, tree: Path) -> Path:
    """Returns git's own folder for a worktree: the explicit `--git-dir` of every command that reads the tree."""
    return bare / "worktrees" / _component(tree.name)


def _component(name: str) -> str:
    # Stricter than a file system asks: git uses the last component as the name of the worktree, and must not alter it.
    if len(name) > _LONGEST_COMPONENT or not _COMPONENT.fullmatch(name) or name.endswith(".lock"):
        raise Invalid(f"{name[:_LONGEST_COMPONENT]!r} cannot name a folder.", code="workspace_path_invalid")
    return name


def check_name(owner: str, name: str) -> None:
    """Raises Invalid when an owner or repository name could lead out of the root (GW-R-033)."""
    for word in (owner, name):
        if not word or word.startswith(("-", ".")) or _BAD_IN_NAME.search(word):
            raise Invalid(
                f"{word[:_LONGEST_COMPONENT]!r} is not an owner or repository name.",
                code="invalid_payload",
                hint="Names hold no slash, backslash or two dots, and start with neither a dash nor a dot.",
            )


def is_ref(name: str) -> bool:
    """Tells whether `name` is a full reference by the rules of `git check-ref-format`."""
    if "/" not in name or _BAD_IN_REF.search(name) or name.endswith(("/", ".")):
        return False
    parts = name.split("/")
    return all(part and not part.startswith(".") and not part.endswith(".lock") for part in parts)


def check_branch(name: str) -> str:
    """Returns `refs/heads/<name>`; raises Invalid when git would refuse the branch name (GW-R-132)."""
    full = f"refs/heads/{name}"
    if name.startswith("-") or name == "HEAD" or not is_ref(full):
        raise Invalid(f"{name[:_LONGEST_COMPONENT]!r} is not a branch name.", code="workspace_path_invalid")
    return full


def check_ref(name: str) -> str:
    """Returns a full reference unchanged; raises Invalid when it is none."""
    if not name.startswith("refs/") or not is_ref(name):
        raise Invalid(f"{name[:_LONGEST_COMPONENT]!r} is not a full reference.", code="workspace_path_invalid")
    return name


def check_sha(sha: str) -> str:
    """Returns a full object name unchanged; raises Invalid when it is none."""
    if not _SHA.fullmatch(sha):
        raise Invalid(f"{sha[:_LONGEST_COMPONENT]!r} is not a commit id.", code="workspace_path_invalid")
    return sha


def ensure_inside(root: Path, path: Path) -> Path:
    """Returns `path` when it lies under `root` and no component below the root is a symbolic link (GW-R-033).

    Stricter than leaving the root: two names for one worktree are as bad as one outside.
    """
    lexical = Path(os.path.normpath(path))
    base = Path(os.path.normpath(root))
    if not lexical.is_absolute() or lexical == base or not lexical.is_relative_to(base):
        raise Invalid(f"{path} is not inside the workspace root {root}.", code="workspace_path_invalid")
    try:
        expected = base.resolve() / lexical.relative_to(base)
        real = lexical.resolve()
    except (OSError, RuntimeError):
        real = None
    if real != expected:
        raise Invalid(
            f"{path} leads through a symbolic link.",
            code="workspace_path_invalid",
            hint="Replace the link by a folder of its own, or move it away.",
        )
    return lexical
