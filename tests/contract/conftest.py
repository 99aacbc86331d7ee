"""The kernel's contract is one suite over both databases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from stationmaster.clock import Clock, ManualClock
from stationmaster.ledger.ledger import Ledger, PostgresSettings, Slice
from tests.conftest import LedgerFactory, PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path | PostgresSettings:
    """Names an empty database."""
    if request.param == "sqlite":
        return tmp_path / "ledger.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.settings()


@pytest.fixture
def ledger_factory(database: Path | PostgresSettings, clock: ManualClock) -> Iterator[LedgerFactory]:
    """Opens ledgers on the one database of the test."""
    opened: list[Ledger] = []

    def open_ledger(slices: Sequence[Slice], *, with_clock: Clock | None = None) -> Ledger:
        ledger = Ledger.open(database, slices, clock=with_clock or clock)
        opened.append(ledger)
        return ledger

    yield open_ledger
    for ledger in opened:
        ledger.close()
