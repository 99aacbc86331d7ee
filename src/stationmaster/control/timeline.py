"""What happens to a task, in order, for whoever watches: moves, comments, branches, trouble, what the agent does.

It reads the history and the runs' events and writes nothing. A cursor goes on where the last page ended.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from stationmaster import canonical
from stationmaster.clock import iso
from stationmaster.control.audit import action_of, carrying
from stationmaster.control.commands import Answer, Input, Site, Text, command
from stationmaster.control.grants import Read
from stationmaster.control.views import Q, task_state
from stationmaster.errors import Invalid
from stationmaster.gitea.machine import TASK
from stationmaster.ledger import history
from stationmaster.ledger.history import Entry
from stationmaster.ledger.tx import Reader

# Where a task stays until a person does something.
RESTING = TASK.terminal | {"waiting_user", "blocked_workspace"}

_PAGE = 200
_CURSOR = re.compile(r"(\d{1,18})~([A-Za-z0-9_-]{0,100})~(\d{1,18})", re.ASCII)
_THINGS = {"gitea_task": "state", "gitea_comment": "comment", "gitea_branch": "branch", "run": "turn"}

Row = dict[str, Any]


class Watched(Input, frozen=True, kw_only=True):
    """A task, and from where on it is watched."""

    task_id: Annotated[Text, msgspec.Meta(description="The task's id")]
    cursor: Annotated[Text | None, msgspec.Meta(description="`nextCursor` of the page before")] = None


@command("task.events", "GET", "/api/gitea-workflow/tasks/{taskId}/events")
async def timeline(site: Site, grant: Read, given: Watched) -> Answer:
    """Tells what happened to a task since a cursor, and whether it rests; `task watch` shows it live."""
    _ = grant
    return Answer(await site.port.read(page, given.task_id, given.cursor))


def page(reader: Reader, task_id: str, cursor: str | None) -> Row:
    """Returns what happened after a cursor, oldest first, with the task's present state and the next cursor.

    `more` tells that the page was full.
    """
    state = task_state(reader, task_id)
    seq, run_id, number = _position(cursor)
    entries = carrying(reader, "taskId", task_id, after=seq, limit=_PAGE)
    # Above the horizon a number may still appear between two that are there.
    entries = [entry for entry in entries if entry.seq <= history.horizon(reader)]
    done = reader.many(Q.run_events, task_id=task_id, run_id=run_id, seq=number, limit=_PAGE)
    told = [said for entry in entries if (said := _told(entry, task_id)) is not None]
    told += [
        {"at": iso(row["at"]), "kind": "agent", "turnRef": row["run_id"], "event": canonical.load(row["body"])}
        for row in done
    ]
    seq = entries[-1].seq if entries else seq
    run_id, number = (done[-1]["run_id"], done[-1]["seq"]) if done else (run_id, number)
    return {
        "taskId": task_id,
        "state": state,
        "resting": state in RESTING,
        "events": sorted(told, key=lambda row: str(row["at"])),
        "more": _PAGE in (len(entries), len(done)),
        "nextCursor": f"{seq}~{run_id}~{number}",
    }


def _told(entry: Entry, task_id: str) -> Row | None:
    said: Row = {"at": iso(entry.at), "seq": entry.seq, "actor": entry.actor}
    if entry.kind == "move":
        kind = _THINGS.get(entry.machine or "")
        if kind is None or (kind == "state" and entry.entity != task_id):
            return None
        moved = {"entity": entry.entity, "fromState": entry.from_state or None, "toState": entry.to_state}
        return said | {"kind": kind, "verb": entry.name} | moved
    data = entry.data or {}
    code = entry.outcome if entry.kind == "refusal" else data.get("code")
    if code is None and "reason" not in data:
        return None
    why = {"code": code, "reason": data.get("reason"), "sentence": data.get("sentence")}
    return said | {"kind": "event", "action": action_of(entry), "outcome": entry.outcome} | why


def _position(cursor: str | None) -> tuple[int, str, int]:
    if cursor is None:
        return 0, "", 0
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise Invalid("cursor is not one of ours.", code="invalid_request", hint="Use `nextCursor` as it was given.")
    return int(found[1]), found[2], int(found[3])
