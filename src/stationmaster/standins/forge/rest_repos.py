"""REST: version, users, repositories, collaborators, branches and hooks."""

from __future__ import annotations

import secrets

from stationmaster.standins.forge import access
from stationmaster.standins.forge.rest import REPO, Call, Routes
from stationmaster.standins.forge.store import Row, now
from stationmaster.standins.forge.wire import ApiError, Response, as_json, not_found, paged

routes = Routes()
VERSION = "1.25.5"
# What Forgejo says at Gitea's address: its own version and the Gitea whose API it keeps to.
FORGEJO_VERSION = "11.0.1+gitea-1.22.0"
PERMISSION_REFUSED = (
    "Only admins can query all permissions, repo admins can query all repo permissions, collaborators can query only "
    "their own"
)


@routes("GET", "/version", "misc")
def version(call: Call) -> Response:
    """Returns the version this server speaks."""
    store = call.api.store
    usual = FORGEJO_VERSION if store.setting("dialect") == "forgejo" else VERSION
    return as_json(200, {"version": store.setting("version") or usual})


@routes("GET", "/settings/api", "misc")
def settings(_call: Call) -> Response:
    """Returns the paging limits."""
    limits = {"max_response_items": 50, "default_paging_num": 30, "default_git_trees_per_page": 1000}
    return as_json(200, {**limits, "default_max_blob_size": 10485760, "default_max_response_size": 104857600})


@routes("GET", "/user", "user", token=True)
def get_self(call: Call) -> Response:
    """Returns the caller with the private fields."""
    return as_json(200, call.api.views.user(call.who, doer=call.who, signed=True))


@routes("GET", "/users/(?P<login>[^/]+)", "user")
def get_user(call: Call) -> Response:
    """Returns an account by name."""
    who = _user(call, "login")
    if who is None:
        name = call.values["login"]
        raise not_found(f"user redirect does not exist [name: {name.lower()}]", message="GetUserByName")
    return as_json(200, call.api.views.user(who, doer=call.caller.account, signed=call.caller.signed))


@routes("POST", "/users/(?P<login>[^/]+)/tokens", "user", token=True, required=("name",))
def create_token(call: Call) -> Response:
    """Makes a token: only with a password, never with a token."""
    if not call.caller.basic or call.caller.scopes is not None:
        raise ApiError(401, "auth required")
    scopes = call.form.get("scopes")
    if not scopes:
        raise ApiError(400, "access token must have a scope")
    value = secrets.token_hex(20)
    row_id = call.api.store.insert(
        "token", account_id=call.who["id"], name=str(call.form["name"]), value=value, scopes=",".join(scopes),
        created=now(),
    )  # fmt: skip
    return as_json(201, {
        "id": row_id,
        "name": call.form["name"],
        "sha1": value,
        "token_last_eight": value[-8:],
        "scopes": scopes,
        "created_at": call.api.views.time(now()),
        "last_used_at": call.api.views.time(now()),
    })  # fmt: skip


@routes("GET", "/user/repos", "repository", token=True)
def list_own_repos(call: Call) -> Response:
    """Lists what the caller owns or is given, directly or through an organisation; never what is only public."""
    store, who = call.api.store, call.who
    rows = [row for row in store.many("SELECT * FROM repo ORDER BY id") if access.is_member(store, row, who)]
    page, headers = paged(call.request, rows)
    return as_json(200, [call.api.views.repository(row, access.mode(store, row, who)) for row in page], headers)


@routes("GET", REPO, "repository")
def get_repo(call: Call) -> Response:
    """Returns a repository with the caller's permissions."""
    return as_json(200, call.api.views.repository(call.repo, call.mode))


@routes("GET", r"/repositories/(?P<id>[^/]+)", "repository", token=True)
def get_repo_by_id(call: Call) -> Response:
    """Returns a repository by its id, which a rename never changes."""
    repo = call.api.store.one("SELECT * FROM repo WHERE id=?", call.id("id"))
    mode = access.mode(call.api.store, repo, call.caller.account) if repo else access.NONE
    if repo is None or mode < access.READ:
        raise not_found()
    return as_json(200, call.api.views.repository(repo, mode))


@routes("GET", f"{REPO}/collaborators", "repository", token=True)
def list_collaborators(call: Call) -> Response:
    """Lists direct collaborators."""
    sql = "SELECT account.* FROM collaborator JOIN account ON account.id=account_id WHERE repo_id=? ORDER BY id"
    page, headers = paged(call.request, call.api.store.many(sql, call.repo["id"]))
    shown = [call.api.views.user(row, doer=call.who, signed=True) for row in page]
    return as_json(200, shown, headers)


@routes("GET", f"{REPO}/collaborators/(?P<login>[^/]+)", "repository", token=True)
def is_collaborator(call: Call) -> Response:
    """Says by 204 or 404 whether somebody is a direct collaborator."""
    who = _user(call, "login")
    if who is None:
        raise ApiError(422, f"user does not exist [uid: 0, name: {call.values['login']}]")
    sql = "SELECT 1 FROM collaborator WHERE repo_id=? AND account_id=?"
    if call.api.store.one(sql, call.repo["id"], who["id"]):
        return Response(204)
    raise not_found()


@routes("GET", f"{REPO}/collaborators/(?P<login>[^/]+)/permission", "repository", token=True)
def get_permission(call: Call) -> Response:
    """Returns what somebody may do: to site and repository administrators, and to everybody about themselves."""
    own = call.who["lower_login"] == call.values["login"].lower()
    if not (call.caller.site_admin or own or call.mode >= access.ADMIN):
        raise ApiError(403, PERMISSION_REFUSED)
    who = _user(call, "login")
    if who is None:
        raise ApiError(404, f"user does not exist [uid: 0, name: {call.values['login']}]")
    name = access.NAMES[access.mode(call.api.store, call.repo, who)]
    owner = call.api.views.owner_of(call.repo)
    return as_json(200, {
        "permission": name,
        "role_name": name,
        "user": call.api.views.user(who, doer=owner, signed=True),
    })  # fmt: skip


def _user(call: Call, name: str) -> Row | None:
    return access.account_named(call.api.store, call.values[name])


@routes("GET", f"{REPO}/branches", "repository")
def list_branches(call: Call) -> Response:
    """Lists branches by name."""
    names = sorted(ref.removeprefix("refs/heads/") for ref in call.api.views.bare(call.repo["id"]).refs())
    page, headers = paged(call.request, names)
    return as_json(200, [call.api.pulls.branch(call.repo, name, call.caller.account) for name in page], headers)


@routes("GET", f"{REPO}/branches/(?P<branch>.+)", "repository")
def get_branch(call: Call) -> Response:
    """Returns a branch; its name may hold slashes."""
    branch = call.api.pulls.branch(call.repo, call.values["branch"], call.caller.account)
    if branch is None:
        raise not_found()
    return as_json(200, branch)


@routes("DELETE", f"{REPO}/branches/(?P<branch>.+)", "repository", token=True, archived=True)
def delete_branch(call: Call) -> Response:
    """Removes a branch unless it is the default one or protected."""
    name = call.values["branch"]
    if call.mode < access.WRITE:
        raise ApiError(403, "user should have a permission to write to a repo")
    if call.api.views.bare(call.repo["id"]).tip(name) is None:
        raise not_found(f"branch does not exist [repo_id: {call.repo['id']} name: {name}]")
    if name == call.repo["default_branch"]:
        raise ApiError(403, "can not delete default branch")
    if access.protection(call.api.store, call.repo["id"], name):
        raise ApiError(403, "branch protected")
    call.api.deeds.delete_branch(call.repo, name, call.who)
    return Response(204)


@routes("GET", f"{REPO}/branch_protections", "repository", token=True)
def list_protections(call: Call) -> Response:
    """Lists the protection rules."""
    call.require_repo_admin()
    rows = call.api.store.many("SELECT * FROM protection WHERE repo_id=? ORDER BY rule", call.repo["id"])
    return as_json(200, [
        {
            "branch_name": row["rule"],
            "rule_name": row["rule"],
            "enable_push": bool(row["can_push"] or row["whitelist"]),
            "enable_push_whitelist": bool(row["whitelist"]),
            "push_whitelist_usernames": [name for name in row["whitelist"].split(",") if name],
            "enable_force_push": bool(row["can_force"]),
        }
        for row in rows
    ])  # fmt: skip


# --- hooks ------------------------------------------------------------------------------------------------------------
