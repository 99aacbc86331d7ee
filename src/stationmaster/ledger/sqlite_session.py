"""One SQLite connection as the kernel uses it: savepoints, statements, history numbers, and errors translated."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, NoReturn

from stationmaster.clock import Clock
from stationmaster.command import Cmd
from stationmaster.errors import Bug, Stale, StationmasterError, Unavailable
from stationmaster.ledger.queries import Dialect, Query
from stationmaster.ledger.session import EventRow, Refs, Row, pairs
from stationmaster.ledger.sqlite_guards import NEXT, is_unique_refusal
from stationmaster.machine import Machine

_TAKEN = frozenset(
    {sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_ROWID}
)
# Primary result codes (the low byte) that tell of the store, not of the statement.
_STORE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)


class SqliteSession:
    """A connection inside a transaction that the engine opens and ends."""

    dialect: Dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self.connection = connection
        self._clock = clock
        self._columns: dict[Query, tuple[str, ...]] = {}
        self._texts: dict[tuple[str, ...], str] = {}
        # The next history number while it is known: only this connection can write during its transaction.
        self._next = 0
        self._ended = False
        self._refused = False

    def lock(self, name: str) -> None:
        """Does nothing: one writer is lock enough."""

    def now(self) -> int:
        """Returns the clock's time."""
        return self._clock.now()

    def begin(self) -> None:
        """Opens the transaction of a group and takes the write lock."""
        self._next = 0
        self._ended = False
        self._refused = False
        self._do("BEGIN IMMEDIATE")

    def begin_read(self) -> None:
        """Opens a snapshot."""
        self._ended = False
        self._refused = False
        self._do("BEGIN")

    def commit(self) -> None:
        """Makes the group durable."""
        self._alive()
        self._do("COMMIT")

    def abandon(self) -> None:
        """Leaves the transaction behind, whatever state it is in."""
        if self.connection.in_transaction:
            try:
                self.connection.execute("ROLLBACK")
            except sqlite3.Error:
                return

    def savepoint(self) -> None:
        """Begins one job."""
        self._refused = False
        self._alive()
        self._do("SAVEPOINT job")

    def release(self) -> None:
        """Keeps what the job wrote."""
        self._alive()
        self._do("RELEASE job")

    def rollback_to(self) -> None:
        """Undoes what the job wrote; raises Unavailable when SQLite has already undone the whole group."""
        self._refused = False
        self._alive()
        self._next = 0
        self._do("ROLLBACK TO job")

    def one(self, query: Query, params: Mapping[str, Any]) -> Row | None:
        """Returns the first row, or None."""
        rows = self.many(query, params)
        return rows[0] if rows else None

    def many(self, query: Query, params: Mapping[str, Any]) -> list[Row]:
        """Returns every row."""
        cursor = self._execute(query, params)
        try:
            rows = cursor.fetchall()
        except sqlite3.Error as error:
            self._refuse(error, query.name)
        if not rows:
            return []
        columns = self._columns.get(query)
        if columns is None:
            columns = self._columns[query] = tuple(column[0] for column in cursor.description)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def run(self, query: Query, params: Mapping[str, Any]) -> int:
        """Runs a statement; returns how many rows it touched."""
        return self._execute(query, params).rowcount

    def open_command(self, cmd: Cmd, args_hash: str, at: int) -> int:
        """Writes the command row and its refs; returns its seq."""
        seq = self._take()
        row = (seq, cmd.name, cmd.actor, cmd.cause, cmd.dedupe, args_hash, at)
        self._text("INSERT INTO command VALUES (?, ?, ?, ?, ?, ?, ?, 0, NULL, NULL)", row, "open_command")
        self.add_refs(cmd.refs, seq)
        return seq

    def add_refs(self, refs: Refs, seq: int) -> None:
        """Writes the correlation ids of a command or event."""
        given = pairs(refs)
        if given:
            # One statement for all: each gives up the interpreter's lock, and the event loop waits to take it.
            text = "INSERT INTO ref VALUES (?, ?, ?)" + ", (?, ?, ?)" * (len(given) - 1)
            self._text(text, tuple(part for pair in given for part in (*pair, seq)), "ref")

    def seal(self, seq: int) -> None:
        """Closes the command."""
        self._text("UPDATE command SET sealed = 1 WHERE seq = ?", (seq,), "seal")

    def add_event(self, event: EventRow) -> int:
        """Writes one event; returns its seq."""
        seq = self._take()
        self._text("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (seq, *event), "event")
        return seq

    def birth(self, machine: Machine, row: Mapping[str, Any]) -> None:
        """Inserts a guarded row; its trigger writes the journal."""
        names = tuple(row)
        text = self._texts.get((machine.table, *names))
        if text is None:
            marks = ", ".join("?" * len(names))
            text = f"INSERT INTO {machine.table} ({', '.join(names)}) VALUES ({marks})"
            self._texts[(machine.table, *names)] = text
        self._text(text, tuple(row.values()), machine.table)
        self._told()

    def state(self, machine: Machine, entity: str) -> tuple[str, int] | None:
        """Returns state and rev of a guarded row, or None."""
        text = f"SELECT state, rev FROM {machine.table} WHERE id = ?"
        found: tuple[str, int] | None = self._text(text, (entity,), machine.table).fetchone()
        return found

    def move(self, machine: Machine, entity: str, rev: int, row: Mapping[str, Any]) -> bool:
        """Moves a guarded row that is still at `rev`; its trigger writes the journal."""
        names = tuple(row)
        text = self._texts.get(("", machine.table, *names))
        if text is None:
            sets = ", ".join(f"{name} = ?" for name in names)
            text = f"UPDATE {machine.table} SET {sets}, rev = rev + 1 WHERE id = ? AND rev = ?"
            self._texts[("", machine.table, *names)] = text
        if self._text(text, (*row.values(), entity, rev), machine.table).rowcount == 1:
            self._told()
            return True
        return False

    def _take(self) -> int:
        if not self._next:
            self._next = int(self._text(f"SELECT {NEXT}", (), "next_seq").fetchone()[0])
        self._next += 1
        return self._next - 1

    def _told(self) -> None:
        # The trigger of a birth or move took one number.
        if self._next:
            self._next += 1

    def _execute(self, query: Query, params: Mapping[str, Any]) -> sqlite3.Cursor:
        if params.keys() != query.names:
            raise Bug(f"BUG: {query} takes {sorted(query.names)}, not {sorted(params)}.")
        self._alive()
        try:
            return self.connection.execute(query.sqlite, params)
        except (sqlite3.Error, OverflowError) as error:
            self._refuse(error, query.name)

    def _text(self, sql: str, params: tuple[Any, ...], what: str) -> sqlite3.Cursor:
        self._alive()
        try:
            return self.connection.execute(sql, params)
        except (sqlite3.Error, OverflowError) as error:
            self._refuse(error, what)

    def _do(self, sql: str) -> None:
        try:
            self.connection.execute(sql)
        except sqlite3.Error as error:
            self._refuse(error, sql)

    def _alive(self) -> None:
        # Once SQLite has ended the transaction by itself, any further statement would commit on its own.
        if self._ended:
            raise Unavailable("The database gave up the transaction.", code="store_unavailable")
        # PostgreSQL ends a transaction at its first refused statement; a body that went on would work here alone.
        if self._refused:
            raise Bug("BUG: a body went on after a refused statement; look first, or use ON CONFLICT.")

    def _refuse(self, error: Exception, what: str) -> NoReturn:
        self._next = 0
        self._refused = True
        if not self.connection.in_transaction:
            self._ended = True
        raise translate(error, what) from error


def unavailable(error: BaseException) -> Unavailable:
    """Returns what a caller sees when the store failed under its command."""
    return Unavailable(
        f"The database could not keep the write ({getattr(error, 'sqlite_errorname', type(error).__name__)}).",
        code="store_unavailable",
        hint="Check disk space and the database file, then repeat the request.",
    )


def translate(error: Exception, what: str) -> StationmasterError:
    """Turns a driver's error into one of the eight kinds; SQLite's words name columns, never values."""
    code = getattr(error, "sqlite_errorcode", 0)
    if code in _TAKEN or (code == sqlite3.SQLITE_CONSTRAINT_TRIGGER and is_unique_refusal(str(error))):
        return Stale(
            f"{what}: another row holds this key ({error}).", code="already_exists", hint="Read it and decide again."
        )
    if code == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
        return Bug(f"BUG: the database refused {what}: {error}.", code="guard_refused")
    if code & 0xFF in _STORE:
        return unavailable(error)
    return Bug(f"BUG: {what}: {error}.", code="statement_failed")
