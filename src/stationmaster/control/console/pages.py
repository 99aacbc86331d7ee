"""The pages that are read: each takes a frame, reads what it shows, and renders it. A task's own page stands apart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response, StreamingResponse

from stationmaster import canonical
from stationmaster.clock import MICROS
from stationmaster.control import audit as audits
from stationmaster.control import holds, look, readiness, views
from stationmaster.control.commands import Nothing
from stationmaster.control.console import pictures, reads, search, words
from stationmaster.control.console.frame import ROOT, Frame
from stationmaster.control.grants import Read
from stationmaster.errors import Bug, Invalid
from stationmaster.gitea import codes


def _grant(frame: Frame) -> Read:
    if frame.session is None:
        raise Bug("BUG: a page was made for nobody.")
    return frame.session.grant


async def overview(frame: Frame, *, problem: str | None = None, status: int = 200) -> Response:
    """Shows in a moment whether somebody has to do something."""
    port, t = frame.console.site.port, words.say(frame.language)
    shown = await port.read(reads.overview)
    refused = frame.console.standing().runs_refused
    picture = pictures.hours(
        shown["hours"],
        t("last_day"),
        lambda row: t("hour_of", at=_hour(row["at"]), good=row["good"], open=row["open"], bad=row["bad"]),
    )
    return frame.page(
        "overview.html",
        status=status,
        problem=problem,
        shown=shown,
        refused=refused,
        picture=picture,
        states=search.STATES,
        pulse=await port.read(reads.pulse, ""),
        needs=len(shown["needing"]) + bool(refused) + bool(shown["globalPaused"]),
    )


async def tasks(frame: Frame) -> Response:
    """Lists tasks by filters that stay in the address."""
    query = frame.request.query_params
    problem, rows = None, []
    try:
        sought = search.tasks(query)
        rows = await frame.console.site.port.read(reads.tasks, sought)
    except Invalid as error:
        problem = str(error)
    last = rows[-1] if len(rows) == search.PAGE else None
    return frame.page(
        "tasks.html",
        status=400 if problem else 200,
        problem=problem,
        rows=rows,
        states=search.STATES,
        query={name: query.get(name, "") for name in ("q", "state", "repo", "thread", "author", "since", "until")},
        older="" if last is None else search.address(query, before=f"{last['created_at']}.{last['id']}"),
        pulse=await frame.console.site.port.read(reads.pulse, ""),
    )


async def audit(frame: Frame) -> Response:
    """Searches the audit; `audit.ndjson` gives everything that is found."""
    query, site = frame.request.query_params, frame.console.site
    names = ("taskId", "repoKey", "resourceKey", "deliveryId", "turnId", "commentId", "requestId", "actor", "action",
             "since", "until")  # fmt: skip
    given = {name: value.strip() for name in names if (value := query.get(name, "").strip())}
    problem, events, following = None, [], None
    try:
        wanted = search.inputs(audits.Query, given | ({"cursor": query["cursor"]} if query.get("cursor") else {}))
        answer = await audits.audit.run(site, _grant(frame), wanted)
        events, following = answer.body["events"], answer.body["nextCursor"]
    except Invalid as error:
        problem = str(error)
    return frame.page(
        "audit.html",
        status=400 if problem else 200,
        problem=problem,
        events=[{**each, "details": canonical.dump(each["metadata"])} for each in events],
        names=names,
        given={name: query.get(name, "") for name in names},
        following="" if following is None or not events else search.address(query, cursor=following),
        export=f"{ROOT}/audit.ndjson?{search.address(query, cursor='')}",
    )


async def export(frame: Frame) -> Response:
    """Streams everything that an audit search finds, one event a line."""
    given = {name: value for name, value in frame.request.query_params.items() if value}
    answer = await audits.audit.run(
        frame.console.site, _grant(frame), search.inputs(audits.Query, given | {"format": "ndjson"})
    )

    async def lines() -> AsyncIterator[str]:
        async for event in answer.body:
            yield canonical.dump(event) + "\n"

    headers = {"Content-Disposition": 'attachment; filename="audit.ndjson"', "Cache-Control": "no-store"}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


async def repositories(frame: Frame, *, problem: str | None = None, status: int = 200) -> Response:
    """Lists what the product knows and what the bot sees."""
    given = look.Repositories(cursor=frame.request.query_params.get("cursor") or None, limit=100)
    answer = await look.repositories.run(frame.console.site, _grant(frame), given)
    health = await frame.console.site.port.read(reads.health)
    return frame.page(
        "repositories.html",
        status=status,
        problem=problem,
        rows=answer.body["repositories"],
        following=answer.body["nextCursor"],
        watched=health["watched"],
        pulse=await frame.console.site.port.read(reads.pulse, ""),
    )


async def limits(frame: Frame, *, problem: str | None = None, status: int = 200) -> Response:
    """Shows what limits keep back, and what is used of what is allowed."""
    site = frame.console.site
    cursor = frame.request.query_params.get("cursor") or None
    kept = await holds.every.run(site, _grant(frame), holds.Holds(cursor=cursor))
    used = await holds.show.run(site, _grant(frame), Nothing())
    return frame.page(
        "limits.html",
        status=status,
        problem=problem,
        holds=[{**row, "message": codes.text(row["reason"], frame.language)} for row in kept.body["holds"]],
        following=kept.body["nextCursor"],
        used={"limitsOfOthers": {}, **used.body},
        pulse=await site.port.read(reads.pulse, ""),
    )


async def health(frame: Frame) -> Response:
    """Shows how the parts stand and who works here."""
    console = frame.console
    stands, _ = await readiness.told(console.site.port, stopping=not console.ready(), standing=console.standing)
    return frame.page(
        "health.html",
        stands=stands,
        shown=await console.site.port.read(reads.health),
        reading=(await console.site.port.read(views.overview))["catchup"],
        leases=(await console.site.port.read(views.overview))["activeLeases"],
        pulse=await console.site.port.read(reads.pulse, ""),
    )


async def settings(frame: Frame) -> Response:
    """Shows the effective configuration; secrets are references."""
    return frame.page("settings.html", rows=list(_flat(frame.console.settings())))


# --- what a page needs ------------------------------------------------------------------------------------------------


def _hour(at: int) -> str:
    return f"{datetime.fromtimestamp(at / MICROS, UTC):%H:%M}"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", canonical.dump(value)
