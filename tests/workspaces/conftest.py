"""A remote repository with one commit, and our side of it: real git, real folders, the real runner."""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from stationmaster.workspaces import mirror, worktree
from stationmaster.workspaces.git import Author, Git
from stationmaster.workspaces.paths import Layout
from stationmaster.workspaces.status import TreeState

AUTHOR = Author("Station Bot", "bot@example.test")
REPOSITORY = "repo_1"
NAME = "issue-7"
BRANCH = "stationmaster/issue-7"
_PERSON = {
    "PATH": os.defpath,
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.test",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.test",
}


def person(*args: str, cwd: Path | None = None, check: bool = True) -> str:
    """Runs plain git the way somebody at a prompt would."""
    done = subprocess.run(
        ["git", *args], cwd=cwd, env=_PERSON, check=False, capture_output=True, text=True, errors="surrogateescape"
    )
    if check and done.returncode:
        raise AssertionError(f"git {args}: {done.stderr}")
    return done.stdout.strip()


def picture(*roots: Path) -> dict[str, tuple[str, int, int, str]]:
    """Describes every file under the roots: kind, mode, time and content; equal pictures mean an untouched disk."""
    seen: dict[str, tuple[str, int, int, str]] = {}
    for root in roots:
        todo = [root]
        while todo:
            path = todo.pop()
            about = path.lstat()
            if path.is_symlink():
                content = str(path.readlink())
            elif path.is_dir():
                content = ""
                todo += list(path.iterdir())
            else:
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            seen[str(path)] = (oct(about.st_mode), about.st_mtime_ns, about.st_ino, content)
    return seen


@dataclass
class Place:
    """One forge repository and our copy of it."""

    root: Path
    remote: Path
    git: Git
    layout: Layout

    @property
    def bare(self) -> Path:
        return self.layout.bare(REPOSITORY)

    @property
    def tree(self) -> Path:
        return self.layout.tree(REPOSITORY, NAME)

    @property
    def nested(self) -> Path:
        return self.layout.nested("run_1")

    def clone(self) -> None:
        mirror.ensure(self.git, self.bare, str(self.remote), None)

    def main(self) -> str:
        found = mirror.remote_tracking_tip(self.git, self.bare, "main")
        assert found is not None
        return found

    def ready(self) -> None:
        """Clones and makes the worktree of issue 7."""
        self.clone()
        worktree.ensure(self.git, self.bare, self.tree, BRANCH, self.main())

    def save(self, message: str = "stationmaster: save") -> worktree.Saved:
        return worktree.save(self.git, self.bare, self.tree, message, self.nested, AUTHOR)

    def inspect(self) -> TreeState:
        return worktree.inspect(self.git, self.bare, self.tree)

    def saved_files(self, commit: str) -> set[str]:
        return set(person("-C", str(self.bare), "ls-tree", "-r", "-z", "--name-only", commit).strip("\0").split("\0"))

    def content(self, commit: str, name: str) -> str:
        return person("-C", str(self.bare), "show", f"{commit}:{name}")

    def commit_at_remote(self, branch: str, name: str, text: str, *, start: str | None = None) -> str:
        """Somebody else commits one file on a branch of the forge and pushes it."""
        work = self.root / "somebody"
        if not work.exists():
            person("clone", "-q", str(self.remote), str(work))
        person("-C", str(work), "fetch", "-q", "--prune", "origin")
        begin = start or f"origin/{branch}"
        person("-C", str(work), "checkout", "-q", "-B", branch, begin)
        (work / name).write_text(text)
        person("-C", str(work), "add", "-A")
        person("-C", str(work), "commit", "-qm", f"Add {name}")
        person("-C", str(work), "push", "-q", "--force", "origin", f"HEAD:refs/heads/{branch}")
        return person("-C", str(work), "rev-parse", "HEAD")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    seed = tmp_path / "seed"
    person("init", "-q", "-b", "main", str(seed))
    (seed / "README.md").write_text("# Parcel\n")
    (seed / "src").mkdir()
    (seed / "src" / "app.py").write_text("print('hello')\n")
    (seed / ".gitignore").write_text("ignored/\n*.log\n")
    person("add", "-A", cwd=seed)
    person("commit", "-qm", "Begin", cwd=seed)
    remote = tmp_path / "forge" / "parcel.git"
    person("clone", "-q", "--bare", str(seed), str(remote))
    git = Git(timeout_s=60, lock_wait_s=0.3, home=tmp_path / "git-home", local_remotes=(tmp_path / "forge",))
    return Place(tmp_path, remote, git, Layout(tmp_path / "workspaces"))


@pytest.fixture
def ready(place: Place) -> Place:
    place.ready()
    return place
