"""The frame of every background duty: call `tick`, rest, be woken, and back off when it fails."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

import structlog

from stationmaster.errors import Bug, StationmasterError

_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 30.0

_log = structlog.get_logger(__name__)


class Loop:
    """Runs one duty until it is told to stop; `tick` returns how much it did, and 0 means rest.

    `ticks`, `done` and `failures` count its rounds, what they did, and those that failed; `age_s` is how long ago one
    last ended well.
    """

    def __init__(self, name: str, tick: Callable[[], Awaitable[int]], *, rest_s: float) -> None:
        self.name = name
        self._tick = tick
        self._rest_s = rest_s
        self._bell = asyncio.Event()
        self.ticks = self.done = self.failures = 0
        self._well = time.monotonic()

    @property
    def age_s(self) -> float:
        """Seconds since a round last ended well, or since the duty was made."""
        return time.monotonic() - self._well

    def wake(self) -> None:
        """Ends the present rest: there is something to look at."""
        self._bell.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Ticks until `stop` is set; a tick that is under way is finished first."""
        backoff = 0.0
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                self._bell.clear()
                try:
                    done = await self._tick()
                    backoff = 0.0
                    self._well = time.monotonic()
                    self.done += done
                except Exception as error:  # noqa: BLE001 - a duty outlives its bad days
                    backoff = min(max(backoff * 2, _FIRST_BACKOFF_S), _LONGEST_BACKOFF_S)
                    _complain(self.name, error, backoff)
                    self.failures += 1
                    done = 0
                self.ticks += 1
                if not done:
                    await self._rest(stopping, backoff or self._rest_s)
        finally:
            stopping.cancel()

    async def _rest(self, stopping: asyncio.Task[bool], seconds: float) -> None:
        ringing = asyncio.create_task(self._bell.wait())
        try:
            await asyncio.wait({stopping, ringing}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ringing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ringing


def _complain(name: str, error: Exception, backoff: float) -> None:
    expected = isinstance(error, StationmasterError) and not isinstance(error, Bug)
    _log.warning("loop.failed", loop=name, error=str(error), again_in_s=backoff, exc_info=None if expected else error)
