"""Who is calling, what their token may do, and what they may do in a repository."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from stationmaster.standins.forge.store import Row, Store
from stationmaster.standins.forge.wire import ApiError, Request

MODES = {"none": 0, "read": 1, "write": 2, "admin": 3, "owner": 4}
NAMES = {mode: name for name, mode in MODES.items()}
NONE, READ, WRITE, ADMIN, OWNER = range(5)
GHOST_ID, ACTIONS_ID = -1, -2
SCOPE_REFUSED = "token does not have at least one of required scope(s), required=[{needed}], token scope={scopes}"
BAD_CREDENTIALS = "invalid username, password or token"
PROHIBITED = "This account is prohibited from signing in, please contact your site administrator."

GHOST: Row = {
    "id": GHOST_ID, "login": "Ghost", "lower_login": "ghost", "full_name": "", "email": "", "password": "",
    "is_org": 0, "is_bot": 0, "is_admin": 0, "prohibit_login": 0, "created": 0,
}  # fmt: skip
ACTIONS: Row = {
    **GHOST, "id": ACTIONS_ID, "login": "gitea-actions", "lower_login": "gitea-actions", "full_name": "Gitea Actions",
}  # fmt: skip


@dataclass(frozen=True)
class Caller:
    """Whoever sent a request; `scopes` is None for a password, which may do everything."""

    account: Row | None = None
    scopes: frozenset[str] | None = None
    basic: bool = False

    @property
    def signed(self) -> bool:
        """Says whether somebody is signed in."""
        return self.account is not None

    @property
    def site_admin(self) -> bool:
        """Says whether the caller administers the whole site."""
        return self.account is not None and bool(self.account["is_admin"])

    def require_scope(self, category: str, method: str) -> None:
        """Refuses a token without the scope of this category, as Gitea says it (403)."""
        level = "write" if method in {"POST", "PUT", "PATCH", "DELETE"} else "read"
        if self.scopes is None or scope_allows(self.scopes, category, level):
            return
        scopes = ",".join(sorted(self.scopes))
        raise ApiError(403, SCOPE_REFUSED.format(needed=f"{level}:{category}", scopes=scopes))


def scope_allows(scopes: frozenset[str], category: str, level: str) -> bool:
    """Says whether the scopes cover `level:category`; write includes read."""
    wanted = {"all", f"write:{category}"} | ({f"read:{category}"} if level == "read" else set())
    return not scopes.isdisjoint(wanted)


def account(store: Store, account_id: int) -> Row:
    """Returns the account with that id; a deleted one is Ghost."""
    if account_id == ACTIONS_ID:
        return ACTIONS
    return store.one("SELECT * FROM account WHERE id=?", account_id) or GHOST


def account_named(store: Store, login: str) -> Row | None:
    """Returns the account or organisation with that name, whatever its case."""
    if login.lower() == "gitea-actions":
        return ACTIONS
    return store.one("SELECT * FROM account WHERE lower_login=?", login.lower())


def mode(store: Store, repo: Row, who: Row | None) -> int:
    """Returns what an account may do in a repository: 0 none … 4 owner."""
    floor = NONE if repo["private"] else READ
    if who is None:
        return floor
    if who["is_admin"] or who["id"] == repo["owner_id"]:
        return OWNER
    found = [floor]
    for sql, key in (
        ("SELECT permission FROM member WHERE org_id=? AND account_id=?", repo["owner_id"]),
        ("SELECT permission FROM collaborator WHERE repo_id=? AND account_id=?", repo["id"]),
    ):
        row = store.one(sql, key, who["id"])
        if row:
            found.append(MODES[row["permission"]])
    return max(found)


def is_member(store: Store, repo: Row, who: Row) -> bool:
    """Says whether somebody is owner, member or collaborator: who else needs write access to open a pull request."""
    if who["id"] == repo["owner_id"]:
        return True
    return bool(
        store.one("SELECT 1 FROM member WHERE org_id=? AND account_id=?", repo["owner_id"], who["id"])
        or store.one("SELECT 1 FROM collaborator WHERE repo_id=? AND account_id=?", repo["id"], who["id"])
    )


def blocked(store: Store, who: Row, repo: Row, poster_id: int) -> bool:
    """Says whether the owner or the poster has blocked this account and it is no repository admin."""
    sql = "SELECT 1 FROM block WHERE account_id=? AND owner_id IN (?, ?)"
    return bool(store.one(sql, who["id"], repo["owner_id"], poster_id)) and mode(store, repo, who) < ADMIN


def can_push(store: Store, repo: Row, branch: str, who: Row | None) -> bool:
    """Says whether somebody may push to a branch, its protection included."""
    if who is None or mode(store, repo, who) < WRITE:
        return False
    rule = protection(store, repo["id"], branch)
    return rule is None or bool(rule["can_push"]) or who["lower_login"] in str(rule["whitelist"]).split(",")


def protection(store: Store, repo_id: int, branch: str) -> Row | None:
    """Returns the first rule that covers a branch."""
    sql = "SELECT * FROM protection WHERE repo_id=? AND ? GLOB rule ORDER BY rule=? DESC LIMIT 1"
    return store.one(sql, repo_id, branch, branch)


def identify(store: Store, request: Request) -> Caller:
    """Returns the caller, or raises 401 when credentials were sent and are wrong.

    Accepted are `token X`, `Bearer X`, Basic user:TOKEN, TOKEN:x-oauth-basic, TOKEN:(nothing), user:password and the
    query parameters `token` and `access_token`, all as 1.25 does.
    """
    query = request.params.get("token") or request.params.get("access_token")
    scheme, _, rest = request.headers.get("authorization", "").partition(" ")
    if query:
        return _by_token(store, query)
    if scheme.lower() in {"token", "bearer"} and rest.strip():
        return _by_token(store, rest.strip())
    if scheme.lower() == "basic":
        return _by_basic(store, rest.strip())
    return Caller()


def _by_token(store: Store, value: str, *, basic: bool = False) -> Caller:
    row = store.one("SELECT * FROM token WHERE value=?", value)
    owner = store.one("SELECT * FROM account WHERE id=?", row["account_id"]) if row else None
    if row is None or owner is None:
        raise ApiError(401, BAD_CREDENTIALS)
    return Caller(_admitted(owner), frozenset(str(row["scopes"]).split(",")), basic)


def _by_basic(store: Store, coded: str) -> Caller:
    try:
        name, _, secret = base64.b64decode(coded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return Caller()
    token = name if secret in {"", "x-oauth-basic"} else secret
    if store.one("SELECT 1 FROM token WHERE value=?", token):
        return _by_token(store, token, basic=True)
    owner = account_named(store, name)
    if owner is None or not owner["password"] or owner["password"] != secret:
        raise ApiError(401, BAD_CREDENTIALS)
    return Caller(_admitted(owner), None, basic=True)


def _admitted(owner: Row) -> Row:
    if owner["prohibit_login"]:
        raise ApiError(403, PROHIBITED)
    return owner
