"""The frame of the REST API: routes, and the order in which Gitea checks a call.

Credentials (401), scope (403), repository (301, 404), unit (404), token (401), archived (423), form (422), the verb.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from stationmaster.standins.forge import access
from stationmaster.standins.forge.deeds import Deeds
from stationmaster.standins.forge.faults import Faults
from stationmaster.standins.forge.pull_views import PullViews
from stationmaster.standins.forge.store import Row, Store
from stationmaster.standins.forge.views import Views
from stationmaster.standins.forge.wire import ApiError, Request, Response, as_error, not_found, number, plain

PREFIX = "/api/v1"
REPO = r"/repos/(?P<owner>[^/]+)/(?P<name>[^/]+)"
Form = dict[str, Any]


@dataclass(frozen=True)
class Api:
    """What every verb of the API works with."""

    store: Store
    views: Views
    pulls: PullViews
    deeds: Deeds
    faults: Faults


@dataclass
class Call:
    """One call on its way through the checks."""

    api: Api
    request: Request
    caller: access.Caller
    values: dict[str, str]
    repo: Row = field(default_factory=dict)
    mode: int = access.NONE
    form: Form = field(default_factory=dict)

    @property
    def who(self) -> Row:
        """Returns the account that calls; the routes with `token` have one."""
        if self.caller.account is None:
            raise ApiError(401, "token is required")
        return self.caller.account

    def id(self, name: str) -> int:
        """Returns a numeric part of the path; rubbish is 0, which nothing has."""
        return number(self.values.get(name))

    def can_read(self, issue: Row) -> bool:
        """Says whether the unit of an issue or pull request is there for the caller."""
        return self.mode >= access.READ and bool(self.repo["has_pulls" if issue["is_pull"] else "has_issues"])

    def require_repo_admin(self) -> None:
        """Refuses everybody but administrators of the repository or the site."""
        if self.mode < access.ADMIN and not self.caller.site_admin:
            raise ApiError(403, "user should be an owner or a collaborator with admin write of a repository")


Verb = Callable[[Call], Response]


@dataclass(frozen=True)
class Route:
    """One verb with what must hold before it runs."""

    method: str
    path: re.Pattern[str]
    category: str
    verb: Verb
    token: bool
    archived: bool  # refused with 423 in an archived repository
    unit: str  # "issues", "pulls", "either" or ""
    required: tuple[str, ...]  # fields of the form that must not be empty


class Routes:
    """A table of routes that modules fill with a decorator."""

    def __init__(self) -> None:
        self.table: list[Route] = []

    def __call__(
        self, method: str, path: str, category: str, *, token: bool = False, archived: bool = False, unit: str = "",
        required: tuple[str, ...] = (),
    ) -> Callable[[Verb], Verb]:  # fmt: skip
        """Adds the decorated function as the verb for this method and path."""

        def add(verb: Verb) -> Verb:
            pattern = re.compile(f"^{PREFIX}{path}$")
            self.table.append(Route(method, pattern, category, verb, token, archived, unit, required))
            return verb

        return add


def answer(api: Api, routes: list[Route], request: Request) -> Response:
    """Answers one API request, with its errors in Gitea's form."""
    try:
        return _answer(api, routes, request)
    except ApiError as error:
        if error.status == HTTPStatus.MOVED_PERMANENTLY:
            return Response(301, b"", [("Location", error.message)])
        return as_error(error, api.views.base_url)


def _answer(api: Api, routes: list[Route], request: Request) -> Response:
    caller = access.identify(api.store, request)
    found = [(route, match) for route in routes if (match := route.path.match(request.path))]
    chosen = next(((route, match) for route, match in found if route.method == request.method), None)
    if chosen is None:
        return plain(405 if found else 404, "" if found else "404 page not found\n")
    route, match = chosen
    caller.require_scope(route.category, request.method)
    values = {name: unquote(value) for name, value in match.groupdict().items()}
    call = Call(api, request, caller, values)
    if "owner" in call.values:
        _assign_repo(call)
        _require_unit(call, route.unit)
    if route.token and not caller.signed:
        raise ApiError(401, "token is required")
    if route.archived and call.repo["archived"]:
        raise ApiError(423, f"{api.views.full_name(call.repo)} is archived")
    if request.method in {"POST", "PATCH", "PUT", "DELETE"}:
        call.form = _form(request, route)
    return route.verb(call)


def _assign_repo(call: Call) -> None:
    store, owner_name, name = call.api.store, call.values["owner"], call.values["name"]
    owner = access.account_named(store, owner_name)
    if owner is None:
        raise not_found(f"user redirect does not exist [name: {owner_name.lower()}]", message="GetUserByName")
    repo = store.one("SELECT * FROM repo WHERE owner_id=? AND lower_name=?", owner["id"], name.lower())
    if repo is None:
        sql = "SELECT repo_id FROM redirect WHERE owner_id=? AND lower_name=?"
        moved = store.one(sql, owner["id"], name.lower())
        if moved is None:
            raise not_found()
        target = call.api.views.full_name(store.get("repo", moved["repo_id"]))
        raise ApiError(301, call.request.target.replace(f"{owner_name}/{name}", target, 1))
    call.repo, call.mode = repo, access.mode(store, repo, call.caller.account)
    if call.mode < access.READ:
        raise not_found()


def _require_unit(call: Call, unit: str) -> None:
    issues, pulls = bool(call.repo["has_issues"]), bool(call.repo["has_pulls"])
    if {"issues": issues, "pulls": pulls, "either": issues or pulls}.get(unit, True):
        return
    raise not_found()


def _form(request: Request, route: Route) -> Form:
    """Reads the JSON body; a missing required field is Gitea's 422."""
    try:
        form = json.loads(request.body) if request.body.strip() else {}
    except ValueError as error:
        raise ApiError(422, f"[]: {error}") from error
    if not isinstance(form, dict):
        raise ApiError(422, "[]: json: cannot unmarshal array into Go value")
    for name in route.required:
        if not form.get(name):
            raise ApiError(422, f"[{name.title()}]: Required")
    return form


def created_before_since(request: Request) -> tuple[int | None, int | None]:
    """Returns (since, before) in whole seconds; what cannot be read is 422."""
    found: list[int | None] = []
    for name in ("since", "before"):
        text = request.params.get(name, "").strip().replace(" ", "+")
        try:
            found.append(int(datetime.fromisoformat(text).timestamp()) if text else None)
        except ValueError as error:
            words = f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse "{text}" as "2006"'
            raise ApiError(422, words) from error
    return found[0], found[1]
