"""Reads of the history: what happened to X, in order, with who and why (K14).

Nothing here writes. Readers that page by `seq` stop at `horizon`: below it nothing can appear any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stationmaster import canonical
from stationmaster.ledger import queries
from stationmaster.ledger.session import Row
from stationmaster.ledger.tx import Reader

_Q = queries.load("stationmaster.ledger", "history.sql")


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the history.

    `kind` is command, move, intent, result, observation or refusal. `name` is the command's name, the event's action
    or the move's verb; a move has `machine`, `entity`, `rev`, `from_state` and `to_state`, an event its `data`, a
    result its `intent`, a result or refusal its `outcome`. Actor and cause are the command's.
    """

    seq: int
    at: int
    kind: str
    name: str
    command: int
    command_name: str
    actor: str
    cause: str
    machine: str | None = None
    entity: str | None = None
    rev: int | None = None
    from_state: str | None = None
    to_state: str | None = None
    intent: int | None = None
    outcome: str | None = None
    data: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class OpenIntent:
    """An intent whose outcome is not known yet."""

    seq: int
    action: str
    subject: str
    command: int
    at: int
    data: dict[str, Any]


def by_ref(reader: Reader, kind: str, value: str, *, after: int = 0, limit: int = 500) -> list[Entry]:
    """Returns commands, moves and events that carry a correlation id, in seq order, after a seq."""
    return _entries(reader.many(_Q.by_ref, kind=kind, value=value, after=after, limit=limit))


def page(reader: Reader, *, after: int = 0, limit: int = 500) -> list[Entry]:
    """Returns the whole history after a seq, in order, up to the horizon."""
    return _entries(reader.many(_Q.page, after=after, below=horizon(reader), limit=limit))


def by_entity(reader: Reader, machine: str, entity: str) -> list[Entry]:
    """Returns every move of one guarded row."""
    return _entries(reader.many(_Q.by_entity, machine=machine, entity=entity))


def by_command(reader: Reader, command: int) -> list[Entry]:
    """Returns a command with its moves and events."""
    return _entries(reader.many(_Q.by_command, command=command))


def by_action(reader: Reader, action: str, *, after: int = 0, limit: int = 500) -> list[Entry]:
    """Returns the events of one action, in seq order, after a seq."""
    return _entries(reader.many(_Q.by_action, action=action, after=after, limit=limit))


def entry(reader: Reader, seq: int) -> Entry | None:
    """Returns the row of the history with this seq, whichever table holds it."""
    found = _entries(reader.many(_Q.by_seq, seq=seq))
    return found[0] if found else None


def results(reader: Reader, intent: int) -> list[Entry]:
    """Returns the results of an intent; more than one only after an `unknown`."""
    return _entries(reader.many(_Q.results, intent=intent))


def refs(reader: Reader, seq: int) -> dict[str, list[str]]:
    """Returns the correlation ids of a command or event row."""
    found: dict[str, list[str]] = {}
    for row in reader.many(_Q.refs, seq=seq):
        found.setdefault(row["kind"], []).append(row["value"])
    return found


def open_intents(
    reader: Reader, *, subject: str | None = None, action: str | None = None, limit: int = 500
) -> list[OpenIntent]:
    """Returns intents without a result, oldest first: all, or those of a subject, an action, or both."""
    if subject is not None:
        rows = reader.many(_Q.open_by_subject, subject=subject, limit=limit)
    elif action is not None:
        rows = reader.many(_Q.open_by_action, action=action, limit=limit)
    else:
        rows = reader.many(_Q.open_all, limit=limit)
    return [
        OpenIntent(**{**row, "data": canonical.load(row["data"])}) for row in rows if action in (None, row["action"])
    ]


def horizon(reader: Reader) -> int:
    """Returns the highest seq below which no new row can appear."""
    row = reader.one(_Q.horizon)
    return 0 if row is None else int(row["seq"])


def _entries(rows: list[Row]) -> list[Entry]:
    return [Entry(**{**row, "data": None if row["data"] is None else canonical.load(row["data"])}) for row in rows]
