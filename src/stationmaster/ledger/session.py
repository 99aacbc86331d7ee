"""What the kernel asks of one open database transaction; SQLite and PostgreSQL each have their own.

A session translates the driver's errors into the eight kinds and never shows a stored value in a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from stationmaster.command import Cmd
from stationmaster.ledger.queries import Dialect, Query
from stationmaster.machine import Machine

Row = dict[str, Any]
Refs = Mapping[str, str | tuple[str, ...]]


class EventRow(NamedTuple):
    """A row of `event` without its seq, in the order of its columns."""

    action: str
    kind: str
    intent_seq: int | None
    outcome: str | None
    data: str
    at: int
    command: int


class Session(Protocol):
    """One connection inside one transaction."""

    @property
    def dialect(self) -> Dialect:
        """Names the database."""
        ...

    def lock(self, name: str) -> None:
        """Waits for any other transaction that holds the same name; held until the end of this one."""
        ...

    def now(self) -> int:
        """Returns the time that leases and history use."""
        ...

    def one(self, query: Query, params: Mapping[str, Any]) -> Row | None:
        """Returns the first row, or None."""
        ...

    def many(self, query: Query, params: Mapping[str, Any]) -> list[Row]:
        """Returns every row."""
        ...

    def run(self, query: Query, params: Mapping[str, Any]) -> int:
        """Runs a statement; returns how many rows it touched."""
        ...

    def open_command(self, cmd: Cmd, args_hash: str, at: int) -> int:
        """Writes the command row and its refs; returns its seq."""
        ...

    def seal(self, seq: int) -> None:
        """Closes the command: nothing can be written under it any more."""
        ...

    def add_refs(self, refs: Refs, seq: int) -> None:
        """Writes the correlation ids of a command or event."""
        ...

    def add_event(self, event: EventRow) -> int:
        """Writes one event; returns its seq."""
        ...

    def birth(self, machine: Machine, row: Mapping[str, Any]) -> None:
        """Inserts a guarded row; `row` has id, state, verb, command and the columns."""
        ...

    def state(self, machine: Machine, entity: str) -> tuple[str, int] | None:
        """Returns state and rev of a guarded row, or None."""
        ...

    def move(self, machine: Machine, entity: str, rev: int, row: Mapping[str, Any]) -> bool:
        """Moves a guarded row that is still at `rev`; `row` has state, verb, command and the columns."""
        ...


def pairs(refs: Refs) -> list[tuple[str, str]]:
    """Returns each (kind, value) once."""
    return [
        (kind, value)
        for kind, values in refs.items()
        for value in ((values,) if isinstance(values, str) else dict.fromkeys(values))
    ]
