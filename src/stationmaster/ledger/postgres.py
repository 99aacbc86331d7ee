"""The PostgreSQL engine: one pool thread and one READ COMMITTED transaction a command (K13).

Equal requests wait for one another on an advisory lock over (command name, dedupe), so the second reads the receipt of
the first. A transaction that lost a deadlock or serialisation is run again: bodies are SQL only, and repeatable.
Two roles: the owner migrates, the running role owns no table and cannot switch a guard off.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout

from stationmaster.clock import Clock
from stationmaster.errors import Invalid, StationmasterError, Unavailable
from stationmaster.ledger import body, migrate
from stationmaster.ledger.body import Job
from stationmaster.ledger.postgres_catalog import PostgresCatalog
from stationmaster.ledger.postgres_session import PostgresSession, unavailable
from stationmaster.ledger.pulse import Pulse
from stationmaster.ledger.receipts import Replay
from stationmaster.ledger.settings import PostgresSettings
from stationmaster.ledger.slices import Slice
from stationmaster.ledger.tx import Doors, Reader

_TRIES = 8
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_MIGRATING = 0x53746D72

_log = logging.getLogger(__name__)

Connection = psycopg.Connection[Any]


def connect(settings: PostgresSettings, dsn: str) -> Connection:
    """Opens one connection; raises Unavailable when the server cannot be reached."""
    try:
        return psycopg.connect(_conninfo(settings, dsn), autocommit=True, connect_timeout=int(settings.wait_s))
    except psycopg.Error as error:
        raise Unavailable(
            f"The PostgreSQL server cannot be reached ({type(error).__name__}).",
            code="store_unavailable",
            hint="Check the database settings, the password and that the server runs.",
        ) from error


def prepare(settings: PostgresSettings, slices: Sequence[Slice], *, restore: bool = False) -> int:
    """Brings the schema up to the code as its owner and gives the running role its rights; returns the newest time."""
    if not _NAME.fullmatch(settings.schema):
        raise Invalid(f"{settings.schema!r} is no schema name.", code="invalid_config", hint="Set database.schema.")
    with connect(settings, settings.dsn) as running:
        role = _role(running)
    with connect(settings, settings.owner_dsn or settings.dsn) as owner:
        try:
            with owner.transaction():
                owner.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
                catalog = PostgresCatalog(owner, settings.schema)
                if not catalog.installed():
                    catalog.prepare()
                migrate.bring_up(catalog, slices, restore=restore)
                if settings.owner_dsn is not None:
                    catalog.grant(role, migrate.all_machines(slices))
                newest = catalog.execute(
                    "SELECT greatest((SELECT at FROM command ORDER BY seq DESC LIMIT 1),"
                    " (SELECT max(seen_at) FROM worker), 0)"
                )
                return int(newest[0][0])
        except psycopg.Error as error:
            words = error.diag.message_primary or type(error).__name__
            raise Unavailable(
                f"The schema {settings.schema} cannot be prepared ({words}).",
                code="store_unavailable",
                hint="Let the owner role (database.owner) migrate it.",
            ) from error


class PostgresEngine:
    """Runs jobs and reads on one schema."""

    def __init__(self, settings: PostgresSettings, doors: Doors, clock: Clock) -> None:
        self.pulse = Pulse()
        self._settings = settings
        self._doors = doors
        self._clock = None if settings.database_time else clock
        self._writers = self._pool(settings.writers, "ledger-writers")
        self._readers = self._pool(settings.readers, "ledger-readers")
        self._threads = ThreadPoolExecutor(settings.writers, thread_name_prefix="ledger-writer")
        self._closed = False

    def submit(self, job: Job) -> None:
        """Gives the job to a thread of the pool."""
        try:
            self._threads.submit(self._run, job)
        except RuntimeError as error:
            raise Unavailable("The ledger is closed.", code="store_unavailable") from error

    def read(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs `fn` on one snapshot."""
        if self._closed:
            raise Unavailable("The ledger is closed.", code="store_unavailable")
        session = self._session(self._readers)
        try:
            session.begin_read()
            return fn(Reader(session, self._doors), *args, **kwargs)
        finally:
            session.abandon()
            self._readers.putconn(session.connection)

    def faults(self, slices: Sequence[Slice]) -> list[str]:
        """Returns one sentence for each way in which the database differs from the code."""
        with connect(self._settings, self._settings.dsn) as connection, connection.transaction():
            catalog = PostgresCatalog(connection, self._settings.schema)
            found = list(migrate.faults(catalog, slices))
            role = _role(connection)
            if catalog.owned_by(role):
                found.append(f"The role {role} owns the tables it writes; let another role own and migrate them.")
            return found

    def close(self) -> None:
        """Finishes what waits, then closes every connection."""
        if self._closed:
            return
        self._closed = True
        self._threads.shutdown(wait=True)
        self._writers.close()
        self._readers.close()

    def _pool(self, size: int, name: str) -> ConnectionPool[Connection]:
        return ConnectionPool(
            _conninfo(self._settings, self._settings.dsn),
            kwargs={"autocommit": True},
            min_size=1,
            max_size=size,
            name=name,
            timeout=self._settings.wait_s,
            open=True,
        )

    def _session(self, pool: ConnectionPool[Connection]) -> PostgresSession:
        try:
            return PostgresSession(pool.getconn(), self._clock)
        except (PoolTimeout, psycopg.Error) as error:
            raise unavailable(error) from error

    def _run(self, job: Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        try:
            value, refusal = self._outcome(job)
        except BaseException as error:  # noqa: BLE001 - a body's error is its caller's
            self.pulse.heed((error,))
            job.future.set_exception(error)
            return
        if refusal is None:
            job.future.set_result(value)
        else:
            job.future.set_exception(refusal)

    def _outcome(self, job: Job) -> tuple[Any, BaseException | None]:
        refusal: StationmasterError | None = None
        for turn in range(_TRIES):
            session = self._session(self._writers)
            try:
                value = self._once(session, job, refusal)
            except Replay as replay:
                return replay.value, replay.error
            except BaseException as error:
                if session.again and turn + 1 < _TRIES:
                    time.sleep(random.uniform(0, 0.005 * 2**turn))  # noqa: S311 - a pause, not a secret
                    continue
                if refusal is None:
                    refusal = body.to_remember(job, error)
                    if refusal is not None:
                        continue
                raise
            finally:
                session.abandon()
                self._writers.putconn(session.connection)
            return value, refusal
        raise Unavailable("The database kept refusing the transaction.", code="store_unavailable")

    def _once(self, session: PostgresSession, job: Job, refusal: StationmasterError | None) -> Any:
        """Runs one transaction: the body, or, after a refusal that must be remembered, the row that says so."""
        session.begin()
        value = None
        if refusal is None:
            value = body.perform(session, self._doors, job)
        else:
            body.remember(session, self._doors, job, refusal)
        body.keep(lambda: self.pulse.kept(session.commit, 1))
        return value


def _role(connection: Connection) -> str:
    return str(connection.execute("SELECT current_user").fetchall()[0][0])


def _conninfo(settings: PostgresSettings, dsn: str) -> str:
    return make_conninfo(dsn, options=f"-c search_path={settings.schema}", application_name="stationmaster")
