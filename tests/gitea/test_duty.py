from __future__ import annotations

import pytest

from stationmaster.errors import Stale
from stationmaster.gitea.duty import Duty
from tests.gitea.world import World


def duty(world: World, name: str) -> Duty:
    return Duty(world.port, "sweep", owner=name, incarnation=f"{name}_1", ttl_s=60)


async def test_one_at_a_time_has_it_until_it_lets_go(world: World) -> None:
    one, two = duty(world, "one"), duty(world, "two")
    assert (await one.on(), await two.on(), await one.on()) == (True, False, True)
    await one.leave()
    assert (one.lease, await two.on(), await one.on()) == (None, True, False)


async def test_whoever_kept_silent_too_long_has_lost_it(world: World) -> None:
    one, two = duty(world, "one"), duty(world, "two")
    assert await one.on()
    world.clock.advance(61)
    assert await two.on()
    assert not await one.on()


async def test_keeping_tells_of_the_loss(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = duty(world, "one"), duty(world, "two")
    await one.on()
    await one.keep()
    world.clock.advance(61)
    await two.on()
    monkeypatch.setattr("stationmaster.gitea.duty.time.monotonic", lambda: float("inf"))
    with pytest.raises(Stale):
        await one.keep()
