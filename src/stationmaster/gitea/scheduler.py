"""Claims what is due and lets this worker's runs go; the claim itself is one command, so any number may try (§6).

It never looks at what a task asks for. A full worker claims nothing and spends no attempt; a paused product claims
nothing at all (GW-R-113, GW-R-125).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from stationmaster.command import Cmd
from stationmaster.errors import StationmasterError
from stationmaster.gitea import actions, claiming, limits, operate, steering, store, turn
from stationmaster.gitea.gear import Gear
from stationmaster.gitea.model import Task
from stationmaster.gitea.run import Signals
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.tx import Reader

_SPARE = 32

_log = structlog.get_logger("stationmaster.gitea")


class Scheduler:
    """The runs of this worker."""

    def __init__(self, gear: Gear, *, unfit: Callable[[], bool] = lambda: False) -> None:
        """Takes `unfit`, which tells that no agent may run here: what is due then stays where it is."""
        self._gear = gear
        self._unfit = unfit
        self._runs: dict[str, tuple[asyncio.Task[None], Signals]] = {}
        self._closing = False
        self._told_until: tuple[int, str] | None = None

    @property
    def task_ids(self) -> frozenset[str]:
        """The tasks that this worker is busy with."""
        return frozenset(self._runs)

    async def tick(self, now: int) -> int:
        """Passes on aborts and claims what is due; returns how many tasks it claimed."""
        _ = now
        await self._pass_on_aborts()
        free = self._gear.station.max_runs - len(self._runs)
        if self._closing or free <= 0 or self._unfit():
            return 0
        claimed = 0
        # More than can be taken: what stands first may be held up by something that only a claim finds out.
        for repository_id in await self._gear.port.read(self._due, free + _SPARE):
            if claimed == free or self._closing:
                break
            got = await self._claim(repository_id)
            if got is not None:
                self._begin(*got)
                claimed += 1
        if claimed < free:
            await self._tell_of_holds()
        return claimed

    async def _tell_of_holds(self) -> None:
        """Lets an operator's log know of every task that a limit keeps back since this process began."""
        if self._told_until is None:
            self._told_until = (await self._gear.port.read(_now), "")
        for hold in await self._gear.port.read(limits.holds, self._told_until, _SPARE):
            self._told_until = (hold.since, hold.task_id)
            _log.warning("limit.reached", task=hold.task_id, code=hold.reason, resource=hold.resource_key)

    async def _claim(self, repository_id: str) -> tuple[Task, Lease] | None:
        station = self._gear.station
        cmd = Cmd("task.claim", "system", f"worker:{station.worker_id}")
        try:
            return await self._gear.port.do(cmd, claiming.claim, repository_id, station, self._gear.settings)
        except StationmasterError as error:
            if error.code == "worker_superseded":
                raise
            # Somebody changed the task or the repository at that very moment, or one of them is broken: others go on.
            _log.warning("claim.failed", repository=repository_id, code=error.code, error=str(error))
            return None

    async def close(self) -> None:
        """Claims no more, ends every run and saves its tree; returns when none is left."""
        self._closing = True
        for _, signals in self._runs.values():
            signals.stop.set()
        while self._runs:
            await asyncio.wait({work for work, _ in self._runs.values()})
            await asyncio.sleep(0)

    def _begin(self, task: Task, lease: Lease) -> None:
        signals = Signals()
        if self._closing:
            signals.stop.set()
        before = self._runs.get(task.id)
        work = asyncio.create_task(self._work(task, lease, signals, before and before[0]), name=task.id)
        self._runs[task.id] = (work, signals)
        work.add_done_callback(lambda done: self._forget(task.id, done))

    async def _work(self, task: Task, lease: Lease, signals: Signals, before: asyncio.Task[None] | None) -> None:
        # Every line that this run causes, also on other threads, names what it is about.
        structlog.contextvars.bind_contextvars(**actions.log_ids(task))
        if before is not None:
            # The task came back before its last run was tidied away.
            await asyncio.wait({before})
        await turn.work(self._gear, task, lease, signals)

    def _forget(self, task_id: str, done: asyncio.Task[None]) -> None:
        known = self._runs.get(task_id)
        if known is not None and known[0] is done:
            del self._runs[task_id]

    async def _pass_on_aborts(self) -> None:
        if not self._runs:
            return
        for task_id in await self._gear.port.read(operate.open_aborts):
            if task_id in self._runs:
                self._runs[task_id][1].abort.set()
        if not self._gear.settings.steering:
            return
        for task_id in await self._gear.port.read(steering.wanted):
            if task_id in self._runs:
                self._runs[task_id][1].steer.set()

    def _due(self, reader: Reader, limit: int) -> list[str]:
        return store.due_repositories(reader, self._gear.station.worker_id, limit)


def _now(reader: Reader) -> int:
    return reader.now
