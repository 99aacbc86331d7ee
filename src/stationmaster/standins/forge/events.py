"""Which hooks hear of what, and the exact payload they get (services/webhook/notifier.go of Gitea 1.25)."""

from __future__ import annotations

import json
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from stationmaster.standins.forge import access
from stationmaster.standins.forge.hooks import Hooks
from stationmaster.standins.forge.pull_views import PullViews
from stationmaster.standins.forge.store import Row, Store
from stationmaster.standins.forge.views import Views
from stationmaster.standins.forge.wire import dump

Payload = dict[str, Any]

ISSUE_GROUP = ("issue_assign", "issue_label", "issue_milestone", "issue_comment")
PULL_GROUP = (
    "pull_request_assign", "pull_request_label", "pull_request_milestone", "pull_request_comment",
    "pull_request_review", "pull_request_sync", "pull_request_review_request",
)  # fmt: skip
SINGLE = (
    "create", "delete", "fork", "push", "wiki", "repository", "release", "package", "status", "workflow_run",
    "workflow_job",
)  # fmt: skip
REVIEW_TYPES = {
    "COMMENT": "pull_request_review_comment",
    "APPROVED": "pull_request_review_approved",
    "REQUEST_CHANGES": "pull_request_review_rejected",
}


def expand(wanted: list[str]) -> list[str]:
    """Returns the events a hook really gets: `issues` and `pull_request` mean whole groups, nothing means push."""
    chosen = {event.lower() for event in wanted} or {"push"}
    found = [event for event in SINGLE if event in chosen]
    if chosen & {"issues", "issues_only"}:
        found.append("issues")
    found += [event for event in ISSUE_GROUP if "issues" in chosen or event in chosen]
    if chosen & {"pull_request", "pull_request_only"}:
        found.append("pull_request")
    return found + [event for event in PULL_GROUP if "pull_request" in chosen or event in chosen]


class Events:
    """Turns what happened into queued deliveries; call it inside the transaction that made it happen."""

    def __init__(self, store: Store, views: Views, hooks: Hooks) -> None:
        self.store, self.views, self.hooks = store, views, hooks
        self.pulls = PullViews(views)

    def comment(
        self, action: str, repo: Row, issue: Row, comment: Row, doer: Row, *, before: str | None = None
    ) -> None:
        """Tells of a comment that was created, edited or deleted; the permissions shown are the sender's."""

        def payload() -> Payload:
            pull = {"pull_request": self.pulls.pull(repo, issue, doer)} if issue["is_pull"] else {}
            changes = {"changes": {"body": {"from": before}}} if before is not None else {}
            return {
                "action": action,
                "issue": self.views.issue(repo, issue, doer),
                **pull,
                "comment": self.views.comment(repo, issue, comment),
                **changes,
                "repository": self.views.repository(repo, access.mode(self.store, repo, doer)),
                "sender": self.views.user(doer),
                "is_pull": bool(issue["is_pull"]),
            }

        self._send(repo, "pull_request_comment" if issue["is_pull"] else "issue_comment", payload)

    def issue(self, action: str, repo: Row, issue: Row, doer: Row, *, changes: Payload | None = None) -> None:
        """Tells of an issue or pull request; the permissions shown are its author's, whoever acted."""
        poster = access.account(self.store, issue["poster_id"])

        def payload() -> Payload:
            if issue["is_pull"]:
                subject = {"pull_request": self.pulls.pull(repo, issue, doer), "requested_reviewer": None}
            else:
                subject = {"issue": self.views.issue(repo, issue, doer)}
            return {
                "action": action,
                "number": issue["number"],
                **({"changes": changes} if changes else {}),
                **subject,
                "repository": self.views.repository(repo, access.mode(self.store, repo, poster)),
                "sender": self.views.user(doer),
                "commit_id": "",
                **({"review": None} if issue["is_pull"] else {}),
            }

        self._send(repo, "pull_request" if issue["is_pull"] else "issues", payload)

    def synchronized(self, repo: Row, issue: Row, doer: Row) -> None:
        """Tells that new commits arrived on a pull request."""

        def payload() -> Payload:
            return {
                "action": "synchronized",
                "number": issue["number"],
                "pull_request": self.pulls.pull(repo, issue, doer),
                "requested_reviewer": None,
                "repository": self.views.repository(repo, access.OWNER),
                "sender": self.views.user(doer),
                "commit_id": "",
                "review": None,
            }

        self._send(repo, "pull_request_sync", payload)

    def reviewed(self, repo: Row, issue: Row, review: Row, reviewer: Row) -> None:
        """Tells of a submitted review: no comment, no review id, the author's permissions."""
        event_type = REVIEW_TYPES[review["type"]]
        poster = access.account(self.store, issue["poster_id"])

        def payload() -> Payload:
            return {
                "action": "reviewed",
                "number": issue["number"],
                "pull_request": self.pulls.pull(repo, issue, reviewer),
                "requested_reviewer": self.views.user(reviewer),
                "repository": self.views.repository(repo, access.mode(self.store, repo, poster)),
                "sender": self.views.user(reviewer),
                "commit_id": "",
                "review": {"type": event_type, "content": review["body"]},
            }

        self._send(repo, event_type, payload)

    def pushed(self, repo: Row, ref: str, before: str, after: str, pusher: Row) -> None:
        """Tells of a push to one branch or tag."""
        self._send(repo, "push", lambda: self.pulls.push(repo, ref, before, after, pusher, access.OWNER), ref=ref)

    def test_delivery(self, repo: Row, hook: Row, doer: Row) -> bool:
        """Queues the push a "Test delivery" sends; nothing at all when the hook does not hear of pushes."""
        if "push" not in json.loads(hook["events"]):
            return False
        tip = self.views.bare(repo["id"]).tip(repo["default_branch"]) or ""
        payload = self.pulls.push(repo, f"refs/heads/{repo['default_branch']}", tip, tip, doer, access.NONE)
        self.hooks.enqueue(hook, "push", self._text(payload))
        return True

    def _send(self, repo: Row, event_type: str, payload: Callable[[], Payload], ref: str = "") -> None:
        """Queues one delivery for each matching hook: the repository's, its owner's, the system's."""
        sql = """SELECT * FROM hook WHERE active AND (repo_id=? OR (repo_id IS NULL AND owner_id=?)
                 OR (repo_id IS NULL AND owner_id IS NULL)) ORDER BY repo_id IS NULL, owner_id IS NULL, id"""
        wanted = "pull_request_review" if event_type.startswith("pull_request_review_") else event_type
        hooks = [
            hook
            for hook in self.store.many(sql, repo["id"], repo["owner_id"])
            if wanted in json.loads(hook["events"]) and _passes(hook["branch_filter"], ref)
        ]
        if not hooks:
            return
        text = self._text(payload())
        for hook in hooks:
            self.hooks.enqueue(hook, event_type, text)

    def _text(self, payload: Payload) -> str:
        return dump(payload, indent=2, escape_html=not self.store.setting("unescaped_json"))


def _passes(branch_filter: str, ref: str) -> bool:
    if not ref or branch_filter in {"", "*", "**"}:
        return True
    return fnmatchcase(ref.removeprefix("refs/heads/"), branch_filter)
