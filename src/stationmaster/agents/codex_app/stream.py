"""The order in which a run's events reach their reader: numbered by the host, each once, none before its turn is known.

The app-server numbers nothing (GW-R-149), and may speak of a turn before the answer that names it (GW-R-147).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from stationmaster.agents.events import (
    AgentEvent,
    AgentMessage,
    ItemCompleted,
    ItemStarted,
    ProcessExited,
    TurnCompleted,
    TurnStarted,
)

_STARTED, _COMPLETED = 1, 2


class EventStream:
    """A queue of events with a gate that is shut while a turn is being started."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
        self._held: list[AgentEvent] = []
        self._gate = asyncio.Event()
        self._gate.set()
        self._phases: dict[str, int] = {}
        self._seq = 0
        self._ended = False

    def shut(self) -> None:
        """Holds back everything until `open`."""
        self._gate.clear()

    def open(self) -> None:
        """Lets what was held, and what follows, reach the reader."""
        self._gate.set()
        held, self._held = self._held, []
        for event in held:
            self._pass(event)

    async def opened(self) -> None:
        """Waits until the gate is open."""
        await self._gate.wait()

    def put(self, event: AgentEvent) -> None:
        """Takes an event; a repeat of the same phase of the same thing, or an earlier phase, is dropped."""
        if self._ended or self._is_repeat(event):
            return
        if self._gate.is_set():
            self._pass(event)
        else:
            self._held.append(event)

    def end(self, last: ProcessExited) -> None:
        """Takes the last event."""
        if not self._ended:
            self.put(last)
            self._ended = True
            self.open()
            self._queue.put_nowait(None)

    async def next(self) -> AgentEvent | None:
        """Returns the next event, or None when the last one was taken."""
        event = await self._queue.get()
        if event is None:
            self._queue.put_nowait(None)
        return event

    def _pass(self, event: AgentEvent) -> None:
        self._seq += 1
        self._queue.put_nowait(replace(event, seq=self._seq))

    def _is_repeat(self, event: AgentEvent) -> bool:
        match event:
            case ItemStarted(item_id=name):
                key, phase = f"item:{name}", _STARTED
            case ItemCompleted(item_id=name) | AgentMessage(item_id=name):
                key, phase = f"item:{name}", _COMPLETED
            case TurnStarted(turn_id=name):
                key, phase = f"turn:{name}", _STARTED
            case TurnCompleted(turn_id=name):
                key, phase = f"turn:{name}", _COMPLETED
            case _:
                return False
        if self._phases.get(key, 0) >= phase:
            return True
        self._phases[key] = phase
        return False
