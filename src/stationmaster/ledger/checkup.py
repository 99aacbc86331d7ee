"""Looks at a database as it is, beside whoever works with it: no migration, no writer, nothing changed; for doctor."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from stationmaster.clock import Clock
from stationmaster.errors import Unavailable
from stationmaster.ledger import migrate, sqlite, wholeness
from stationmaster.ledger.migrate import Catalog
from stationmaster.ledger.session import Session
from stationmaster.ledger.settings import PostgresSettings
from stationmaster.ledger.slices import KERNEL, Slice
from stationmaster.ledger.sqlite_catalog import SqliteCatalog
from stationmaster.ledger.sqlite_session import SqliteSession
from stationmaster.ledger.tx import Doors, Reader

P = ParamSpec("P")
R = TypeVar("R")

_MOST = 20
_NOTHING = Doors(guarded=frozenset(), hot=frozenset())


class Checkup:
    """One snapshot of a database; made by `opened` only."""

    def __init__(self, catalog: Catalog, session: Session, slices: Sequence[Slice], owner: str | None = None) -> None:
        self._owner = owner
        self._catalog = catalog
        self._session = session
        self._slices = slices

    def installed(self) -> bool:
        """Tells whether the database has our tables."""
        return self._catalog.installed()

    def versions(self) -> dict[str, tuple[int, int]]:
        """Returns of every slice the version that the database has (0: none) and the one that the code has."""
        have = {str(name): int(at) for name, at in self._catalog.execute("SELECT slice, version FROM schema_version")}
        return {part.name: (have.get(part.name, 0), migrate.newest(part)) for part in self._slices}

    def faults(self) -> list[str]:
        """Returns one sentence for each table, edge, guard or command that is not as the code wants it."""
        return list(migrate.faults(self._catalog, self._slices))

    def damage(self, *, thorough: bool = False) -> list[str]:
        """Returns what is wrong with the file itself; empty also where a server looks after its own files.

        `thorough` also compares every index with its table.
        """
        if self._catalog.dialect != "sqlite":
            return []
        check = "integrity_check" if thorough else "quick_check"
        return [str(row[0]) for row in self._catalog.execute(f"PRAGMA {check}({_MOST})") if row[0] != "ok"]

    def counts(self) -> dict[str, int]:
        """Returns how many rows every table has."""
        return wholeness.counts(self._catalog)

    def newest(self) -> int:
        """Returns the last number of the history."""
        return wholeness.newest(self._catalog)

    def broken(self) -> list[str]:
        """Returns one sentence for each way in which rows and history contradict one another."""
        return wholeness.broken(self._catalog, migrate.all_machines(self._slices))

    def exported(self) -> str:
        """Returns the name under which another connection to PostgreSQL sees this very snapshot while it is open."""
        return str(self._catalog.execute("SELECT pg_export_snapshot()")[0][0])

    def server(self) -> int:
        """Returns the major version of the PostgreSQL server."""
        return int(self._catalog.execute("SELECT current_setting('server_version_num')")[0][0]) // 10_000

    def owner(self) -> str | None:
        """Returns the running role when it owns tables: it could then switch guards off. SQLite has no roles."""
        return self._owner

    def read(self, fn: Callable[Concatenate[Reader, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs `fn` on the snapshot."""
        return fn(Reader(self._session, _NOTHING), *args, **kwargs)


def newest_versions(slices: Sequence[Slice]) -> dict[str, int]:
    """Returns the version that the code has of every slice."""
    return {part.name: migrate.newest(part) for part in (KERNEL, *slices)}


@contextlib.contextmanager
def opened(database: Path | PostgresSettings, slices: Sequence[Slice], clock: Clock) -> Iterator[Checkup]:
    """Opens a database that exists; raises Unavailable when it cannot be opened or read."""
    parts = (KERNEL, *slices)
    made = _postgres(database, parts) if isinstance(database, PostgresSettings) else _sqlite(database, parts, clock)
    with made as checkup:
        yield checkup


@contextlib.contextmanager
def _sqlite(path: Path, parts: Sequence[Slice], clock: Clock) -> Iterator[Checkup]:
    connection = sqlite.connect(path, writing=False)
    session = SqliteSession(connection, clock)
    try:
        session.begin_read()
        yield Checkup(SqliteCatalog(connection), session, parts)
    except sqlite3.DatabaseError as error:
        raise Unavailable(
            f"The database {path} cannot be read: {error}.",
            code="store_unavailable",
            hint="Stop Stationmaster and restore a backup; keep the damaged file aside.",
        ) from error
    finally:
        session.abandon()
        connection.close()


@contextlib.contextmanager
def _postgres(settings: PostgresSettings, parts: Sequence[Slice]) -> Iterator[Checkup]:
    from stationmaster.ledger import postgres  # noqa: PLC0415 - SQLite users need not load psycopg
    from stationmaster.ledger.postgres_catalog import PostgresCatalog  # noqa: PLC0415 - likewise
    from stationmaster.ledger.postgres_session import PostgresSession  # noqa: PLC0415 - likewise

    with postgres.connect(settings, settings.dsn) as connection:
        catalog = PostgresCatalog(connection, settings.schema)
        session = PostgresSession(connection, None)
        try:
            role = str(catalog.execute("SELECT current_user")[0][0])
            owner = role if catalog.owned_by(role) else None
            if catalog.installed():
                session.begin_read()
            yield Checkup(catalog, session, parts, owner)
        finally:
            session.abandon()
