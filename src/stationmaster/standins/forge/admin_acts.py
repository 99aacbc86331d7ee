"""Admin verbs that act as a person (and so fire webhooks), and reads of the true state."""

from __future__ import annotations

import base64
from typing import Any

from stationmaster.standins.forge import access
from stationmaster.standins.forge.admin import Admin, Json
from stationmaster.standins.forge.bare import FileContent
from stationmaster.standins.forge.store import Row
from stationmaster.standins.forge.wire import ApiError


class Acts:
    """Does what a person would do in the web interface."""

    def __init__(self, admin: Admin) -> None:
        self._admin, self._store, self._views, self._deeds = admin, admin.store, admin.views, admin.deeds

    def issue(self, repo: str | int, author: str, title: str, body: str = "") -> Json:
        """Opens an issue."""
        row = self._admin.repo_row(repo)
        who = self._admin.who(author)
        return self._views.issue(row, self._deeds.open_issue(row, who, title, body), who)

    def edit_issue(
        self, repo: str | int, number: int, author: str, title: str | None = None, body: str | None = None,
        state: str | None = None,
    ) -> Json:  # fmt: skip
        """Changes title, body or state (`open`, `closed`) of an issue or pull request."""
        row = self._admin.repo_row(repo)
        issue, who = self._admin.issue_row(row, number), self._admin.who(author)
        return self._views.issue(row, self._deeds.edit_issue(row, issue, who, title=title, body=body, state=state), who)

    def lock(self, repo: str | int, number: int, *, on: bool = True) -> Json:
        """Locks a conversation, or unlocks it."""
        issue = self._admin.issue_row(self._admin.repo_row(repo), number)
        self._store.update("issue", issue["id"], locked=int(on))
        return {}

    def comment(self, repo: str | int, number: int, author: str, body: str) -> Json:
        """Writes a comment."""
        row = self._admin.repo_row(repo)
        issue = self._admin.issue_row(row, number)
        return self._views.comment(row, issue, self._deeds.comment(row, issue, self._admin.who(author), body))

    def edit_comment(self, comment: int, author: str, body: str) -> Json:
        """Changes a comment."""
        old, issue, row = self._of(comment)
        changed = self._deeds.edit_comment(row, issue, old, self._admin.who(author), body)
        return self._views.comment(row, issue, changed)

    def delete_comment(self, comment: int, author: str) -> Json:
        """Removes a comment."""
        old, issue, row = self._of(comment)
        self._deeds.delete_comment(row, issue, old, self._admin.who(author))
        return {}

    def _of(self, comment: int) -> tuple[Row, Row, Row]:
        row = self._store.get("comment", comment)
        issue = self._store.get("issue", row["issue_id"])
        return row, issue, self._store.get("repo", issue["repo_id"])

    def comments(self, repo: str | int, number: int) -> list[Json]:
        """Lists everything said on an issue, code comments too, whatever faults hide."""
        row = self._admin.repo_row(repo)
        issue = self._admin.issue_row(row, number)
        rows = self._store.many("SELECT * FROM comment WHERE issue_id=? ORDER BY id", issue["id"])
        return [{**self._views.comment(row, issue, comment), "kind": comment["kind"]} for comment in rows]

    def issues(self, repo: str | int) -> list[Json]:
        """Lists all issues and pull requests of a repository."""
        row = self._admin.repo_row(repo)
        rows = self._store.many("SELECT * FROM issue WHERE repo_id=? ORDER BY number", row["id"])
        return [self._views.issue(row, issue, None) for issue in rows]

    # --- pull requests ------------------------------------------------------------------------------------------------

    def pull(
        self, repo: str | int, author: str, head: str, title: str, base: str = "", body: str = "",
        fork: str | int = "",
    ) -> Json:  # fmt: skip
        """Opens a pull request between two branches, the head in `fork` when one is named."""
        row = self._admin.repo_row(repo)
        who = self._admin.who(author)
        base = base or row["default_branch"]
        of_fork = self._admin.repo_row(fork) if fork else None
        issue = self._deeds.open_pull(row, who, head=head, base=base, title=title, body=body, fork=of_fork)
        return self._deeds.events.pulls.pull(row, issue, who)

    def lose_fork(self, repo: str | int, number: int) -> Json:
        """Lets the fork of a pull request be gone, as its deletion would."""
        issue = self._admin.issue_row(self._admin.repo_row(repo), number)
        self._store.update("pull", self._deeds.events.pulls.pull_row(issue)["id"], head_repo_id=-1)
        return {}

    def copy(self, repo: str | int, into: str | int, branch: str) -> Json:
        """Brings a branch of a repository into its fork."""
        source, fork = self._admin.repo_row(repo), self._admin.repo_row(into)
        path = self._views.bare(source["id"]).path
        return {"sha": self._views.bare(fork["id"]).bring(path, branch, f"refs/heads/{branch}")}

    def pulls(self, repo: str | int) -> list[Json]:
        """Lists all pull requests of a repository."""
        row = self._admin.repo_row(repo)
        rows = self._store.many("SELECT * FROM issue WHERE repo_id=? AND is_pull ORDER BY number", row["id"])
        return [self._deeds.events.pulls.pull(row, issue, None) for issue in rows]

    def merge(
        self, repo: str | int, number: int, author: str, style: str = "merge", *, delete_branch: bool = False
    ) -> Json:
        """Merges a pull request, and removes its branch when asked."""
        row = self._admin.repo_row(repo)
        issue, who = self._admin.issue_row(row, number), self._admin.who(author)
        sha = self._deeds.merge(row, issue, who, style=style)
        if delete_branch:
            self._deeds.delete_branch(row, self._deeds.events.pulls.pull_row(issue)["head_branch"], who)
        return {"sha": sha}

    def review(
        self, repo: str | int, number: int, author: str, body: str = "", kind: str = "COMMENT",
        lines: list[dict[str, Any]] | None = None,
    ) -> Json:  # fmt: skip
        """Submits a review: COMMENT, APPROVED or REQUEST_CHANGES, with lines of {path, line, body}."""
        row = self._admin.repo_row(repo)
        issue, who = self._admin.issue_row(row, number), self._admin.who(author)
        notes = [(str(line["path"]), int(line["line"]), str(line["body"])) for line in lines or []]
        review = self._deeds.review(row, issue, who, kind=kind, body=body, lines=notes)
        return self._deeds.events.pulls.review(row, issue, review)

    def answer_line(self, comment: int, author: str, body: str) -> Json:
        """Replies in the thread of a code-line comment."""
        first, issue, row = self._of(comment)
        if first["kind"] != "code":
            raise ApiError(422, "that is no code-line comment")
        place = {key: first[key] for key in ("review_id", "path", "line")}
        return self._views.comment(
            row, issue, self._deeds.answer_line(row, issue, self._admin.who(author), body, **place)
        )

    # --- git ----------------------------------------------------------------------------------------------------------

    def commit(
        self, repo: str | int, author: str, files: dict[str, FileContent], branch: str = "", message: str = "",
        base: str = "",
    ) -> Json:  # fmt: skip
        """Pushes one commit as a person; a new branch starts at `base` (or the default branch)."""
        row = self._admin.repo_row(repo)
        who, bare = self._admin.who(author), self._views.bare(row["id"])
        branch = branch or row["default_branch"]
        before = bare.refs()
        start = bare.tip(branch) or bare.tip(base or row["default_branch"])
        sha = bare.commit(
            branch, files, message=message or "Change by hand\n", name=who["full_name"] or who["login"],
            email=who["email"], parent=start,
        )  # fmt: skip
        self._deeds.landed(row, before, bare.refs(), who)
        return {"sha": sha}

    def set_branch(self, repo: str | int, author: str, branch: str, sha: str) -> Json:
        """Points a branch at a commit, forced if need be, as a person's push would."""
        row = self._admin.repo_row(repo)
        bare = self._views.bare(row["id"])
        before = bare.refs()
        bare.set_ref(f"refs/heads/{branch}", sha)
        self._deeds.landed(row, before, bare.refs(), self._admin.who(author))
        return {}

    def delete_branch(self, repo: str | int, author: str, branch: str) -> Json:
        """Removes a branch."""
        self._deeds.delete_branch(self._admin.repo_row(repo), branch, self._admin.who(author))
        return {}

    def branches(self, repo: str | int) -> dict[str, str]:
        """Returns every branch with its commit."""
        refs = self._views.bare(self._admin.repo_row(repo)["id"]).refs()
        return {name.removeprefix("refs/heads/"): sha for name, sha in refs.items()}

    def file(self, repo: str | int, ref: str, path: str) -> Json:
        """Returns a file at a branch or commit, as text and as base64."""
        raw = self._views.bare(self._admin.repo_row(repo)["id"]).blob(ref, path)
        if raw is None:
            raise ApiError(404, f"no {path!r} at {ref!r}")
        return {"text": raw.decode(errors="replace"), "base64": base64.b64encode(raw).decode()}

    def files(self, repo: str | int, ref: str) -> list[str]:
        """Lists the paths of a branch or commit."""
        return self._views.bare(self._admin.repo_row(repo)["id"]).tree(ref)

    def commits(self, repo: str | int, ref: str) -> list[dict[str, str]]:
        """Lists the commits of a branch, newest first."""
        return self._views.bare(self._admin.repo_row(repo)["id"]).commits(ref)

    def mode(self, repo: str | int, login: str) -> Json:
        """Returns somebody's permission."""
        mode = access.mode(self._store, self._admin.repo_row(repo), self._admin.who(login))
        return {"permission": access.NAMES[mode]}
