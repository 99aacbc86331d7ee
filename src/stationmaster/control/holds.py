"""The commands that show limits: which tasks they keep back, what they allow, and what is used of that."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from stationmaster.clock import MICROS, iso
from stationmaster.control.commands import Answer, Input, Nothing, Site, command
from stationmaster.control.grants import Read
from stationmaster.control.look import Cursor, Limit
from stationmaster.errors import Invalid
from stationmaster.gitea import codes, limits
from stationmaster.gitea.limits import Kept, Used
from stationmaster.gitea.settings import LimitSettings
from stationmaster.ledger.tx import Reader

_API = "/api/gitea-workflow"
_CURSOR = re.compile(r"(\d{1,18})\.([A-Za-z0-9_-]{1,100})", re.ASCII)
_MOST_SHOWN = 20


class Holds(Input, frozen=True, kw_only=True):
    """Which holds to list."""

    cursor: Cursor = None
    limit: Limit = 50


@command("hold.list", "GET", f"{_API}/holds", cli="hold list")
async def every(site: Site, grant: Read, given: Holds) -> Answer:
    """Lists the queued tasks that a limit keeps back, first kept first, and until when."""
    _ = grant
    rows = await site.port.read(limits.holds, _position(given.cursor), given.limit)
    following = f"{rows[-1].since}.{rows[-1].task_id}" if len(rows) == given.limit else None
    return Answer({"holds": [_hold(row) for row in rows], "nextCursor": following})


@command("limits.show", "GET", f"{_API}/limits", cli="limits")
async def show(site: Site, grant: Read, given: Nothing) -> Answer:
    """Shows the limits (0 is none) and what was begun and used in the last hour and today, in UTC."""
    _ = grant, given
    allowed = LimitSettings() if site.gitea is None else site.gitea.limits
    others = {"limitsOfOthers": {each.instance_id: _wire(each.limits) for each in site.others}} if site.others else {}
    return Answer({"limits": _wire(allowed), **others, **await site.port.read(_used)})


def _used(reader: Reader) -> dict[str, Any]:
    today, hour = limits.day_of(reader.now), reader.now - limits.HOUR
    return {
        "lastHour": _spent(limits.used_since(reader, hour)),
        "today": _spent(limits.used_since(reader, today)),
        "todayByRepository": [
            {"repoKey": key} | _spent(used) for key, used in limits.used_by_repositories(reader, today, _MOST_SHOWN)
        ],
        "lastHourByAuthor": [
            {"author": author} | _spent(used) for author, used in limits.used_by_authors(reader, hour, _MOST_SHOWN)
        ],
    }


def _wire(allowed: LimitSettings) -> dict[str, Any]:
    return {_camel(name): value for name, value in dataclasses.asdict(allowed).items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def _spent(used: Used) -> dict[str, Any]:
    return {"turns": used.turns, "tokens": used.tokens, "wallSeconds": round(used.micros / MICROS, 3)}


def _hold(row: Kept) -> dict[str, Any]:
    return {
        "taskId": row.task_id,
        "resourceKey": row.resource_key,
        "author": row.author,
        "reason": row.reason,
        "message": codes.text(row.reason),
        "since": iso(row.since),
        "until": None if row.until_at is None else iso(row.until_at),
        "taskCreatedAt": iso(row.created_at),
    }


def _position(cursor: str | None) -> tuple[int, str]:
    if cursor is None:
        return 0, ""
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise Invalid("cursor is not one of ours.", code="invalid_request", hint="Use `nextCursor` as it was given.")
    return int(found[1]), found[2]
