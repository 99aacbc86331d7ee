"""Databases of the bench's own: a ledger, and the same tables without a single trigger, written in bare SQL.

The bare one is what somebody would write who needs the same rows and trusts every caller: same tables, same indexes,
same durability, no guard, no journal by trigger, no look before a write.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg import sql

from stationmaster import ids
from stationmaster.clock import SystemClock
from stationmaster.ledger.ledger import Ledger, PostgresSettings
from stationmaster.ops import wiring

_WRITERS = 8


@dataclass(frozen=True, slots=True)
class Place:
    """Where a database is: a folder for SQLite, or a server and a schema of our own there."""

    folder: Path
    url: str | None = None
    schema: str = ""

    @property
    def engine(self) -> str:
        """Names the database."""
        return "sqlite" if self.url is None else "postgres"

    @property
    def _file(self) -> Path:
        return self.folder / "ledger.db"

    def ledger(self) -> Ledger:
        """Opens the ledger, installed at the first time."""
        if self.url is None:
            return Ledger.open(self._file, wiring.SLICES, clock=SystemClock())
        settings = PostgresSettings(self.url, schema=self.schema, writers=_WRITERS)
        return Ledger.open(settings, wiring.SLICES, clock=SystemClock())

    def plain(self) -> Plain:
        """Takes every trigger off a ledger that is closed, and opens what is left."""
        return PlainSqlite(self._file) if self.url is None else PlainPostgres(self.url, self.schema)

    def settle(self) -> None:
        """Lets PostgreSQL look at tables that were filled at once, as it does by itself within a minute."""
        if self.url is not None:
            with psycopg.connect(self.url, autocommit=True, options=f"-c search_path={self.schema}") as server:
                server.execute(b"ANALYZE")

    def count(self, table: str) -> int:
        """Returns how many rows a table has."""
        if self.url is None:
            with contextlib.closing(sqlite3.connect(self._file)) as connection:
                return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        with psycopg.connect(self.url) as server:
            query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(self.schema, table))
            row = server.execute(query).fetchone()
            return int(row[0]) if row else 0


@contextlib.contextmanager
def place(folder: Path, name: str, url: str | None) -> Iterator[Place]:
    """Makes a place that nobody else uses and takes a schema away again; the folder is the caller's."""
    (folder / name).mkdir()
    made = Place(folder / name, url, ids.new(f"bench_{name}") if url else "")
    try:
        yield made
    finally:
        if url is not None:
            with psycopg.connect(url, autocommit=True) as server:
                server.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(made.schema)))


class Plain(Protocol):
    """Bare SQL on one connection; statements carry `?` for a value."""

    def begin(self) -> None:
        """Opens a transaction."""
        ...

    def commit(self) -> None:
        """Makes it durable."""
        ...

    def run(self, text: str, values: tuple[Any, ...]) -> int:
        """Runs a write; returns how many rows it touched, or -1 where the answer is not waited for."""
        ...

    def newest(self) -> int:
        """Returns the newest number of the history."""
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


_NEWEST = "SELECT max(seq) FROM (SELECT max(seq) AS seq FROM command UNION ALL SELECT max(seq) FROM journal) AS numbers"


_PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    "temp_store = MEMORY",
    "cache_size = -32768",
)


class PlainSqlite:
    """The same settings as the ledger's own connection."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
        for pragma in _PRAGMAS:
            self._connection.execute(f"PRAGMA {pragma}")
        found = self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in found:
            self._connection.execute(f"DROP TRIGGER {name}")

    def begin(self) -> None:
        """Opens a transaction and takes the write lock."""
        self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Makes it durable."""
        self._connection.execute("COMMIT")

    def run(self, text: str, values: tuple[Any, ...]) -> int:
        """Runs a write."""
        return self._connection.execute(text, values).rowcount

    def newest(self) -> int:
        """Returns the newest number of the history."""
        return int(self._connection.execute(_NEWEST).fetchone()[0] or 0)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


class PlainPostgres:
    """One connection; the statements of a transaction travel together, which is the fastest bare way there is."""

    def __init__(self, url: str, schema: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, options=f"-c search_path={schema}")
        found = self._connection.execute(
            "SELECT tgname, relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
            " JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = %s AND NOT tgisinternal",
            (schema,),
        ).fetchall()
        for name, table in found:
            drop = sql.SQL("DROP TRIGGER {} ON {}").format(sql.Identifier(name), sql.Identifier(table))
            self._connection.execute(drop)
        self._waiting: list[tuple[bytes, tuple[Any, ...] | None]] = []

    def begin(self) -> None:
        """Opens a transaction."""
        self._waiting = [(b"BEGIN", None)]

    def commit(self) -> None:
        """Sends everything in one round trip and waits until it is durable."""
        with self._connection.pipeline():
            for text, values in self._waiting:
                self._connection.execute(text, values)
            self._connection.execute(b"COMMIT")

    def run(self, text: str, values: tuple[Any, ...]) -> int:
        """Puts a write into the next round trip."""
        self._waiting.append((text.replace("?", "%s").encode(), values))
        return -1

    def newest(self) -> int:
        """Returns the newest number of the history."""
        row = self._connection.execute(_NEWEST.encode()).fetchone()
        return int(row[0] or 0) if row else 0

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()
