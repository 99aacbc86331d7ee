"""Makes or mends webhooks at the forge with an administrator's token, which is used here and kept nowhere.

A hook is known by its address: there is one after this, however often it runs and wherever it broke off. The forge
never shows a hook's secret and cannot change it, so a secret that is new here needs a new hook; the old one goes then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from stationmaster import faults
from stationmaster.errors import Denied, NotFound, Unavailable
from stationmaster.ops.init.given import Given

EVENTS = ("issue_comment", "pull_request_comment", "issues_only", "pull_request_only", "pull_request_review")
_SITE = "/admin/hooks"
_TIMEOUT_S = 30.0
_PAGE = 50
_MOST_PAGES = 20


@dataclass(frozen=True, slots=True)
class Made:
    """What became of one place's hook: `made`, `mended` or `kept`."""

    place: str
    how: str
    id: int


def ensure(given: Given, secret: str, *, fresh: bool) -> list[Made]:
    """Sees to it that every place has the one hook; `fresh` tells that no hook can have this secret yet.

    Raises Denied, NotFound or Unavailable with what the forge said.
    """
    headers = {"Authorization": f"token {given.admin_token}"}
    api = f"{given.forge_url.rstrip('/')}/api/v1"
    with httpx.Client(base_url=api, headers=headers, timeout=_TIMEOUT_S, trust_env=False) as http:
        return [_one(http, place, path, given, secret, fresh=fresh) for place, path in _places(given)]


def _places(given: Given) -> list[tuple[str, str]]:
    places = [(repo, f"/repos/{'/'.join(map(quote, repo.split('/')))}/hooks") for repo in given.repos]
    places += [(org, f"/orgs/{quote(org, safe='')}/hooks") for org in given.orgs]
    return [*places, ("the whole forge", _SITE)] if given.everywhere else places


def _one(http: httpx.Client, place: str, path: str, given: Given, secret: str, *, fresh: bool) -> Made:
    there = [hook for hook in _listed(http, place, path) if _address(hook) == given.hook_url]
    if there and not fresh:
        first = there[0]
        good = first.get("active") and set(EVENTS) <= _told(first)
        if not good:
            # Without events they would become pushes, so all of it is said again.
            _call(http, place, "PATCH", f"{path}/{first['id']}", {"active": True, "events": list(EVENTS)})
        _remove(http, place, path, there[1:])
        return Made(place, "kept" if good else "mended", int(first["id"]))
    made = _create(http, place, path, given, secret, {int(hook["id"]) for hook in there})
    faults.point("init.hook_made")
    _remove(http, place, path, there)
    return Made(place, "made", made)


def _create(http: httpx.Client, place: str, path: str, given: Given, secret: str, known: set[int]) -> int:
    config = {"url": given.hook_url, "content_type": "json", "secret": secret}
    if path == _SITE:
        # Otherwise it would be a pattern for repositories to come, and hear of nothing itself.
        config["is_system_webhook"] = "true"
    content = {"type": "gitea", "active": True, "events": list(EVENTS), "config": config}
    try:
        return int(_call(http, place, "POST", path, content)["id"])
    except Unavailable:
        # Perhaps it was made all the same: it is looked for, never made twice.
        there = {int(hook["id"]) for hook in _listed(http, place, path) if _address(hook) == given.hook_url} - known
        if not there:
            raise
        return min(there)


def _remove(http: httpx.Client, place: str, path: str, hooks: list[dict[str, Any]]) -> None:
    for hook in hooks:
        _call(http, place, "DELETE", f"{path}/{hook['id']}")


def _listed(http: httpx.Client, place: str, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for page in range(1, _MOST_PAGES + 1):
        rows = _call(http, place, "GET", f"{path}?page={page}&limit={_PAGE}")
        found += rows
        if len(rows) < _PAGE:
            break
    return found


def _address(hook: dict[str, Any]) -> str:
    return str((hook.get("config") or {}).get("url", ""))


def _told(hook: dict[str, Any]) -> set[str]:
    """Returns the events of a hook; the forge names two of them by the group that they stand for."""
    names = set(map(str, hook.get("events") or ()))
    return names | {f"{group}_only" for group in ("issues", "pull_request") if group in names}


def _call(http: httpx.Client, place: str, method: str, path: str, content: dict[str, Any] | None = None) -> Any:
    try:
        answer = http.request(method, path, json=content)
    except httpx.HTTPError as error:
        raise Unavailable(
            f"The forge did not answer: {type(error).__name__}.", code="forge_unreachable", hint="Run init again."
        ) from None
    if answer.status_code in {401, 403}:
        raise Denied(
            f"The forge does not let this token manage the webhooks of {place}.",
            code="forge_denied",
            hint="Use the token of somebody who administers it, with the scope write:repository (write:admin for all).",
        )
    if answer.status_code == httpx.codes.NOT_FOUND:
        raise NotFound(
            f"The forge does not show {place} to this token.", code="forge_not_found", hint="Check the name."
        )
    if not answer.is_success:
        raise Unavailable(
            f"The forge answered {answer.status_code} about the webhooks of {place}.",
            code="forge_error",
            hint="Run init again.",
        )
    return answer.json() if answer.content else None
