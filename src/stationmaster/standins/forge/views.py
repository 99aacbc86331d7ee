"""The JSON forms of accounts, repositories, issues, comments and hooks, key for key and in Gitea 1.25's order."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from stationmaster.standins.forge import access
from stationmaster.standins.forge.bare import Bare
from stationmaster.standins.forge.store import Row, Store

ZERO_TIME, UNSET_TIME = "0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z"
UNITS = (
    "has_wiki", "has_pull_requests", "has_projects", "projects_mode", "has_releases", "has_packages", "has_actions",
)  # fmt: skip
TRACKER = {
    "enable_time_tracker": True, "allow_only_contributors_to_track_time": True, "enable_issue_dependencies": True,
}  # fmt: skip
MERGE_STYLES: dict[str, Any] = {
    "ignore_whitespace_conflicts": False, "allow_merge_commits": True, "allow_rebase": True,
    "allow_rebase_explicit": True, "allow_squash_merge": True, "allow_fast_forward_only_merge": True,
    "allow_rebase_update": True, "allow_manual_merge": False, "autodetect_manual_merge": False,
    "default_delete_branch_after_merge": False, "default_merge_style": "merge", "default_allow_maintainer_edit": False,
}  # fmt: skip


class Views:
    """Builds what readers of the API and receivers of webhooks see."""

    def __init__(self, store: Store, base_url: str) -> None:
        self.store = store
        self.base_url = base_url  # without a slash at the end

    @property
    def host(self) -> str:
        """Returns the host name, as it stands in no-reply addresses."""
        return self.base_url.split("://", 1)[1].split(":")[0]

    def time(self, seconds: int | None) -> str | None:
        """Returns RFC 3339 in whole seconds, in the zone the server shows."""
        if seconds is None:
            return None
        minutes = int(self.store.setting("utc_offset_minutes", "0"))
        zone = timezone(timedelta(minutes=minutes)) if minutes else UTC
        return datetime.fromtimestamp(seconds, zone).isoformat().replace("+00:00", "Z")

    def bare(self, repo_id: int) -> Bare:
        """Returns the repository on disk; its folder carries the id, so renames do not touch it."""
        return Bare(Path(self.store.folder) / "repositories" / f"{repo_id}.git")

    # --- accounts -----------------------------------------------------------------------------------------------------

    def user(self, who: Row, *, doer: Row | None = None, signed: bool = False) -> dict[str, Any]:
        """Returns a user; only the account itself and site administrators see the private fields."""
        own = doer is not None and (doer["id"] == who["id"] or bool(doer["is_admin"]))
        shown = bool(who["email"]) and (own or (signed and bool(self.store.setting("show_emails"))))
        picture = "assets/img/avatar_default.png"
        if who["id"] > 0:
            picture = "avatars/" + hashlib.md5(who["lower_login"].encode(), usedforsecurity=False).hexdigest()
        return {
            "id": who["id"],
            "login": who["login"],
            "login_name": "",
            "source_id": 0,
            "full_name": who["full_name"],
            "email": who["email"] if shown else f"{who['lower_login']}@noreply.{self.host}",
            "avatar_url": f"{self.base_url}/{picture}",
            "html_url": f"{self.base_url}/{who['login']}",
            "language": "",
            "is_admin": own and bool(who["is_admin"]),
            "last_login": self.time(who["created"]) if own else ZERO_TIME,
            "created": self.time(who["created"]) if who["created"] else UNSET_TIME,
            "restricted": False,
            "active": own,
            "prohibit_login": own and bool(who["prohibit_login"]),
            "location": "",
            "website": "",
            "description": "",
            "visibility": "public",
            "followers_count": 0,
            "following_count": 0,
            "starred_repos_count": 0,
            "username": who["login"],
        }

    # --- repositories -------------------------------------------------------------------------------------------------

    def owner_of(self, repo: Row) -> Row:
        """Returns the account that owns a repository."""
        return access.account(self.store, repo["owner_id"])

    def full_name(self, repo: Row) -> str:
        """Returns owner/name."""
        return f"{self.owner_of(repo)['login']}/{repo['name']}"

    def html_url(self, repo: Row) -> str:
        """Returns the repository's page."""
        return f"{self.base_url}/{self.full_name(repo)}"

    def api_url(self, repo: Row) -> str:
        """Returns the repository's API address."""
        return f"{self.base_url}/api/v1/repos/{self.full_name(repo)}"

    def repository(self, repo: Row, mode: int) -> dict[str, Any]:
        """Returns a repository; `mode` is whose permissions it shows."""
        owner, pulls = self.owner_of(repo), bool(repo["has_pulls"])
        api, page = self.api_url(repo), self.html_url(repo)
        count = "SELECT count(*) AS n FROM issue WHERE repo_id=? AND is_pull=? AND state='open'"
        opened = [self.store.many(count, repo["id"], is_pull)[0]["n"] for is_pull in (0, 1)]
        return {
            "id": repo["id"],
            "owner": self.user(owner, signed=mode > access.NONE),
            "name": repo["name"],
            "full_name": self.full_name(repo),
            "description": repo["description"],
            "empty": not self.bare(repo["id"]).refs(),
            "private": bool(repo["private"]),
            "fork": False,
            "template": False,
            "mirror": False,
            "size": 318,
            "language": "",
            "languages_url": f"{api}/languages",
            "html_url": page,
            "url": api,
            "link": "",
            "ssh_url": f"git@{self.host}:{self.full_name(repo)}.git",
            "clone_url": f"{page}.git",
            "original_url": "",
            "website": "",
            "stars_count": 0,
            "forks_count": 0,
            "watchers_count": 1,
            "open_issues_count": opened[0],
            "open_pr_counter": opened[1],
            "release_counter": 0,
            "default_branch": repo["default_branch"],
            "archived": bool(repo["archived"]),
            "created_at": self.time(repo["created"]),
            "updated_at": self.time(repo["updated"]),
            "archived_at": self.time(repo["archived_at"]) if repo["archived_at"] else UNSET_TIME,
            "permissions": {
                "admin": mode >= access.ADMIN,
                "push": mode >= access.WRITE,
                "pull": mode >= access.READ,
            },
            "has_code": True,
            "has_issues": bool(repo["has_issues"]),
            **({"internal_tracker": TRACKER} if repo["has_issues"] else {}),
            **{name: "all" if name == "projects_mode" else True for name in UNITS},
            "has_pull_requests": pulls,
            **(MERGE_STYLES if pulls else {**MERGE_STYLES, **_no_merges()}),
            "avatar_url": "",
            "internal": False,
            "mirror_interval": "",
            "object_format_name": "sha1",
            "mirror_updated": ZERO_TIME,
            "topics": [],
            "licenses": [],
        }

    def commit(self, repo: Row, commit: dict[str, str], files: dict[str, list[str]] | None = None) -> dict[str, Any]:
        """Returns a commit as pushes and branches show it."""
        people = []
        for role in ("author", "committer"):
            email = commit[f"{role}_email"]
            known = self.store.one("SELECT login FROM account WHERE email=? AND email<>''", email)
            people.append({"name": commit[role], "email": email, "username": known["login"] if known else ""})
        return {
            "id": commit["sha"],
            "message": commit["message"],
            "url": f"{self.html_url(repo)}/commit/{commit['sha']}",
            "author": people[0],
            "committer": people[1],
            "verification": None if files is not None else _unsigned(),
            "timestamp": commit["committed"].replace("+00:00", "Z"),
            **{kind: files[kind] if files else None for kind in ("added", "removed", "modified")},
        }

    # --- issues and comments ------------------------------------------------------------------------------------------

    def issue_url(self, repo: Row, issue: Row) -> str:
        """Returns the page of an issue or pull request."""
        return f"{self.html_url(repo)}/{'pulls' if issue['is_pull'] else 'issues'}/{issue['number']}"

    def count_comments(self, issue_id: int) -> int:
        """Returns how many plain comments and code comments an issue has."""
        return int(self.store.many("SELECT count(*) AS n FROM comment WHERE issue_id=?", issue_id)[0]["n"])

    def issue(self, repo: Row, issue: Row, doer: Row | None) -> dict[str, Any]:
        """Returns an issue; for a pull request with its short form inside."""
        pull = self.store.one("SELECT * FROM pull WHERE issue_id=?", issue["id"]) if issue["is_pull"] else None
        owner = self.owner_of(repo)
        page = self.issue_url(repo, issue)
        return {
            "id": issue["id"],
            "url": f"{self.api_url(repo)}/issues/{issue['number']}",
            "html_url": page,
            "number": issue["number"],
            "user": self.user(access.account(self.store, issue["poster_id"]), doer=doer, signed=doer is not None),
            "original_author": "",
            "original_author_id": 0,
            "title": issue["title"],
            "body": issue["body"],
            "ref": "",
            "assets": [],
            "labels": [],
            "milestone": None,
            "assignee": None,
            "assignees": None,
            "state": issue["state"],
            "is_locked": bool(issue["locked"]),
            "comments": self.count_comments(issue["id"]),
            "created_at": self.time(issue["created"]),
            "updated_at": self.time(issue["updated"]),
            "closed_at": self.time(issue["closed"]),
            "due_date": None,
            "time_estimate": 0,
            "pull_request": None if pull is None else {
                "merged": bool(pull["merged"]),
                "merged_at": self.time(pull["merged_at"]),
                "draft": is_draft(issue["title"]),
                "html_url": page,
            },
            "repository": {
                "id": repo["id"],
                "name": repo["name"],
                "owner": owner["login"],
                "full_name": self.full_name(repo),
            },
            "pin_order": 0,
        }  # fmt: skip

    def comment(self, repo: Row, issue: Row, comment: Row) -> dict[str, Any]:
        """Returns a comment; its addresses are pages, whatever their names say."""
        page = self.issue_url(repo, issue)
        return {
            "id": comment["id"],
            "html_url": f"{page}#issuecomment-{comment['id']}",
            "pull_request_url": page if issue["is_pull"] else "",
            "issue_url": "" if issue["is_pull"] else page,
            "user": self.user(access.account(self.store, comment["poster_id"])),
            "original_author": "",
            "original_author_id": 0,
            "body": comment["body"],
            "assets": [],
            "created_at": self.time(comment["created"]),
            "updated_at": self.time(comment["updated"]),
        }

    def reaction(self, reaction: Row) -> dict[str, Any]:
        """Returns a reaction."""
        return {
            "user": self.user(access.account(self.store, reaction["account_id"])),
            "content": reaction["content"],
            "created_at": self.time(reaction["created"]),
        }

    def hook(self, hook: Row) -> dict[str, Any]:
        """Returns a hook; never its secret."""
        return {
            "id": hook["id"],
            "type": "gitea",
            "branch_filter": hook["branch_filter"],
            "config": {"content_type": hook["content_type"], "url": hook["url"]},
            "events": json.loads(hook["events"]),
            "authorization_header": hook["authorization"],
            "active": bool(hook["active"]),
            "updated_at": self.time(hook["updated"]),
            "created_at": self.time(hook["created"]),
        }


def is_draft(title: str) -> bool:
    """Says whether a pull request's title marks it as work in progress."""
    return title.upper().startswith(("WIP:", "[WIP]"))


def _no_merges() -> dict[str, Any]:
    off = {key: False for key, value in MERGE_STYLES.items() if value is True}
    return {**off, "allow_manual_merge": True}


def _unsigned() -> dict[str, Any]:
    return {
        "verified": False,
        "reason": "gpg.error.not_signed_commit",
        "signature": "",
        "signer": None,
        "payload": "",
        "verified_at": None,
    }
