"""Deliveries are forgotten after their time; what they started is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stationmaster.clock import ManualClock
from stationmaster.control.dispatch import Dispatch
from stationmaster.gitea.retention import Retention
from stationmaster.ledger import history
from tests.gitea.rig import Rig, told


@pytest.fixture
async def parts(tmp_path: Path, clock: ManualClock) -> AsyncIterator[tuple[Rig, Retention]]:
    rig = Rig.on(tmp_path / "ledger.db", clock)
    port = Dispatch(rig.ledger, threads=1)
    yield rig, Retention(port, delivery_days=30)
    port.close()
    rig.close()


async def test_only_what_is_past_its_time_and_ended_is_forgotten(parts: tuple[Rig, Retention]) -> None:  # GW-R-027
    rig, retention = parts
    ended, under_way = rig.ask(1), rig.ask(2)
    rig.take(told(body="no word to anybody"), "ignored")
    rig.step(ended, "cancel")
    assert await retention.tick(0) == 0
    rig.clock.advance(29 * 86_400)
    rig.ask(3, delivery="young")
    rig.clock.advance(86_400)
    assert [await retention.tick(0), await retention.tick(0)] == [2, 0]
    assert sorted(rig.rows("SELECT task_id FROM gitea_delivery")) == sorted(
        [(under_way,), *rig.rows("SELECT id FROM gitea_task WHERE delivery_id = 'young'")]
    )
    assert (rig.count("gitea_task"), rig.count("gitea_trigger")) == (3, 3)
    assert rig.rows("SELECT event_id FROM inbox") == [("default:young",)]


async def test_many_are_forgotten_in_small_commands(parts: tuple[Rig, Retention]) -> None:  # GW-R-027
    rig, retention = parts
    for number in range(200):
        rig.take(told(body="no word to anybody"), f"d{number}")
    rig.clock.advance(31 * 86_400)
    assert [await retention.tick(0) for _ in range(4)] == [90, 90, 20, 0]
    assert (rig.count("gitea_delivery"), rig.count("inbox")) == (0, 0)
    named = [entry for entry in rig.ledger.read(history.page, limit=5000) if entry.name == "retention.deliveries"]
    assert len(named) == 3  # a look that finds nothing leaves nothing
