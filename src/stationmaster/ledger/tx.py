"""What a body may do: a `Reader` reads, a `HotTx` also writes hot tables, a `Tx` writes under its command.

None of them commits; the engine that made them does, after the body has returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stationmaster import canonical, redact
from stationmaster.command import Cmd
from stationmaster.errors import Bug, NotFound, Stale
from stationmaster.ledger import queries
from stationmaster.ledger.guards import HISTORY
from stationmaster.ledger.queries import Query
from stationmaster.ledger.session import EventRow, Refs, Row, Session
from stationmaster.machine import UNBORN, Machine

MOST_ROWS = 200
_Q = queries.load("stationmaster.ledger")
_KERNEL_COLUMNS = frozenset({"id", "state", "rev", "verb", "command"})


@dataclass(frozen=True, slots=True)
class Doors:
    """Which tables go through which door, for one ledger."""

    guarded: frozenset[str]
    hot: frozenset[str]
    # Neither is written by a statement: moves, events and triggers do.
    closed: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "closed", self.guarded | HISTORY)


class Reader:
    """Reads one consistent state; `now` is the time at which it was opened."""

    __slots__ = ("_doors", "_session", "now")

    def __init__(self, session: Session, doors: Doors) -> None:
        self._session = session
        self._doors = doors
        self.now: int = session.now()

    def one(self, q: Query, /, **params: Any) -> Row | None:
        """Returns the first row of a query as a dict, or None."""
        if q.table is not None:
            self._may_write(q.table, q)
        return self._session.one(q, params)

    def many(self, q: Query, /, **params: Any) -> list[Row]:
        """Returns every row of a query as dicts."""
        if q.table is not None:
            self._may_write(q.table, q)
        return self._session.many(q, params)

    def _may_write(self, table: str, q: Query) -> None:
        raise Bug(f"BUG: {q} writes {table} through a reader.")


class HotTx(Reader):
    """Also writes the hot tables (K4): no command row, no journal."""

    __slots__ = ()

    def run(self, q: Query, /, **params: Any) -> int:
        """Runs a statement on a hot table; returns how many rows it touched."""
        if q.table is None:
            raise Bug(f"BUG: {q} writes nothing.")
        self._may_write(q.table, q)
        return self._session.run(q, params)

    def _may_write(self, table: str, q: Query) -> None:
        if table not in self._doors.hot:
            raise Bug(f"BUG: {q} writes {table}, which is not a hot table.")


class Tx(HotTx):
    """One command: every write opens its row first, and the database refuses any write without it."""

    __slots__ = ("_args_hash", "_rows", "_seq", "cmd", "receipt_status")

    def __init__(self, session: Session, doors: Doors, cmd: Cmd, args_hash: str) -> None:
        super().__init__(session, doors)
        self.cmd = cmd
        self.receipt_status = "done"
        self._args_hash = args_hash
        self._seq = 0
        self._rows = 0

    @property
    def seq(self) -> int:
        """The seq of the command row; opens it when this is the first need of it."""
        if not self._seq:
            self._seq = self._session.open_command(self.cmd, self._args_hash, self.now)
        return self._seq

    @property
    def opened(self) -> bool:
        """Tells whether anything was written."""
        return bool(self._seq)

    def run(self, q: Query, /, **params: Any) -> int:
        """Runs a statement on any table that is neither guarded nor history; returns how many rows it touched."""
        touched = super().run(q, **params)
        self._count(touched)
        return touched

    def born(self, m: Machine, id: str, verb: str, /, **cols: Any) -> None:  # noqa: A002 - the column's name
        """Inserts a guarded row by a birth of its machine; raises Stale when its id or a unique key is taken."""
        state = m.target(UNBORN, verb)
        self._check(m, cols)
        self._session.birth(m, {"id": id, "state": state, "rev": 0, "verb": verb, "command": self.seq, **cols})
        self._count(1)

    def move(self, m: Machine, id: str, verb: str, /, *, rev: int, **cols: Any) -> str:  # noqa: A002 - likewise
        """Moves a guarded row that is at `rev` and returns its new state (K3).

        Raises NotFound when there is no such row, Stale (`version_conflict`) when it is past `rev`, and Illegal when
        the machine has no such edge.
        """
        here = self._session.state(m, id)
        if here is None:
            raise NotFound(f"There is no {m.table} {id}.", code="not_found", machine=m.table, entity=id)
        if here[1] != rev:
            raise _past(m, id, rev)
        state = m.target(here[0], verb)
        if not cols.keys() <= m.moved:
            raise Bug(f"BUG: {m.table}: {sorted(cols.keys() - m.moved)} do not change in a move.")
        row = {"state": state, "verb": verb, "command": self.seq, **cols}
        if not self._session.move(m, id, rev, row):
            raise _past(m, id, rev)
        self._count(1)
        return state

    def event(self, action: str, /, *, refs: Refs | None = None, **data: Any) -> int:
        """Writes an observation; returns its seq."""
        return self._event(action, "observation", None, None, refs, data)

    def refusal(self, action: str, code: str, /, *, refs: Refs | None = None, **data: Any) -> int:
        """Writes that something was refused, and why; returns its seq."""
        return self._event(action, "refusal", None, code, refs, data)

    def alone(self, key: str, /) -> None:
        """Waits until no other command holds `key` and keeps it until the commit; what is read next is up to date."""
        self._session.lock(key)

    def intent(self, action: str, /, *, subject: str, refs: Refs | None = None, **data: Any) -> int:
        """Writes what is about to be done outside (K7); returns the seq that its result will name.

        The intent stays in `open_intent` until its result; recovery finds it there by `subject` or action.
        """
        seq = self._event(f"{action}.intent", "intent", None, None, refs, data)
        row = {"seq": seq, "action": action, "subject": subject, "command": self.seq, "at": self.now}
        self._session.run(_Q.add_open_intent, row)
        return seq

    def result(self, intent: int, outcome: str, /, *, refs: Refs | None = None, **data: Any) -> int:
        """Writes the outcome of an intent and closes it; returns its seq.

        After `unknown` the known outcome may still follow; a second known one is refused by the database.
        """
        found = self._session.one(_Q.intent_action, {"seq": intent})
        if found is None:
            raise Bug(f"BUG: there is no intent {intent}.")
        action = found["action"].removesuffix(".intent")
        seq = self._event(f"{action}.result", "result", intent, outcome, refs, data)
        self._session.run(_Q.close_intent, {"seq": intent})
        return seq

    def _event(
        self, action: str, kind: str, intent: int | None, outcome: str | None, refs: Refs | None, data: Row
    ) -> int:
        text = canonical.dump(redact_values(data))
        seq = self._session.add_event(EventRow(action, kind, intent, outcome, text, self.now, self.seq))
        if refs:
            self._session.add_refs(refs, seq)
        return seq

    def _may_write(self, table: str, q: Query) -> None:
        if table in self._doors.closed:
            raise Bug(f"BUG: {q} writes {table}; only moves and events do.")
        _ = self.seq

    def _count(self, rows: int) -> None:
        self._rows += max(rows, 0)
        if self._rows > MOST_ROWS:
            raise Bug(f"BUG: {self.cmd.name} writes more than {MOST_ROWS} rows; use several commands with a cursor.")

    def _check(self, m: Machine, cols: Row) -> None:
        if m.table not in self._doors.guarded:
            raise Bug(f"BUG: {m.table} is no machine of this ledger.")
        if not _KERNEL_COLUMNS.isdisjoint(cols):
            raise Bug(f"BUG: {m.table}: {sorted(_KERNEL_COLUMNS & cols.keys())} are set by the kernel.")


def redact_values(value: Any) -> Any:
    """Returns plain data with every known secret masked in its texts."""
    if isinstance(value, str):
        return redact.clean(value)
    if isinstance(value, Mapping):
        return {str(key): redact_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact_values(inner) for inner in value]
    return value


def _past(m: Machine, entity: str, rev: int) -> Stale:
    return Stale(
        f"{m.table} {entity} is no longer at revision {rev}.",
        code="version_conflict",
        hint="Read it again and decide again.",
        machine=m.table,
        entity=entity,
    )
