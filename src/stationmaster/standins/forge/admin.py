"""The back door for seeding and watching: `POST /__admin/<verb>` with a JSON object, from this machine only.

Reads here see the truth, never what a fault makes of it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from stationmaster.standins.forge import access
from stationmaster.standins.forge.bare import FileContent
from stationmaster.standins.forge.events import expand
from stationmaster.standins.forge.git_http import hook_scripts
from stationmaster.standins.forge.rest import Api
from stationmaster.standins.forge.store import Row, now
from stationmaster.standins.forge.wire import ApiError

Json = dict[str, Any]
PREFIX = "/__admin/"


class Admin:
    """Seeds accounts, repositories and hooks; what people do once they are there is in `admin_acts`."""

    def __init__(self, api: Api, log: Sequence[Json]) -> None:
        self.api, self.store, self.views, self.deeds = api, api.store, api.views, api.deeds
        self.log = log

    # --- looking things up --------------------------------------------------------------------------------------------

    def who(self, login: str) -> Row:
        """Returns the account with that name."""
        row = access.account_named(self.store, login)
        if row is None:
            raise ApiError(404, f"no account {login!r}")
        return row

    def repo_row(self, name: str | int) -> Row:
        """Returns a repository by "owner/name" or id."""
        if isinstance(name, int):
            return self.store.get("repo", name)
        owner, _, short = name.partition("/")
        sql = "SELECT * FROM repo WHERE owner_id=? AND lower_name=?"
        row = self.store.one(sql, self.who(owner)["id"], short.lower())
        if row is None:
            raise ApiError(404, f"no repository {name!r}")
        return row

    def issue_row(self, repo: Row, number: int) -> Row:
        """Returns an issue or pull request by its number."""
        row = self.store.one("SELECT * FROM issue WHERE repo_id=? AND number=?", repo["id"], number)
        if row is None:
            raise ApiError(404, f"no issue {number}")
        return row

    # --- accounts -----------------------------------------------------------------------------------------------------

    def user(
        self, login: str, full_name: str = "", email: str = "", password: str = "", *, admin: bool = False,
        bot: bool = False, org: bool = False,
    ) -> Json:  # fmt: skip
        """Makes an account, a bot or an organisation."""
        account_id = self.store.insert(
            "account", login=login, lower_login=login.lower(), full_name=full_name, password=password,
            email=email or f"{login.lower()}@example.org", is_org=int(org), is_bot=int(bot), is_admin=int(admin),
            prohibit_login=0, created=now(),
        )  # fmt: skip
        return {"id": account_id, "login": login}

    def member(self, org: str, login: str, permission: str = "write") -> Json:
        """Gives somebody a permission on all repositories of an organisation."""
        sql = "INSERT OR REPLACE INTO member (org_id, account_id, permission) VALUES (?, ?, ?)"
        self.store.run(sql, self.who(org)["id"], self.who(login)["id"], _permission(permission))
        return {}

    def token(self, login: str, scopes: list[str] | None = None, name: str = "seeded", value: str = "") -> Json:
        """Makes a token; its default scope is `all`."""
        value = value or secrets.token_hex(20)
        scope = ",".join(scopes if scopes is not None else ["all"])
        token_id = self.store.insert(
            "token", account_id=self.who(login)["id"], name=name, value=value, scopes=scope, created=now()
        )
        return {"id": token_id, "token": value}

    def revoke(self, token: str = "", login: str = "") -> Json:
        """Removes one token, or all of an account."""
        owner = self.who(login)["id"] if login else 0
        return {"revoked": self.store.run("DELETE FROM token WHERE value=? OR account_id=?", token, owner)}

    def delete_user(self, login: str) -> Json:
        """Removes an account; what it wrote is Ghost's from now on."""
        account_id = self.who(login)["id"]
        with self.store.tx():
            for table in ("token", "collaborator", "member", "block"):
                self.store.run(f"DELETE FROM {table} WHERE account_id=?", account_id)
            self.store.run("DELETE FROM account WHERE id=?", account_id)
        return {}

    def prohibit(self, login: str, *, on: bool = True) -> Json:
        """Forbids an account to sign in, or allows it again."""
        self.store.update("account", self.who(login)["id"], prohibit_login=int(on))
        return {}

    def rename_user(self, login: str, new: str) -> Json:
        """Changes a login; ids and tokens stay."""
        self.store.update("account", self.who(login)["id"], login=new, lower_login=new.lower())
        return {}

    def block(self, owner: str, login: str) -> Json:
        """Lets an owner block an account."""
        sql = "INSERT OR IGNORE INTO block (owner_id, account_id) VALUES (?, ?)"
        self.store.run(sql, self.who(owner)["id"], self.who(login)["id"])
        return {}

    # --- repositories -------------------------------------------------------------------------------------------------

    def repo(
        self, owner: str, name: str, files: dict[str, FileContent] | None = None, *, private: bool = False,
        description: str = "", default_branch: str = "main", collaborators: dict[str, str] | None = None,
    ) -> Json:  # fmt: skip
        """Makes a repository with one commit of the given files, or an empty one."""
        who, at = self.who(owner), now()
        with self.store.tx():
            repo_id = self.store.insert(
                "repo", owner_id=who["id"], name=name, lower_name=name.lower(), description=description,
                private=int(private), archived=0, default_branch=default_branch, has_issues=1, has_pulls=1,
                created=at, updated=at, archived_at=0,
            )  # fmt: skip
            self.store.run("DELETE FROM redirect WHERE owner_id=? AND lower_name=?", who["id"], name.lower())
            for login, permission in (collaborators or {}).items():
                self.collaborator(repo_id, login, permission)
        bare = self.views.bare(repo_id)
        bare.create(default_branch, hook_scripts())
        tip = None
        if files:
            person = {"name": who["full_name"] or who["login"], "email": who["email"]}
            tip = bare.commit(default_branch, files, message="Initial commit\n", **person)
        repo = self.store.get("repo", repo_id)
        return {
            "id": repo_id,
            "full_name": self.views.full_name(repo),
            "tip": tip,
            "clone_url": self.views.html_url(repo) + ".git",
            "html_url": self.views.html_url(repo),
        }

    def collaborator(self, repo: str | int, login: str, permission: str = "write") -> Json:
        """Sets a direct collaborator's permission; `none` removes it."""
        repo_id, account_id = self.repo_row(repo)["id"], self.who(login)["id"]
        with self.store.tx():
            self.store.run("DELETE FROM collaborator WHERE repo_id=? AND account_id=?", repo_id, account_id)
            if permission != "none":
                sql = "INSERT INTO collaborator (repo_id, account_id, permission) VALUES (?, ?, ?)"
                self.store.run(sql, repo_id, account_id, _permission(permission))
        return {}

    def repo_settings(self, repo: str | int, **settings: Any) -> Json:
        """Changes archived, private, has_issues, has_pulls, default_branch or description."""
        allowed = {"archived", "private", "has_issues", "has_pulls", "default_branch", "description"}
        if set(settings) - allowed:
            raise ApiError(422, f"only {', '.join(sorted(allowed))} can be set")
        values = {key: int(value) if isinstance(value, bool) else value for key, value in settings.items()}
        if settings.get("archived"):
            values["archived_at"] = now()
        self.store.update("repo", self.repo_row(repo)["id"], **values)
        return {}

    def rename(self, repo: str | int, name: str = "", owner: str = "") -> Json:
        """Renames or transfers a repository; the old name answers 301 from now on."""
        row = self.repo_row(repo)
        new_owner = self.who(owner)["id"] if owner else row["owner_id"]
        with self.store.tx():
            sql = "INSERT OR REPLACE INTO redirect (owner_id, lower_name, repo_id) VALUES (?, ?, ?)"
            self.store.run(sql, row["owner_id"], row["lower_name"], row["id"])
            name = name or row["name"]
            self.store.update("repo", row["id"], owner_id=new_owner, name=name, lower_name=name.lower(), updated=now())
        return {"full_name": self.views.full_name(self.store.get("repo", row["id"]))}

    def protect(
        self, repo: str | int, branch: str, *, can_push: bool = False, can_force: bool = False,
        whitelist: list[str] | None = None,
    ) -> Json:  # fmt: skip
        """Protects a branch or a pattern of branches."""
        names = ",".join(login.lower() for login in whitelist or [])
        sql = """INSERT OR REPLACE INTO protection (repo_id, rule, can_push, can_force, whitelist)
                 VALUES (?, ?, ?, ?, ?)"""
        self.store.run(sql, self.repo_row(repo)["id"], branch, int(can_push), int(can_force), names)
        return {}

    def unprotect(self, repo: str | int, branch: str) -> Json:
        """Removes a protection rule."""
        self.store.run("DELETE FROM protection WHERE repo_id=? AND rule=?", self.repo_row(repo)["id"], branch)
        return {}

    # --- hooks, deliveries, faults ------------------------------------------------------------------------------------

    def hook(
        self, url: str, repo: str | int = "", owner: str = "", secret: str = "", events: list[str] | None = None,
        content_type: str = "json", authorization: str = "", *, active: bool = True,
    ) -> Json:  # fmt: skip
        """Adds a hook of a repository, of an owner, or (neither given) of the whole site."""
        wanted = events or ["issue_comment", "issues_only", "pull_request_only", "pull_request_comment"]
        hook_id = self.store.insert(
            "hook", repo_id=self.repo_row(repo)["id"] if repo else None,
            owner_id=self.who(owner)["id"] if owner else None, url=url, content_type=content_type, secret=secret,
            events=json.dumps(expand(wanted)), branch_filter="", authorization=authorization, active=int(active),
            created=now(), updated=now(),
        )  # fmt: skip
        return {"id": hook_id}

    def hook_settings(self, hook: int, **settings: Any) -> Json:
        """Changes url, secret, content_type or active of a hook, as its page in the web does."""
        values = {key: int(value) if isinstance(value, bool) else value for key, value in settings.items()}
        self.store.update("hook", hook, **values, updated=now())
        return {}

    def deliveries(self, hook: int | None = None, state: str = "") -> list[Json]:
        """Lists the deliveries with request and response, oldest first."""
        sql = "SELECT * FROM delivery WHERE (?1 IS NULL OR hook_id=?1) AND (?2='' OR state=?2) ORDER BY id"
        return [
            {**row, **{key: json.loads(row[key]) if row[key] else None for key in ("request", "response")}}
            for row in self.store.many(sql, hook, state)
        ]

    def replay(self, delivery: int) -> Json:
        """Sends a delivery again: new UUID, same bytes."""
        return {"id": self.deeds.hooks.replay(delivery)}

    def test_delivery(self, hook: int, login: str) -> Json:
        """Presses the "Test delivery" button of a repository's hook."""
        row = self.store.get("hook", hook)
        sent = self.deeds.events.test_delivery(self.store.get("repo", row["repo_id"]), row, self.who(login))
        self.deeds.hooks.wake()
        return {"sent": sent}

    def faults(self) -> list[Json]:
        """Lists the fault rules with their counters."""
        return self.api.faults.listed()

    def set_faults(self, faults: list[Json]) -> Json:
        """Replaces all fault rules."""
        self.api.faults.replace(faults)
        return {}

    def add_fault(self, fault: Json) -> Json:
        """Adds a fault rule."""
        return {"id": self.api.faults.add(fault)}

    def clear_faults(self, name: str | None = None) -> Json:
        """Removes the rules with that name, or all."""
        self.api.faults.clear(name)
        return {}

    def settings(self, **settings: Any) -> Json:
        """Sets shuffle, utc_offset_minutes, unescaped_json, version or show_emails; empty switches off."""
        for key, value in settings.items():
            self.store.set_setting(key, "" if value is False or value is None else str(value))
        return {}

    def requests(self) -> list[Json]:
        """Lists the requests since the start: method, path, login, status, fault."""
        return list(self.log)

    def status(self) -> Json:
        """Returns the address and how many deliveries are still on their way."""
        waiting = self.store.many("SELECT count(*) AS n FROM delivery WHERE state IN ('waiting', 'sending')")
        return {"url": self.views.base_url, "deliveries_on_their_way": waiting[0]["n"]}


def _permission(name: str) -> str:
    if name not in access.MODES:
        raise ApiError(422, f"permission is one of {', '.join(access.MODES)}")
    return name


def verbs_of(*objects: object) -> dict[str, Callable[..., Any]]:
    """Returns the public methods of some objects as verbs."""
    hidden = {"who", "repo_row", "issue_row"}
    return {
        name: getattr(item, name)
        for item in objects
        for name in dir(item)
        if not name.startswith("_") and name not in hidden and callable(getattr(item, name))
    }
