"""The SQLite engine: one writer thread owns the one writing connection; readers have a small pool of their own.

Group commit (K13). The writer takes what waits, at most 256 jobs and without waiting for more, opens one transaction,
gives each job a savepoint, commits once, and only then answers anybody: a result, a refusal and a replay alike are
true only when the disk has them. After any error it asks whether the transaction is still open, for SQLite closes it
by itself on a full disk or an I/O error; then everything of the group fails with `store_unavailable`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, LifoQueue, SimpleQueue
from typing import Any

import structlog

from stationmaster.clock import Clock
from stationmaster.errors import Bug, Unavailable
from stationmaster.ledger import body, migrate
from stationmaster.ledger.body import Job
from stationmaster.ledger.pulse import Pulse
from stationmaster.ledger.receipts import Replay
from stationmaster.ledger.slices import Slice
from stationmaster.ledger.sqlite_catalog import SqliteCatalog
from stationmaster.ledger.sqlite_session import SqliteSession, unavailable
from stationmaster.ledger.tx import Doors, Reader

MOST_JOBS = 256
READERS = 6
BUSY_MS = 5_000
CACHE_KIB = 32_768
# SQLite empties its log by itself only in a moment without a reader. Past this size the writer looks for such a moment.
LOG_BYTES = 64 * 1024**2
_LOG_WAIT_MS = 100
_LOG_PAUSE_S = 1.0
_STATEMENTS = 512

_log = structlog.get_logger(__name__)


def connect(path: Path, *, writing: bool) -> sqlite3.Connection:
    """Opens the database file; raises Unavailable when it cannot."""
    try:
        if writing and not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={'rw' if writing else 'ro'}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_STATEMENTS,
        )
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        if writing:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA recursive_triggers = ON")
            # A group changes more pages than the usual 2 MiB hold; what does not fit is written twice.
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        else:
            connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA temp_store = MEMORY")
    except (sqlite3.Error, OSError) as error:
        raise Unavailable(
            f"The database {path} cannot be opened.",
            code="store_unavailable",
            hint="Check that its folder exists, is ours and has space.",
        ) from error
    return connection


def prepare(path: Path, slices: Sequence[Slice], *, restore: bool = False) -> tuple[sqlite3.Connection, int]:
    """Brings the database up to the code; returns the writing connection and the newest time in the database."""
    writer = connect(path, writing=True)
    try:
        # A migration that rebuilds a table drops the old one; what pointed at it is checked once at the end.
        writer.execute("PRAGMA foreign_keys = OFF")
        writer.execute("BEGIN IMMEDIATE")
        if migrate.bring_up(SqliteCatalog(writer), slices, restore=restore):
            _all_point_at_something(writer)
        newest = writer.execute(
            "SELECT max(coalesce((SELECT at FROM command ORDER BY seq DESC LIMIT 1), 0),"
            " coalesce((SELECT max(seen_at) FROM worker), 0))"
        ).fetchone()
        writer.execute("COMMIT")
        writer.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error as error:
        writer.close()
        raise Unavailable(
            f"The database {path} cannot be prepared ({error}).",
            code="store_unavailable",
            hint="Check that it is ours, that its folder has space and that no other program holds it.",
        ) from error
    except BaseException:
        writer.close()
        raise
    return writer, int(newest[0])


def _all_point_at_something(writer: sqlite3.Connection) -> None:
    if writer.execute("PRAGMA foreign_key_check").fetchone() is not None:
        raise Bug("BUG: a migration left rows that point at nothing.")


class SqliteEngine:
    """Runs jobs and reads on one database file."""

    def __init__(self, path: Path, doors: Doors, clock: Clock, writer: sqlite3.Connection) -> None:
        self.pulse = Pulse()
        self._path = path
        self._doors = doors
        self._clock = clock
        self._writer = writer
        self._session = SqliteSession(writer, clock)
        self._waiting: SimpleQueue[Job | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._log_file = path.with_name(f"{path.name}-wal")
        self._log_again = 0.0
        self._readers: LifoQueue[SqliteSession | None] = LifoQueue()
        for _ in range(READERS):
            self._readers.put(None)
        self._thread = threading.Thread(target=self._write, name="ledger-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queues a job for the next group."""
        with self._gate:
            if self._closed:
                raise Unavailable("The ledger is closed.", code="store_unavailable")
            self._waiting.put(job)

    def read(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs `fn` on one snapshot."""
        session = self._readers.get()
        try:
            if self._closed:
                raise Unavailable("The ledger is closed.", code="store_unavailable")
            if session is None:
                session = SqliteSession(connect(self._path, writing=False), self._clock)
            session.begin_read()
            try:
                return fn(Reader(session, self._doors), *args, **kwargs)
            finally:
                session.abandon()
        finally:
            self._readers.put(session)

    def faults(self, slices: Sequence[Slice]) -> list[str]:
        """Returns one sentence for each way in which the database differs from the code."""
        connection = connect(self._path, writing=False)
        try:
            connection.execute("BEGIN")
            return list(migrate.faults(SqliteCatalog(connection), slices))
        finally:
            connection.close()

    def close(self) -> None:
        """Finishes what waits, then closes every connection."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._waiting.put(None)
        self._thread.join()
        for _ in range(READERS):
            session = self._readers.get()
            if session is not None:
                session.connection.close()
        for _ in range(READERS):
            self._readers.put(None)
        self._writer.close()

    def _write(self) -> None:
        while True:
            group, last = self._take()
            if group:
                self._group(group)
                self._bound_log()
            if last:
                return

    def _bound_log(self) -> None:
        """Empties a log that has grown too long, unless a reader still needs it: then a little later."""
        now = time.monotonic()
        if now < self._log_again or not self._log_file.exists() or self._log_file.stat().st_size < LOG_BYTES:
            return
        self._log_again = now + _LOG_PAUSE_S
        try:
            self._writer.execute(f"PRAGMA busy_timeout = {_LOG_WAIT_MS}")
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            _log.warning("ledger.log_not_emptied", error=str(error))
        finally:
            self._writer.execute(f"PRAGMA busy_timeout = {BUSY_MS}")

    def _take(self) -> tuple[list[Job], bool]:
        group: list[Job] = []
        item = self._waiting.get()
        while item is not None:
            if item.future.set_running_or_notify_cancel():
                group.append(item)
            if len(group) >= MOST_JOBS:
                return group, False
            try:
                item = self._waiting.get_nowait()
            except Empty:
                return group, False
        return group, True

    def _group(self, group: list[Job]) -> None:
        answers: list[tuple[Any, BaseException | None]] = []
        try:
            self._session.begin()
            answers.extend(self._one(job) for job in group)
            body.keep(lambda: self.pulse.kept(self._session.commit, len(group)))
            self.pulse.heed(refusal for _, refusal in answers)
        except BaseException as error:  # noqa: BLE001 - the writer thread outlives whatever a group met
            self.pulse.broke()
            _log.error("ledger.group_failed", jobs=len(group), error=type(error).__name__)
            self._session.abandon()
            failure = error if isinstance(error, Unavailable) else unavailable(error)
            for job in group:
                job.future.set_exception(failure)
            return
        for job, (value, refusal) in zip(group, answers, strict=True):
            if refusal is None:
                job.future.set_result(value)
            else:
                job.future.set_exception(refusal)

    def _one(self, job: Job) -> tuple[Any, BaseException | None]:
        session = self._session
        session.savepoint()
        try:
            value = body.perform(session, self._doors, job)
            session.release()
        except Replay as replay:
            session.release()
            return replay.value, replay.error
        except BaseException as error:  # noqa: BLE001 - a body's error is its caller's
            session.rollback_to()
            refusal = body.to_remember(job, error)
            if refusal is not None:
                body.remember(session, self._doors, job, refusal)
            session.release()
            return None, error
        return value, None
