"""Reads what is true now, for one scrape: one snapshot, every query bounded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stationmaster.clock import MICROS
from stationmaster.gitea.machine import TASK
from stationmaster.ledger.tx import Reader
from stationmaster.ops.metrics.follow import Q

OPEN = tuple(sorted(TASK.states - TASK.terminal))


@dataclass(frozen=True, slots=True)
class Seen:
    """What one snapshot shows; ages in seconds, 0 where there is nothing to be old."""

    tasks: dict[str, int]
    queue_age_s: float
    held: dict[str, int]
    paused: bool
    intents: int
    intent_age_s: float
    comments: int
    comment_age_s: float
    leases: int
    database_bytes: int
    reading_age_s: dict[str, float] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)


def now(reader: Reader) -> Seen:
    """Reads everything that a scrape shows of the ledger."""
    at = reader.now
    intents, comments = _one(reader, Q.intents), _one(reader, Q.open_comments)
    forges = reader.many(Q.forges)
    due = [_one(reader, query, now=at)["since"] for query in (Q.waiting, Q.retrying)]
    return Seen(
        tasks={state: int(_one(reader, Q.in_state, state=state)["n"]) for state in OPEN},
        queue_age_s=max(_age(since, at) for since in due),
        held={row["reason"]: int(row["n"]) for row in reader.many(Q.held, now=at)},
        paused=reader.one(Q.paused) is not None,
        intents=int(intents["n"]),
        intent_age_s=_age(intents["since"], at),
        comments=int(comments["n"]),
        comment_age_s=_age(comments["since"], at),
        leases=int(_one(reader, Q.leases, now=at)["n"]),
        database_bytes=int(_one(reader, Q.bytes)["bytes"]),
        # A forge that was never read through is as old as the ledger's knowledge of it: told by its absence.
        reading_age_s={row["instance_id"]: _age(row["round_at"], at) for row in forges if row["round_at"] is not None},
        unread={row["instance_id"]: int(row["unread"]) for row in forges},
        looks={row["instance_id"]: int(row["looks"]) for row in forges},
    )


def _one(reader: Reader, query: Any, **params: Any) -> dict[str, Any]:
    return reader.one(query, **params) or {}


def _age(since: int | None, at: int) -> float:
    return 0.0 if since is None else max(at - since, 0) / MICROS
