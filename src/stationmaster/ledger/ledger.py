"""The ledger: the only door to a write (K1). It holds an engine and knows no SQL and no domain noun."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, cast

from stationmaster.clock import Clock
from stationmaster.command import Cmd, assert_outside
from stationmaster.ledger import migrate, sqlite
from stationmaster.ledger.body import Job
from stationmaster.ledger.pulse import Pulse
from stationmaster.ledger.settings import PostgresSettings
from stationmaster.ledger.slices import KERNEL, Slice
from stationmaster.ledger.tx import Doors, HotTx, Reader, Tx

__all__ = ["HotTx", "Ledger", "PostgresSettings", "Reader", "Slice", "Tx", "restore_guards", "verify"]

P = ParamSpec("P")
R = TypeVar("R")


class Engine(Protocol):
    """Runs jobs and reads against one database."""

    pulse: Pulse

    def submit(self, job: Job) -> None:
        """Queues a job; its future is resolved once the outcome is durable."""
        ...

    def read(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs `fn` on one snapshot."""
        ...

    def faults(self, slices: Sequence[Slice]) -> list[str]:
        """Returns one sentence for each way in which the database differs from the code."""
        ...

    def close(self) -> None:
        """Finishes what waits and closes every connection."""
        ...


class Ledger:
    """An open database with the slices it was opened with."""

    def __init__(self, engine: Engine, slices: Sequence[Slice], clock: Clock) -> None:
        self.clock = clock
        self._engine = engine
        self._slices = slices

    @classmethod
    def open(cls, database: Path | str | PostgresSettings, slices: Sequence[Slice], *, clock: Clock) -> Self:
        """Opens, installs or migrates a database.

        Raises Unavailable when it cannot be reached, Invalid when it is newer than this program or was changed by hand.
        """
        parts = (KERNEL, *slices)
        doors = Doors(
            guarded=frozenset(machine.table for machine in migrate.all_machines(parts)),
            hot=frozenset().union(*(part.hot for part in parts)),
        )
        return cls(_open(database, parts, doors, clock), parts, clock)

    @property
    def pulse(self) -> Pulse:
        """How this process's writes are doing."""
        return self._engine.pulse

    def do(self, cmd: Cmd, fn: Callable[Concatenate[Tx, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs one command and returns its result once it is durable; raises what its body raised.

        With `dedupe` the result is JSON data, and a repeat gets the stored answer, a refusal too.
        """
        return self.submit(cmd, fn, *args, **kwargs).result()

    def submit(self, cmd: Cmd, fn: Callable[Concatenate[Tx, P], R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Queues one command; the future is resolved once its outcome is durable."""
        return cast("Future[R]", self._submit(Job(cmd, fn, args, kwargs)))

    def hot(self, fn: Callable[Concatenate[HotTx, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Writes hot tables (K4) and returns once it is durable."""
        return self.submit_hot(fn, *args, **kwargs).result()

    def submit_hot(self, fn: Callable[Concatenate[HotTx, P], R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Queues a write of hot tables."""
        return cast("Future[R]", self._submit(Job(None, fn, args, kwargs)))

    def read(self, fn: Callable[Concatenate[Reader, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs `fn` on one consistent snapshot of what is durable."""
        assert_outside("a read beside the command's own transaction")
        return cast("R", self._engine.read(fn, args, kwargs))

    def verify(self) -> list[str]:
        """Returns one sentence for each way in which the database differs from the code; for doctor."""
        return self._engine.faults(self._slices)

    def close(self) -> None:
        """Finishes what waits and closes the database."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit(self, job: Job) -> Future[Any]:
        assert_outside("another command")
        job.prepare()
        self._engine.submit(job)
        return job.future


def verify(ledger: Ledger) -> list[str]:
    """Returns one sentence for each way in which the database differs from the code; for doctor."""
    return ledger.verify()


def restore_guards(database: Path | str | PostgresSettings, slices: Sequence[Slice]) -> None:
    """Puts the code's guards in place of whatever is there; for an operator who has looked at `verify`.

    The ledger must be closed.
    """
    if isinstance(database, PostgresSettings):
        from stationmaster.ledger import postgres  # noqa: PLC0415 - SQLite users need not load psycopg

        postgres.prepare(database, (KERNEL, *slices), restore=True)
    else:
        sqlite.prepare(Path(database), (KERNEL, *slices), restore=True)[0].close()


def _open(database: Path | str | PostgresSettings, slices: Sequence[Slice], doors: Doors, clock: Clock) -> Engine:
    engine: Engine
    if isinstance(database, PostgresSettings):
        from stationmaster.ledger import postgres  # noqa: PLC0415 - SQLite users need not load psycopg

        newest = postgres.prepare(database, slices)
        _not_before(clock, newest)
        engine = postgres.PostgresEngine(database, doors, clock)
    else:
        path = Path(database)
        writer, newest = sqlite.prepare(path, slices)
        _not_before(clock, newest)
        engine = sqlite.SqliteEngine(path, doors, clock, writer)
    return engine


def _not_before(clock: Clock, newest: int) -> None:
    move = getattr(clock, "not_before", None)
    if move is not None:
        move(newest)
