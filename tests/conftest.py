"""Fixtures that every part shares: a ledger on a real database of its own, and a real PostgreSQL server."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as examples
from psycopg.conninfo import make_conninfo

from stationmaster.clock import Clock, ManualClock
from stationmaster.ledger.ledger import Ledger, PostgresSettings, Slice
from tests.postgres import running

LedgerFactory = Callable[..., Ledger]

# A busy machine is no finding: only what an example shows counts, not how long it took.
examples.register_profile("gate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
examples.load_profile("gate")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--postgres` runs what usually runs on SQLite alone on PostgreSQL instead; `--record` keeps figures of kills.

    `--pictures` takes the handbook's pictures of the console.
    """
    parser.addoption("--postgres", action="store_true", help="run the Gitea tests on PostgreSQL")
    parser.addoption("--record", type=Path, help="write what stories with kills came to into this file, a line each")
    parser.addoption("--pictures", action="store_true", help="take the handbook's pictures of the console anew")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ledger_factory(tmp_path: Path, clock: ManualClock) -> Iterator[LedgerFactory]:
    """Opens ledgers on SQLite files under `tmp_path`; every one is closed at the end."""
    opened: list[Ledger] = []

    def open_ledger(slices: Sequence[Slice], *, name: str = "ledger", with_clock: Clock | None = None) -> Ledger:
        ledger = Ledger.open(tmp_path / f"{name}.db", slices, clock=with_clock or clock)
        opened.append(ledger)
        return ledger

    yield open_ledger
    for ledger in opened:
        ledger.close()


@dataclass(frozen=True)
class PostgresServer:
    """A server of our own with two roles: the owner migrates, `app` runs."""

    owner_dsn: str
    dsn: str
    _names: Iterator[int] = field(default_factory=itertools.count)

    def settings(self, *, schema: str | None = None, database_time: bool = False) -> PostgresSettings:
        """Returns the settings of a schema that nobody else uses."""
        return PostgresSettings(
            self.dsn,
            self.owner_dsn,
            schema=schema or f"test_{next(self._names)}",
            writers=4,
            readers=2,
            database_time=database_time,
        )


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Starts a server when the first test asks for it."""
    with running() as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE ROLE owner LOGIN CREATEDB")
            connection.execute("CREATE ROLE app LOGIN")
            connection.execute("GRANT CREATE ON DATABASE postgres TO owner")
        yield PostgresServer(make_conninfo(dsn, user="owner"), make_conninfo(dsn, user="app"))
