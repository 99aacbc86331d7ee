"""A ledger with tasks in it, what follows it, and the page that comes of both."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from stationmaster.clock import ManualClock
from stationmaster.control.dispatch import Dispatch
from stationmaster.ledger.ledger import Ledger
from stationmaster.ops.metrics.exposition import Exposition, Working
from stationmaster.ops.metrics.figures import Figures
from stationmaster.ops.metrics.follow import Follower
from stationmaster.ops.wiring import SLICES
from tests.conftest import PostgresServer
from tests.gitea.rig import Rig

Page = dict[str, dict[tuple[str, ...], float]]


@dataclass
class Watched:
    """One ledger, and everything that watches it."""

    rig: Rig
    port: Dispatch
    figures: Figures
    follower: Follower
    shown: Exposition
    clock: ManualClock

    def passes(self, seconds: float) -> None:
        """Lets time pass."""
        self.clock.advance(seconds)

    async def page(self) -> Page:
        """Reads the page as Prometheus does: samples by name, then by the values of their labels."""
        self.shown._until = 0.0
        return parsed(await self.shown.page())


def parsed(page: bytes) -> Page:
    found: Page = {}
    for family in text_string_to_metric_families(page.decode()):
        found.setdefault(family.name, {})
        for sample in family.samples:
            # The hand-set clock moves by a microsecond with each command.
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = round(sample.value, 3)
    return found


@pytest.fixture(params=["sqlite", "postgres"])
def watched(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Watched]:
    where: Any = tmp_path / "ledger.db"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        where = server.settings()
    made = _watched(where, clock, tmp_path)
    yield made
    made.port.close()
    made.rig.close()


@pytest.fixture
def said() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Gives every line that was logged."""
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        logging.getLogger().setLevel(logging.INFO)
        yield lambda: [dict(line) for line in lines]


def _watched(where: Any, clock: ManualClock, folder: Path) -> Watched:
    ledger = Ledger.open(where, SLICES, clock=clock)
    rig, port, figures = Rig(ledger, where, clock), Dispatch(ledger, threads=2), Figures()
    follower = Follower(port, figures)
    database = where if isinstance(where, Path) else None
    shown = Exposition(
        port,
        figures,
        follower,
        ledger.pulse,
        working=Working,
        database=database,
        places={"home": folder / "not" / "yet"},
    )
    return Watched(rig, port, figures, follower, shown, clock)
