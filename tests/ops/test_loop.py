from __future__ import annotations

import asyncio

from stationmaster.errors import Unavailable
from stationmaster.ops.loop import Loop


async def test_a_loop_ticks_on_while_there_is_work_and_rests_until_woken() -> None:
    stop, seen = asyncio.Event(), asyncio.Queue[int]()
    work = [1, 1, 0, 0]

    async def tick() -> int:
        done = work.pop(0)
        await seen.put(done)
        return done

    loop = Loop("t", tick, rest_s=3600)
    running = asyncio.create_task(loop.run(stop))
    assert [await seen.get() for _ in range(3)] == [1, 1, 0]
    loop.wake()
    assert await seen.get() == 0
    stop.set()
    await running


async def test_a_loop_outlives_failures_and_stops_while_backing_off() -> None:
    stop, seen = asyncio.Event(), asyncio.Queue[str]()

    async def tick() -> int:
        await seen.put("tick")
        raise Unavailable("The forge is away.")

    loop = Loop("t", tick, rest_s=3600)
    running = asyncio.create_task(loop.run(stop))
    for _ in range(3):
        await seen.get()
        loop.wake()
    stop.set()
    await asyncio.wait_for(running, 10)
    assert (loop.ticks, loop.done) == (loop.failures, 0)
    assert loop.failures >= 3


async def test_a_bell_rung_during_a_tick_is_heard_after_it() -> None:
    stop, ticks, inside = asyncio.Event(), asyncio.Queue[int](), asyncio.Event()
    go = asyncio.Event()

    async def tick() -> int:
        await ticks.put(1)
        inside.set()
        await go.wait()
        return 0

    loop = Loop("t", tick, rest_s=3600)
    running = asyncio.create_task(loop.run(stop))
    await inside.wait()
    loop.wake()
    go.set()
    await asyncio.wait_for(ticks.get(), 10)
    await asyncio.wait_for(ticks.get(), 10)
    stop.set()
    await running


async def test_a_loop_tells_how_much_it_did_and_when_last_well() -> None:
    stop, work = asyncio.Event(), [3, 4]

    async def tick() -> int:
        if not work:
            stop.set()
            return 0
        return work.pop()

    loop = Loop("t", tick, rest_s=3600)
    before = loop.age_s
    await loop.run(stop)
    assert (loop.ticks, loop.done, loop.failures) == (3, 7, 0)
    assert 0 <= loop.age_s < before + 10
