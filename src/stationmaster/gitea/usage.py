"""Meters one run while it goes on: what it uses is counted in the ledger, and a budget that is spent ends it."""

from __future__ import annotations

import asyncio

from stationmaster.agents.events import AgentEvent, ItemStarted, TokenUsage
from stationmaster.clock import MICROS
from stationmaster.command import LedgerPort
from stationmaster.errors import StationmasterError
from stationmaster.gitea import codes, limits
from stationmaster.gitea.limits import Used
from stationmaster.gitea.settings import LimitSettings

_EVERY_S = 10.0
_STEPS = frozenset({"commandExecution", "fileChange", "mcpToolCall", "dynamicToolCall", "webSearch"})


class Meter:
    """Counts one run; `over` is set once it may not go on, and `code` says why."""

    def __init__(self, port: LedgerPort, run_id: str, allowed: LimitSettings, before: Used) -> None:
        """Takes what the task's other runs used `before`."""
        self.over = asyncio.Event()
        self.code: str | None = None
        self._port = port
        self._run_id = run_id
        self._limits = allowed
        self._before = before
        self._steps = 0
        self._counted_at = asyncio.get_running_loop().time()

    @property
    def seconds_left(self) -> float | None:
        """How long the run may take within its task's budget of time; None when there is none."""
        if not self._limits.task_wall_s:
            return None
        return max(0.0, self._limits.task_wall_s - self._before.micros / MICROS)

    async def add(self, event: AgentEvent) -> None:
        """Takes what the agent did into account."""
        now = asyncio.get_running_loop().time()
        if isinstance(event, TokenUsage):
            await self._count(event.thread_id, event.total_tokens)
        elif now - self._counted_at >= _EVERY_S:
            await self._count(event.thread_id, None)
        if isinstance(event, ItemStarted) and event.item_type in _STEPS:
            self._steps += 1
            if 0 < self._limits.turn_steps < self._steps:
                self.end(codes.TURN_STEPS_SPENT)

    async def close(self) -> None:
        """Counts the time up to now; what cannot be written is let go, for a run is not lost for its bill."""
        try:
            await self._count("", None)
        except StationmasterError:
            return

    def end(self, code: str) -> None:
        """Says that the run may not go on."""
        self.code = self.code or code
        self.over.set()

    async def _count(self, thread_id: str, total: int | None) -> None:
        self._counted_at = asyncio.get_running_loop().time()
        tokens = await self._port.hot(limits.count, self._run_id, thread_id, total)
        if 0 < self._limits.task_tokens <= self._before.tokens + tokens:
            self.end(codes.TASK_BUDGET_SPENT)
