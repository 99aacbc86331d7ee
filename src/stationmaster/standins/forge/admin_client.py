"""A typed client for the forge's admin API, for the demo and for tests."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, cast

import httpx

Json = dict[str, Any]
Repo = str | int
"""A repository: "owner/name" or its id."""

PATIENCE_S = 60.0


class ForgeAdminError(Exception):
    """The admin API refused; the message is its own."""


class ForgeAdmin:
    """Seeds and watches a forge; acting as a person fires the webhooks a person would."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.Client(base_url=self.url, trust_env=False, timeout=PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def call(self, verb: str, **values: Any) -> Any:
        """Calls any verb by name; values that are None are left out."""
        sent = {key: value for key, value in values.items() if value is not None}
        answer = self._http.post(f"/__admin/{verb}", json=sent)
        if answer.status_code != httpx.codes.OK:
            raise ForgeAdminError(f"{verb}: {answer.json()['error']}")
        return answer.json()

    def _one(self, verb: str, **values: Any) -> Json:
        return cast("Json", self.call(verb, **values))

    def _list(self, verb: str, **values: Any) -> list[Json]:
        return cast("list[Json]", self.call(verb, **values))

    # --- accounts -----------------------------------------------------------------------------------------------------

    def user(self, login: str, *, full_name: str = "", email: str = "", password: str = "", admin: bool = False) -> int:
        """Makes an account and returns its id."""
        return int(self._one("user", **_given(locals()))["id"])

    def bot(self, login: str, *, full_name: str = "") -> int:
        """Makes a bot account and returns its id."""
        return int(self._one("user", login=login, full_name=full_name, bot=True)["id"])

    def org(self, login: str, *, members: dict[str, str] | None = None) -> int:
        """Makes an organisation whose members have a permission on all its repositories."""
        org_id = int(self._one("user", login=login, org=True)["id"])
        for member, permission in (members or {}).items():
            self.call("member", org=login, login=member, permission=permission)
        return org_id

    def token(self, login: str, *, scopes: list[str] | None = None, value: str = "") -> str:
        """Makes a token; the default scope is `all`."""
        return str(self._one("token", **_given(locals()))["token"])

    def revoke(self, *, token: str = "", login: str = "") -> None:
        """Removes one token, or all of an account."""
        self.call("revoke", token=token, login=login)

    def delete_user(self, login: str) -> None:
        """Removes an account; its words are Ghost's from now on."""
        self.call("delete_user", login=login)

    def rename_user(self, login: str, new: str) -> None:
        """Changes a login; id and tokens stay."""
        self.call("rename_user", login=login, new=new)

    def prohibit(self, login: str, *, on: bool = True) -> None:
        """Forbids an account to sign in, or allows it again."""
        self.call("prohibit", login=login, on=on)

    def block(self, owner: str, login: str) -> None:
        """Lets an owner block an account."""
        self.call("block", owner=owner, login=login)

    # --- repositories -------------------------------------------------------------------------------------------------

    def repo(
        self, owner: str, name: str, files: dict[str, Any] | None = None, *, private: bool = False,
        default_branch: str = "main", collaborators: dict[str, str] | None = None,
    ) -> Json:  # fmt: skip
        """Makes a repository; returns {id, full_name, tip, clone_url, html_url}."""
        return self._one("repo", **_given(locals()))

    def collaborator(self, repo: Repo, login: str, permission: str) -> None:
        """Sets a collaborator's permission: none, read, write or admin."""
        self.call("collaborator", **_given(locals()))

    def repo_settings(self, repo: Repo, **settings: bool | str) -> None:
        """Changes archived, private, has_issues, has_pulls, default_branch or description."""
        self.call("repo_settings", repo=repo, **settings)

    def rename(self, repo: Repo, *, name: str = "", owner: str = "") -> str:
        """Renames or transfers a repository and returns its new full name."""
        return str(self._one("rename", **_given(locals()))["full_name"])

    def protect(
        self, repo: Repo, branch: str, *, can_push: bool = False, can_force: bool = False,
        whitelist: list[str] | None = None,
    ) -> None:  # fmt: skip
        """Protects a branch or pattern."""
        self.call("protect", **_given(locals()))

    def unprotect(self, repo: Repo, branch: str) -> None:
        """Removes a protection."""
        self.call("unprotect", repo=repo, branch=branch)

    def commit(
        self, repo: Repo, author: str, files: dict[str, Any], *, branch: str = "", message: str = "", base: str = ""
    ) -> str:
        """Pushes one commit as a person and returns its sha; None as content removes a file."""
        return str(self._one("commit", **_given(locals()))["sha"])

    def set_branch(self, repo: Repo, author: str, branch: str, sha: str) -> None:
        """Points a branch at a commit, as a forced push would."""
        self.call("set_branch", **_given(locals()))

    def delete_branch(self, repo: Repo, author: str, branch: str) -> None:
        """Removes a branch."""
        self.call("delete_branch", **_given(locals()))

    def branches(self, repo: Repo) -> dict[str, str]:
        """Returns every branch with its commit."""
        return {str(name): str(sha) for name, sha in self._one("branches", repo=repo).items()}

    def file(self, repo: Repo, ref: str, path: str) -> str:
        """Returns a file's text at a branch or commit."""
        return str(self._one("file", **_given(locals()))["text"])

    def files(self, repo: Repo, ref: str) -> list[str]:
        """Lists the paths of a branch or commit."""
        return [str(path) for path in self.call("files", repo=repo, ref=ref)]

    def commits(self, repo: Repo, ref: str) -> list[Json]:
        """Lists the commits of a branch, newest first: sha, author, author_email, message, …."""
        return self._list("commits", repo=repo, ref=ref)

    # --- what people do -----------------------------------------------------------------------------------------------

    def issue(self, repo: Repo, author: str, title: str, body: str = "") -> int:
        """Opens an issue and returns its number."""
        return int(self._one("issue", **_given(locals()))["number"])

    def edit_issue(
        self, repo: Repo, number: int, author: str, *, title: str | None = None, body: str | None = None,
        state: str | None = None,
    ) -> None:  # fmt: skip
        """Changes title, body or state (`open`, `closed`) of an issue or pull request."""
        self.call("edit_issue", **_given(locals()))

    def lock(self, repo: Repo, number: int, *, on: bool = True) -> None:
        """Locks a conversation, or unlocks it."""
        self.call("lock", repo=repo, number=number, on=on)

    def comment(self, repo: Repo, number: int, author: str, body: str) -> int:
        """Writes a comment and returns its id."""
        return int(self._one("comment", **_given(locals()))["id"])

    def edit_comment(self, comment: int, author: str, body: str) -> None:
        """Changes a comment."""
        self.call("edit_comment", **_given(locals()))

    def delete_comment(self, comment: int, author: str) -> None:
        """Removes a comment."""
        self.call("delete_comment", **_given(locals()))

    def comments(self, repo: Repo, number: int) -> list[Json]:
        """Lists everything said on an issue as it truly is, with `kind` (`comment` or `code`)."""
        return self._list("comments", repo=repo, number=number)

    def issues(self, repo: Repo) -> list[Json]:
        """Lists all issues and pull requests."""
        return self._list("issues", repo=repo)

    def pull(
        self, repo: Repo, author: str, *, head: str, title: str, base: str = "", body: str = "", fork: Repo = ""
    ) -> int:
        """Opens a pull request, from a branch of `fork` when one is named, and returns its number."""
        return int(self._one("pull", **_given(locals()))["number"])

    def lose_fork(self, repo: Repo, number: int) -> None:
        """Lets the fork of a pull request be gone."""
        self._one("lose_fork", **_given(locals()))

    def copy(self, repo: Repo, into: Repo, branch: str) -> None:
        """Brings a branch of a repository into its fork."""
        self._one("copy", **_given(locals()))

    def pulls(self, repo: Repo) -> list[Json]:
        """Lists all pull requests as Gitea shows them."""
        return self._list("pulls", repo=repo)

    def merge(self, repo: Repo, number: int, author: str, *, style: str = "merge", delete_branch: bool = False) -> str:
        """Merges a pull request (`merge`, `squash`, `fast-forward-only`) and returns the new tip of its base."""
        return str(self._one("merge", **_given(locals()))["sha"])

    def review(
        self, repo: Repo, number: int, author: str, *, body: str = "", kind: str = "COMMENT",
        lines: list[Json] | None = None,
    ) -> Json:  # fmt: skip
        """Submits a review (COMMENT, APPROVED, REQUEST_CHANGES) with lines of {path, line, body}."""
        return self._one("review", **_given(locals()))

    def answer_line(self, comment: int, author: str, body: str) -> int:
        """Replies in a code-line thread and returns the comment's id."""
        return int(self._one("answer_line", **_given(locals()))["id"])

    # --- hooks and faults ---------------------------------------------------------------------------------------------

    def hook(
        self, url: str, *, repo: Repo = "", owner: str = "", secret: str = "", events: list[str] | None = None,
        content_type: str = "json", authorization: str = "", active: bool = True,
    ) -> int:  # fmt: skip
        """Adds a hook of a repository, of an owner or of the site, and returns its id."""
        return int(self._one("hook", **_given(locals()))["id"])

    def hook_settings(self, hook: int, **settings: bool | str) -> None:
        """Changes url, secret, content_type or active of a hook."""
        self.call("hook_settings", hook=hook, **settings)

    def deliveries(self, *, hook: int | None = None, state: str = "") -> list[Json]:
        """Lists deliveries: id, uuid, event, event_type, payload, state, request, response, succeeded.

        States: waiting, sending, delivered, failed, lost, skipped, interrupted.
        """
        return self._list("deliveries", hook=hook, state=state)

    def replay(self, delivery: int) -> int:
        """Sends a delivery again under a new UUID and returns the new row's id."""
        return int(self._one("replay", delivery=delivery)["id"])

    def test_delivery(self, hook: int, login: str) -> bool:
        """Presses the test button; says whether anything was sent."""
        return bool(self._one("test_delivery", hook=hook, login=login)["sent"])

    def on_their_way(self) -> int:
        """Returns how many deliveries are not finished."""
        return int(self._one("status")["deliveries_on_their_way"])

    def add_fault(
        self, kind: str, *, match: dict[str, str] | None = None, count: int | None = 1, skip: int = 0, name: str = "",
        **action: Any,
    ) -> int:  # fmt: skip
        """Adds a fault rule; `count=None` means for ever."""
        fault = {"match": match or {}, "skip": skip, "count": count, "action": {"kind": kind, **action}}
        return int(self._one("add_fault", fault={**fault, "name": name or kind})["id"])

    def set_faults(self, faults: list[Json]) -> None:
        """Replaces all fault rules."""
        self.call("set_faults", faults=faults)

    def faults(self) -> list[Json]:
        """Lists the fault rules with `hits` and `remaining`."""
        return self._list("faults")

    def clear_faults(self, name: str | None = None) -> None:
        """Removes the rules with that name, or all."""
        self.call("clear_faults", name=name)

    def settings(self, **settings: Any) -> None:
        """Sets shuffle, utc_offset_minutes, unescaped_json, version or show_emails."""
        self.call("settings", **settings)

    def requests(self, *, method: str = "", path: str = "") -> list[Json]:
        """Lists the requests since the forge started (method, path, login, status, fault), filtered."""
        rows = self._list("requests")
        return [row for row in rows if method in {"", row["method"]} and path in str(row["path"])]


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Returns a method's own arguments."""
    return {key: value for key, value in values.items() if key != "self"}
