"""REST: webhooks of a repository, of an organisation, and of the whole site."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from stationmaster.standins.forge import access
from stationmaster.standins.forge.events import expand
from stationmaster.standins.forge.rest import REPO, Call, Routes
from stationmaster.standins.forge.store import Row, now
from stationmaster.standins.forge.wire import ApiError, Response, as_json, not_found, paged

routes = Routes()
REPO_HOOKS = f"{REPO}/hooks"
ORG_HOOKS = "/orgs/(?P<org>[^/]+)/hooks"
SITE_HOOKS = "/admin/hooks"
# What stands for no repository at all.
PATTERN = -1
WHERE = "repo_id IS ? AND owner_id IS ?"


def _place(call: Call) -> tuple[int | None, int | None]:
    """Returns the repository or the owner that is meant, for those who administer it."""
    if "org" in call.values:
        org = access.account_named(call.api.store, call.values["org"])
        if org is None or not org["is_org"]:
            raise not_found()
        sql = "SELECT permission FROM member WHERE org_id=? AND account_id=?"
        member = call.api.store.one(sql, org["id"], call.who["id"])
        if not call.caller.site_admin and (member is None or member["permission"] != "admin"):
            raise ApiError(403, "Must be an organization owner")
        return None, int(org["id"])
    if call.repo:
        call.require_repo_admin()
        return int(call.repo["id"]), None
    if not call.caller.site_admin:
        raise ApiError(403, "Only site admins")
    return None, None


@routes("GET", REPO_HOOKS, "repository", token=True)
@routes("GET", ORG_HOOKS, "organization", token=True)
@routes("GET", SITE_HOOKS, "admin", token=True)
def list_hooks(call: Call) -> Response:
    """Lists the hooks of a place."""
    rows = call.api.store.many(f"SELECT * FROM hook WHERE {WHERE} ORDER BY id", *_place(call))
    page, headers = paged(call.request, rows)
    return as_json(200, [call.api.views.hook(row) for row in page], headers)


@routes("POST", REPO_HOOKS, "repository", token=True)
@routes("POST", ORG_HOOKS, "organization", token=True)
@routes("POST", SITE_HOOKS, "admin", token=True)
def create_hook(call: Call) -> Response:
    """Adds a hook: inactive unless asked, for pushes unless told otherwise."""
    repo_id, owner_id = _place(call)
    config = call.form.get("config") or {}
    if call.form.get("type") != "gitea":
        raise ApiError(422, f"Invalid hook type: {call.form.get('type', '')}")
    for name in ("url", "content_type"):
        if name not in config:
            raise ApiError(422, f"Missing config option: {name}")
    _check_config(config)
    if (repo_id, owner_id) == (None, None) and config.get("is_system_webhook") != "true":
        # A pattern for repositories to come: nobody hears of anything through it, and it is not listed.
        repo_id = PATTERN
    at = now()
    hook_id = call.api.store.insert(
        "hook", repo_id=repo_id, owner_id=owner_id, url=config["url"], content_type=config["content_type"],
        secret=str(config.get("secret", "")), events=json.dumps(expand(call.form.get("events") or [])),
        branch_filter=str(call.form.get("branch_filter") or ""),
        authorization=str(call.form.get("authorization_header") or ""),
        active=int(bool(call.form.get("active"))), created=at, updated=at,
    )  # fmt: skip
    return as_json(201, call.api.views.hook(call.api.store.get("hook", hook_id)))


def _check_config(config: dict[str, str]) -> None:
    if config.get("content_type", "json") not in {"json", "form"}:
        raise ApiError(422, "Invalid content type")
    if "url" in config and urlsplit(config["url"]).scheme not in {"http", "https"}:
        raise ApiError(422, "Invalid url")


@routes("GET", f"{REPO_HOOKS}/(?P<id>[^/]+)", "repository", token=True)
@routes("GET", f"{ORG_HOOKS}/(?P<id>[^/]+)", "organization", token=True)
@routes("GET", f"{SITE_HOOKS}/(?P<id>[^/]+)", "admin", token=True)
def get_hook(call: Call) -> Response:
    """Returns a hook without its secret."""
    return as_json(200, call.api.views.hook(_hook(call)))


@routes("PATCH", f"{REPO_HOOKS}/(?P<id>[^/]+)", "repository", token=True)
@routes("PATCH", f"{ORG_HOOKS}/(?P<id>[^/]+)", "organization", token=True)
@routes("PATCH", f"{SITE_HOOKS}/(?P<id>[^/]+)", "admin", token=True)
def edit_hook(call: Call) -> Response:
    """Changes a hook: without `events` they become push again, and the secret never changes."""
    hook, config = _hook(call), call.form.get("config") or {}
    _check_config(config)
    call.api.store.update(
        "hook", hook["id"], url=config.get("url", hook["url"]),
        content_type=config.get("content_type", hook["content_type"]),
        events=json.dumps(expand(call.form.get("events") or [])),
        branch_filter=str(call.form.get("branch_filter") or ""),
        authorization=str(call.form.get("authorization_header") or ""),
        active=int(bool(call.form.get("active", hook["active"]))), updated=now(),
    )  # fmt: skip
    return as_json(200, call.api.views.hook(call.api.store.get("hook", hook["id"])))


@routes("DELETE", f"{REPO_HOOKS}/(?P<id>[^/]+)", "repository", token=True)
@routes("DELETE", f"{ORG_HOOKS}/(?P<id>[^/]+)", "organization", token=True)
@routes("DELETE", f"{SITE_HOOKS}/(?P<id>[^/]+)", "admin", token=True)
def delete_hook(call: Call) -> Response:
    """Removes a hook."""
    call.api.store.run("DELETE FROM hook WHERE id=?", _hook(call)["id"])
    return Response(204)


@routes("POST", f"{REPO_HOOKS}/(?P<id>[^/]+)/tests", "repository", token=True)
def test_hook(call: Call) -> Response:
    """Sends a push to the hook; 204 also when the hook does not hear of pushes and nothing is sent."""
    hook = _hook(call)
    if call.api.deeds.events.test_delivery(call.repo, hook, call.who):
        call.api.deeds.hooks.wake()
    return Response(204)


def _hook(call: Call) -> Row:
    sql = f"SELECT * FROM hook WHERE {WHERE} AND id=?"
    hook = call.api.store.one(sql, *_place(call), call.id("id"))
    if hook is None:
        raise not_found()
    return hook
