"""One PostgreSQL connection as the kernel uses it: statements, the driver's errors translated, few round trips."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from stationmaster.clock import Clock
from stationmaster.command import Cmd
from stationmaster.errors import Bug, Stale, StationmasterError, Unavailable
from stationmaster.ledger.postgres_guards import REFUSED
from stationmaster.ledger.queries import Dialect, Query
from stationmaster.ledger.session import EventRow, Refs, Row, pairs
from stationmaster.machine import Machine

_START = (
    "SELECT last_value AS base, CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) AS now FROM history_seq"
)
_BEGIN = f"BEGIN ISOLATION LEVEL READ COMMITTED; {_START}".encode()
_SNAPSHOT = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_START}".encode()
_AGAIN = (errors.SerializationFailure, errors.DeadlockDetected)
_SYNTAX_CLASS = "42"


class PostgresSession:
    """A connection in autocommit mode; `begin` and `commit` speak of the transaction themselves."""

    dialect: Dialect = "postgres"

    def __init__(self, connection: psycopg.Connection[Any], clock: Clock | None) -> None:
        self.connection = connection
        # None: the database's own clock, the one that all hosts share (K5).
        self._clock = clock
        self._texts: dict[tuple[str, ...], bytes] = {}
        self._reset()

    def now(self) -> int:
        """Returns the database's time at the start of the transaction, or a given clock's."""
        return self._now if self._clock is None else self._clock.now()

    def begin(self) -> None:
        """Opens a transaction."""
        self._open(_BEGIN)

    def begin_read(self) -> None:
        """Opens a snapshot."""
        self._open(_SNAPSHOT)

    def commit(self) -> None:
        """Seals the command, if there is one, and makes it durable: one round trip."""
        self._alive()
        seal = f"UPDATE command SET sealed = 1 WHERE seq = {self._sealing}; " if self._sealing else ""
        self._send(f"{seal}COMMIT".encode(), None, "commit")

    def abandon(self) -> None:
        """Leaves the transaction behind, whatever state it is in."""
        if self.connection.closed or self.connection.info.transaction_status == TransactionStatus.IDLE:
            return
        try:
            self.connection.execute(b"ROLLBACK")
        except psycopg.Error:
            self.connection.close()

    @property
    def again(self) -> bool:
        """Tells whether the transaction lost against another one and may simply be run again."""
        return self._again

    def lock(self, name: str) -> None:
        """Waits for any other transaction that holds the same name; held until the end of this one."""
        self._send(b"SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,), "lock")

    def one(self, query: Query, params: Mapping[str, Any]) -> Row | None:
        """Returns the first row, or None."""
        found: Row | None = self._execute(query, params).fetchone()
        return found

    def many(self, query: Query, params: Mapping[str, Any]) -> list[Row]:
        """Returns every row."""
        return self._execute(query, params).fetchall()

    def run(self, query: Query, params: Mapping[str, Any]) -> int:
        """Runs a statement; returns how many rows it touched."""
        return self._execute(query, params).rowcount

    def open_command(self, cmd: Cmd, args_hash: str, at: int) -> int:
        """Writes the command row and its refs; returns its seq."""
        row = (cmd.name, cmd.actor, cmd.cause, cmd.dedupe, args_hash, at, self._base)
        opened = self._send(
            b"INSERT INTO command (name, actor, cause, dedupe, args_hash, at, sealed, base)"
            b" VALUES (%s, %s, %s, %s, %s, %s, 0, %s) RETURNING seq",
            row,
            "open_command",
        )
        seq = int(_first(opened)["seq"])
        self.add_refs(cmd.refs, seq)
        return seq

    def add_refs(self, refs: Refs, seq: int) -> None:
        """Writes the correlation ids of a command or event, in one round trip."""
        given = pairs(refs)
        if not given:
            return
        kinds, values = zip(*given, strict=True)
        self._send(
            b"INSERT INTO ref (kind, value, seq) SELECT kind, value, %s"
            b" FROM unnest(CAST(%s AS TEXT[]), CAST(%s AS TEXT[])) AS given (kind, value)",
            (seq, list(kinds), list(values)),
            "ref",
        )

    def seal(self, seq: int) -> None:
        """Closes the command together with its transaction."""
        self._sealing = seq

    def add_event(self, event: EventRow) -> int:
        """Writes one event; returns its seq."""
        added = self._send(
            b"INSERT INTO event (action, kind, intent_seq, outcome, data, at, command)"
            b" VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING seq",
            event,
            "event",
        )
        return int(_first(added)["seq"])

    def birth(self, machine: Machine, row: Mapping[str, Any]) -> None:
        """Inserts a guarded row; its trigger writes the journal."""
        names = tuple(row)
        text = self._texts.get((machine.table, *names))
        if text is None:
            marks = ", ".join(["%s"] * len(names))
            text = f"INSERT INTO {machine.table} ({', '.join(names)}) VALUES ({marks})".encode()
            self._texts[(machine.table, *names)] = text
        self._send(text, tuple(row.values()), machine.table)

    def state(self, machine: Machine, entity: str) -> tuple[str, int] | None:
        """Returns state and rev of a guarded row, or None."""
        text = f"SELECT state, rev FROM {machine.table} WHERE id = %s".encode()
        row = self._send(text, (entity,), machine.table).fetchone()
        return None if row is None else (row["state"], row["rev"])

    def move(self, machine: Machine, entity: str, rev: int, row: Mapping[str, Any]) -> bool:
        """Moves a guarded row that is still at `rev`; its trigger writes the journal."""
        names = tuple(row)
        text = self._texts.get(("", machine.table, *names))
        if text is None:
            sets = ", ".join(f"{name} = %s" for name in names)
            text = f"UPDATE {machine.table} SET {sets}, rev = rev + 1 WHERE id = %s AND rev = %s".encode()
            self._texts[("", machine.table, *names)] = text
        return self._send(text, (*row.values(), entity, rev), machine.table).rowcount == 1

    def _reset(self) -> None:
        self._base = 0
        self._now = 0
        self._sealing = 0
        self._refused = False
        self._again = False

    def _open(self, text: bytes) -> None:
        self._reset()
        cursor = self._send(text, None, "begin")
        cursor.nextset()
        start = _first(cursor)
        self._base, self._now = start["base"], start["now"]

    def _execute(self, query: Query, params: Mapping[str, Any]) -> psycopg.Cursor[Row]:
        if params.keys() != query.names:
            raise Bug(f"BUG: {query} takes {sorted(query.names)}, not {sorted(params)}.")
        return self._send(query.postgres.encode(), params, query.name)

    def _send(self, text: bytes, params: Any, what: str) -> psycopg.Cursor[Any]:
        self._alive()
        cursor = self.connection.cursor(row_factory=dict_row)
        try:
            # Without parameters several statements travel at once; those cannot be prepared.
            return cursor.execute(text, params, prepare=None if params else False)
        except psycopg.Error as error:
            self._refuse(error, what)

    def _alive(self) -> None:
        if self._refused:
            raise Bug("BUG: a body went on after a refused statement; look first, or use ON CONFLICT.")

    def _refuse(self, error: psycopg.Error, what: str) -> NoReturn:
        self._refused = True
        self._again = isinstance(error, _AGAIN)
        raise translate(error, what) from error


def _first(cursor: psycopg.Cursor[Any]) -> Row:
    row: Row | None = cursor.fetchone()
    if row is None:
        raise Bug("BUG: a statement that returns a row returned none.")
    return row


def translate(error: psycopg.Error, what: str) -> StationmasterError:
    """Turns a driver's error into one of the eight kinds; never shows the server's detail, for it holds values."""
    state = error.sqlstate or ""
    if isinstance(error, errors.UniqueViolation):
        return Stale(
            f"{what}: another row holds this key ({error.diag.constraint_name}).",
            code="already_exists",
            hint="Read it and decide again.",
        )
    if state == REFUSED or isinstance(error, errors.InsufficientPrivilege):
        return Bug(f"BUG: the database refused {what}: {error.diag.message_primary}.", code="guard_refused")
    if isinstance(error, errors.IntegrityError):
        return Bug(f"BUG: {what}: {error.diag.constraint_name or error.diag.column_name}.", code="statement_failed")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return unavailable(error)
    words = error.diag.message_primary if state.startswith(_SYNTAX_CLASS) else type(error).__name__
    return Bug(f"BUG: {what}: {words} ({state}).", code="statement_failed")


def unavailable(error: BaseException) -> Unavailable:
    """Returns what a caller sees when the database failed under its command."""
    return Unavailable(
        f"The database could not be used ({type(error).__name__}).",
        code="store_unavailable",
        hint="Check that the server runs and can be reached, then repeat the request.",
    )
