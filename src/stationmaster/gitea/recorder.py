"""Keeps what happens in a run, in chunks, while it happens (K4)."""

from __future__ import annotations

import asyncio
import contextlib

from stationmaster import canonical
from stationmaster.agents.events import AgentEvent, record
from stationmaster.command import LedgerPort
from stationmaster.errors import StationmasterError
from stationmaster.jobs import actions as jobs
from stationmaster.jobs.model import RunEvent
from stationmaster.ledger.tx import HotTx, redact_values

_CHUNK = 64
_CHUNK_S = 0.25


class Recorder:
    """The events of one run on their way into the ledger."""

    def __init__(self, port: LedgerPort, run_id: str) -> None:
        self._port = port
        self._run_id = run_id
        self._waiting: list[tuple[int, str, str]] = []
        self._later: asyncio.Task[None] | None = None

    async def add(self, event: AgentEvent) -> None:
        """Takes one event; it is durable within a moment."""
        body = canonical.dump(redact_values(record(event)))
        self._waiting.append((event.seq, event.kind, body))
        if len(self._waiting) >= _CHUNK:
            await self._flush()
        elif self._later is None:
            self._later = asyncio.create_task(self._soon())

    async def close(self) -> None:
        """Makes everything durable."""
        if self._later is not None:
            self._later.cancel()
            await asyncio.gather(self._later, return_exceptions=True)
        await self._flush()

    async def _soon(self) -> None:
        await asyncio.sleep(_CHUNK_S)
        self._later = None
        # What cannot be kept now is tried again with the next event, which then says so.
        with contextlib.suppress(StationmasterError):
            await self._flush()

    async def _flush(self) -> None:
        chunk, self._waiting = self._waiting, []
        if not chunk:
            return
        try:
            await self._port.hot(_keep, self._run_id, chunk)
        except StationmasterError:
            self._waiting = [*chunk, *self._waiting]
            raise


def _keep(hot: HotTx, run_id: str, chunk: list[tuple[int, str, str]]) -> None:
    jobs.append(hot, run_id, [RunEvent(seq, hot.now, kind, body) for seq, kind, body in chunk])
