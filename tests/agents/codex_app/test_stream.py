"""The order of events."""

from __future__ import annotations

from stationmaster.agents.codex_app.stream import EventStream
from stationmaster.agents.events import (
    AgentEvent,
    AgentWarning,
    ItemCompleted,
    ItemStarted,
    ProcessExited,
    TurnCompleted,
    TurnStarted,
)


def started(name: str) -> ItemStarted:
    return ItemStarted(item_id=name, item_type="x", summary="", detail={})


def completed(name: str) -> ItemCompleted:
    return ItemCompleted(item_id=name, item_type="x", summary="", detail={})


async def drained(stream: EventStream) -> list[AgentEvent]:
    seen = []
    while (event := await stream.next()) is not None:
        seen.append(event)
    return seen


async def test_repeats_and_phases_that_go_back_are_dropped() -> None:
    # GW-R-149
    stream = EventStream()
    for event in (
        TurnStarted(turn_id="t"),
        started("a"),
        started("a"),
        completed("a"),
        started("a"),
        completed("a"),
        completed("b"),
        AgentWarning(message="w"),
        AgentWarning(message="w"),
        TurnCompleted(turn_id="t", status="completed"),
        TurnCompleted(turn_id="t", status="failed"),
    ):
        stream.put(event)
    stream.end(ProcessExited(code=0))
    stream.end(ProcessExited(code=1))
    stream.put(started("late"))
    seen = await drained(stream)
    assert [event.kind for event in seen] == [
        "turn_started",
        "item_started",
        "item_completed",
        "item_completed",
        "warning",
        "warning",
        "turn_completed",
        "process_exited",
    ]
    assert [event.seq for event in seen] == list(range(1, 9))
    assert await stream.next() is None


async def test_what_is_held_comes_in_order_and_the_end_opens_the_gate() -> None:
    # GW-R-147
    stream = EventStream()
    stream.put(started("before"))
    stream.shut()
    stream.put(started("held"))
    stream.put(completed("held"))
    first = await stream.next()
    assert first is not None
    assert first.seq == 1
    stream.open()
    stream.put(started("after"))
    stream.shut()
    stream.put(completed("after"))
    stream.end(ProcessExited(code=None))
    await stream.opened()
    assert [event.seq for event in await drained(stream)] == [2, 3, 4, 5, 6]
