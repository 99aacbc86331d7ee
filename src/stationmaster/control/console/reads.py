"""Read views of the console: what its pages show and no command tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stationmaster import canonical
from stationmaster.clock import MICROS
from stationmaster.control import audit, timeline, views
from stationmaster.control.proof import Proof
from stationmaster.gitea import standing
from stationmaster.ledger import queries
from stationmaster.ledger.tx import Reader

Q = queries.load("stationmaster.control.console", "reads.sql")

Row = dict[str, Any]

DAY = 86_400 * MICROS
_END = 2**63 - 1
_MOST_NEEDING = 20
_MOST_EVENTS = 120
_MOST_HISTORY = 1000


@dataclass(frozen=True, slots=True)
class Sought:
    """Which tasks a page lists; empty words do not narrow it."""

    words: str = ""
    state: str = ""
    repo_key: str = ""
    kind: str = ""
    number: int = 0
    author: str = ""
    since: int = 0
    until: int = _END
    before: tuple[int, str] = (_END, "")
    limit: int = 50


def tasks(reader: Reader, sought: Sought) -> list[Row]:
    """Returns tasks, newest first."""
    words = sought.words.lower()
    for sign in "!%_":
        words = words.replace(sign, f"!{sign}")
    return reader.many(
        Q.find_tasks,
        words=f"%{words}%" if words else "",
        state=sought.state,
        repo_key=sought.repo_key.lower(),
        kind=sought.kind,
        number=sought.number,
        author=sought.author.lower(),
        since=sought.since,
        until=sought.until,
        at=sought.before[0],
        id=sought.before[1],
        limit=sought.limit,
    )


def overview(reader: Reader) -> Row:
    """Returns what tells in a moment whether somebody has to do something."""
    oldest = reader.one(Q.oldest_due, now=reader.now)
    held = reader.one(Q.held, now=reader.now)
    lately = reader.many(Q.asked_lately, since=reader.now - DAY)
    return {
        **views.overview(reader),
        "now": reader.now,
        "needing": reader.many(Q.needing, since=reader.now - DAY, limit=_MOST_NEEDING),
        "oldestDue": None if oldest is None else oldest["at"],
        "held": 0 if held is None else held["n"],
        "hours": _hours(lately, reader.now),
    }


def _hours(lately: list[Row], now: int) -> list[Row]:
    """Counts the tasks of the last 24 hours by the hour, and how they stand now."""
    hour = 3600 * MICROS
    first = now - now % hour - 23 * hour
    counted = [{"at": first + at * hour, "good": 0, "bad": 0, "open": 0} for at in range(24)]
    for row in lately:
        place = (row["created_at"] - first) // hour
        if 0 <= place < len(counted):
            counted[place][outcome(row["state"])] += 1
    return counted


def outcome(state: str) -> str:
    """Returns how a task came out: good, bad or open."""
    if state.startswith("succeeded"):
        return "good"
    return "bad" if state in {"failed", "failed_reply", "cancelled", "aborted"} else "open"


def task(reader: Reader, task_id: str) -> Row:
    """Returns everything that a task's page shows; raises NotFound."""
    shown = views.task(reader, task_id)
    stands = standing.of(reader, task_id)
    together = reader.many(Q.tasks_of_session, session_id=stands.session.id)
    events, _ = audit.page(reader, audit.of_task(task_id), 0, _MOST_HISTORY)
    proof = Proof()
    for event in events:
        proof.add(event)
    return {
        **shown,
        "now": reader.now,
        "waitsFor": stands.waits_for,
        "stops": stands.stops and shown["task"]["state"] not in timeline.RESTING,
        "moves": reader.many(Q.moves, task_id=task_id),
        "proof": proof.lines(),
        "history": events,
        "agent": _agent(reader, task_id),
        "others": [each for each in together if each["id"] != task_id],
        "newest": together[0]["id"] == task_id,
        "repository": stands.repository,
        "row": stands.session,
    }


def _agent(reader: Reader, task_id: str) -> list[Row]:
    rows = reader.many(Q.agent_events, task_id=task_id, limit=_MOST_EVENTS)
    return [
        {"at": row["at"], "turnRef": row["run_id"], "seq": row["seq"], "event": canonical.load(row["body"])}
        for row in reversed(rows)
    ]


def health(reader: Reader) -> Row:
    """Returns who works here and how far the forge was read."""
    return {"now": reader.now, "workers": reader.many(Q.workers), "watched": reader.many(Q.watched)}


def pulse(reader: Reader, task_id: str) -> str:
    """Returns a word that changes whenever something happened that a page may show."""
    newest = reader.one(Q.newest_command) or {}
    of_run = reader.one(Q.newest_event, task_id=task_id) or {} if task_id else {}
    return f"{newest.get('seq') or 0}.{of_run.get('seq') or 0}"
