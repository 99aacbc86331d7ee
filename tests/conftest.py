"""Fixtures that every part shares: a ledger on a real database of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from stationmaster.clock import Clock, ManualClock
from stationmaster.ledger.ledger import Ledger, Slice

LedgerFactory = Callable[..., Ledger]


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
