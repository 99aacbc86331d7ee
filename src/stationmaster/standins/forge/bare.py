"""One bare repository on disk: the git plumbing the forge needs; knows nothing of users or issues."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FileContent = str | bytes | dict[str, Any] | None
"""Text, bytes, {"content", "mode"} (mode 100755 or 120000), or None for "remove it"."""

ZERO = "0" * 40
TIMEOUT_S = 60
FIELDS = "%H%x1f%an%x1f%ae%x1f%aI%x1f%cn%x1f%ce%x1f%cI%x1f%B%x1e"


class GitRefused(Exception):
    """Git said no; the message is git's own."""


def environment(home: Path, **more: str) -> dict[str, str]:
    """Returns the whole environment of a git child: no user or system configuration leaks in."""
    return {
        "PATH": f"{Path(shutil.which('git') or 'git').parent}:/usr/local/bin:{os.defpath}",
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        # A folder that another user made is served all the same.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        **more,
    }


class Bare:
    """Runs git in one bare repository."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def git(self, *args: str, stdin: bytes = b"", check: bool = True, env: Mapping[str, str] | None = None) -> bytes:
        """Runs git and returns its output; raises GitRefused with its words when it fails."""
        done = subprocess.run(
            ["git", f"--git-dir={self.path}", *args],
            input=stdin,
            capture_output=True,
            env=environment(self.path.parent, **(env or {})),
            timeout=TIMEOUT_S,
            check=False,
        )
        if check and done.returncode:
            raise GitRefused(done.stderr.decode(errors="replace").strip())
        return done.stdout if done.returncode == 0 else b""

    def text(self, *args: str, check: bool = True, env: Mapping[str, str] | None = None) -> str:
        """Runs git and returns its output as stripped text; empty when it failed and `check` is off."""
        return self.git(*args, check=check, env=env).decode(errors="replace").strip()

    def create(self, default_branch: str, hooks: Mapping[str, str]) -> None:
        """Makes the repository and installs its server hooks."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.git("init", "--bare", "-q", f"--initial-branch={default_branch}")
        for key, value in (("http.receivepack", "true"), ("receive.advertisePushOptions", "true"), ("gc.auto", "0")):
            self.git("config", key, value)
        for name, script in hooks.items():
            hook = self.path / "hooks" / name
            hook.parent.mkdir(exist_ok=True)
            hook.write_text(script)
            hook.chmod(0o755)

    def tip(self, branch: str) -> str | None:
        """Returns the commit a branch points at."""
        return self.resolve(f"refs/heads/{branch}")

    def resolve(self, name: str) -> str | None:
        """Returns the commit a full ref name or sha means, or None."""
        return self.text("rev-parse", "--verify", "-q", f"{name}^{{commit}}", check=False) or None

    def refs(self, prefix: str = "refs/heads") -> dict[str, str]:
        """Returns every ref below a prefix with its commit."""
        lines = self.text("for-each-ref", "--format=%(objectname) %(refname)", prefix).splitlines()
        return {name: sha for sha, name in (line.split(" ", 1) for line in lines)}

    def bring(self, other: Path, branch: str, name: str) -> str | None:
        """Brings a branch of another repository under a ref of this one; returns its commit."""
        self.git("fetch", "-q", "--no-tags", str(other), f"+refs/heads/{branch}:{name}", check=False)
        return self.resolve(name)

    def set_ref(self, name: str, sha: str | None) -> None:
        """Points a ref at a commit, or removes it."""
        self.git("update-ref", *(["-d", name] if sha is None else [name, sha]))

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Says whether one commit is an ancestor of (or equal to) another."""
        done = self.text("merge-base", older, newer, check=False)
        return done == self.resolve(older)

    def merge_base(self, left: str, right: str) -> str:
        """Returns the best common ancestor, empty when there is none."""
        return self.text("merge-base", left, right, check=False)

    def commit(
        self,
        branch: str,
        files: Mapping[str, FileContent],
        *,
        message: str,
        name: str,
        email: str,
        parent: str | None = None,
    ) -> str:
        """Writes one commit on top of a branch (or of `parent`) and moves the branch to it."""
        parent = parent or self.tip(branch)
        with tempfile.TemporaryDirectory(dir=self.path) as scratch:
            index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
            if parent:
                self.git("read-tree", parent, env=index)
            lines = [self._entry(path, content) for path, content in files.items()]
            self.git("update-index", "--index-info", stdin="".join(lines).encode(), env=index)
            tree = self.text("write-tree", env=index)
        sha = self.commit_tree(tree, [parent] if parent else [], message=message, name=name, email=email)
        self.set_ref(f"refs/heads/{branch}", sha)
        return sha

    def _entry(self, path: str, content: FileContent) -> str:
        if content is None:
            return f"0 {ZERO}\t{path}\n"
        mode = "100644"
        if isinstance(content, dict):
            mode, content = str(content.get("mode", mode)), str(content["content"])
        raw = content.encode() if isinstance(content, str) else content
        return f"{mode} {self.git('hash-object', '-w', '--stdin', stdin=raw).decode().strip()}\t{path}\n"

    def commit_tree(self, tree: str, parents: list[str], *, message: str, name: str, email: str) -> str:
        """Writes a commit object and returns its sha."""
        person = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER")
                  for part, value in (("NAME", name), ("EMAIL", email))}  # fmt: skip
        args = [word for parent in parents for word in ("-p", parent)]
        return self.git("commit-tree", tree, *args, stdin=message.encode(), env=person).decode().strip()

    def merge_tree(self, ours: str, theirs: str) -> str | None:
        """Returns the tree of a clean merge of two commits, or None when they conflict."""
        return self.text("merge-tree", "--write-tree", ours, theirs, check=False).split("\n")[0] or None

    def commits(self, *revisions: str) -> list[dict[str, str]]:
        """Returns the commits of a revision range, newest first."""
        raw = self.git("log", f"--format={FIELDS}", *revisions, "--", check=False).decode(errors="replace")
        names = ("sha", "author", "author_email", "authored", "committer", "committer_email", "committed", "message")
        found = [part.lstrip("\n").split("\x1f") for part in raw.split("\x1e") if part.strip()]
        return [dict(zip(names, fields, strict=True)) for fields in found]

    def changed(self, base: str, head: str) -> list[dict[str, Any]]:
        """Returns the files that differ, with status letter and line counts."""
        counts = self.git("diff", "--numstat", "-z", "-M", base, head, check=False).decode(errors="replace").split("\0")
        status = self.git("diff", "--name-status", "-z", "-M", base, head, check=False).decode(errors="replace")
        files, words, at = [], iter(status.split("\0")), 0
        for letter in words:
            if not letter:
                break
            old = next(words)
            new = next(words) if letter[0] in "RC" else old
            added, removed, _ = counts[at].split("\t")
            at += 3 if letter[0] in "RC" else 1
            numbers = [int(count) if count.isdigit() else 0 for count in (added, removed)]
            files.append({"status": letter[0], "old": old, "path": new, "added": numbers[0], "removed": numbers[1]})
        return files

    def diff(self, base: str, head: str) -> bytes:
        """Returns the unified diff between two commits."""
        return self.git("diff", "--full-index", "-M", base, head)

    def patch(self, base: str, head: str) -> bytes:
        """Returns the commits between two points as mails."""
        return self.git("format-patch", "--stdout", f"{base}..{head}")

    def blob(self, revision: str, path: str) -> bytes | None:
        """Returns a file's content at a revision, or None."""
        known = self.text("rev-parse", "--verify", "-q", f"{revision}:{path}", check=False)
        return self.git("cat-file", "blob", known) if known else None

    def tree(self, revision: str) -> list[str]:
        """Returns every path of a revision."""
        return self.git("ls-tree", "-r", "-z", "--name-only", revision).decode(errors="replace").split("\0")[:-1]
