"""Claims what is due and lets this worker's runs go; the claim itself is one command, so any number may try (§6).

It never looks at what a task asks for. A full worker claims nothing and spends no attempt; a paused product claims
nothing at all (GW-R-113, GW-R-125).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

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
    """The runs of this worker, for one forge or several: they share its places.

    A forge without a run keeps one place free as far as there are places, so that one whose runs hang cannot have all.
    Who has the fewest runs comes first, then who was served least lately, then who waits longest.
    """

    def __init__(self, first: Gear, *more: Gear, unfit: Callable[[str], bool] = lambda _forge: False) -> None:
        """Takes `unfit`, which tells of a forge's id that no agent may run for it: what is due stays where it is."""
        self._gears = {gear.settings.instance_id: gear for gear in (first, *more)}
        # Everything but the settings and the forge is one for all.
        self._gear = first
        self._unfit = unfit
        self._live: dict[str, str] = {}
        self._served: list[str] = []
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
        fit = [forge for forge in self._gears if not self._unfit(forge)]
        if self._closing or self._free <= 0 or not fit:
            return 0
        # More than can be taken: what stands first may be held up by something that only a claim finds out.
        due = {forge: await self._gear.port.read(self._due, forge, self._free + _SPARE) for forge in fit}
        claimed = 0
        while self._free > 0 and not self._closing:
            forge = self._next(due)
            if forge is None:
                break
            repository_id = next(iter(due[forge]))
            del due[forge][repository_id]
            got = await self._claim(self._gears[forge], repository_id)
            if got is not None:
                self._served = [*(each for each in self._served if each != forge), forge]
                self._begin(self._gears[forge], *got)
                claimed += 1
        if self._free > 0:
            await self._tell_of_holds()
        return claimed

    @property
    def _free(self) -> int:
        return self._gear.station.max_runs - len(self._runs)

    def _next(self, due: Mapping[str, Mapping[str, int]]) -> str | None:
        """Returns the forge whose turn it is among those that have something due and a place for it."""
        live = {forge: sum(each == forge for each in self._live.values()) for forge in self._gears}
        served = {forge: at for at, forge in enumerate(self._served)}

        def has_place(forge: str) -> bool:
            idle = sum(not live[each] for each in self._gears if each != forge)
            return live[forge] == 0 or self._free > idle

        able = [forge for forge, waiting in due.items() if waiting and has_place(forge)]
        return min(
            able, key=lambda each: (live[each], served.get(each, -1), next(iter(due[each].values()))), default=None
        )

    async def _tell_of_holds(self) -> None:
        """Lets an operator's log know of every task that a limit keeps back since this process began."""
        if self._told_until is None:
            self._told_until = (await self._gear.port.read(_now), "")
        for hold in await self._gear.port.read(limits.holds, self._told_until, _SPARE):
            self._told_until = (hold.since, hold.task_id)
            _log.warning("limit.reached", task=hold.task_id, code=hold.reason, resource=hold.resource_key)

    async def _claim(self, gear: Gear, repository_id: str) -> tuple[Task, Lease] | None:
        station = gear.station
        cmd = Cmd("task.claim", "system", f"worker:{station.worker_id}")
        try:
            return await gear.port.do(cmd, claiming.claim, repository_id, station, gear.settings)
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

    def _begin(self, gear: Gear, task: Task, lease: Lease) -> None:
        signals = Signals()
        if self._closing:
            signals.stop.set()
        before = self._runs.get(task.id)
        work = asyncio.create_task(self._work(gear, task, lease, signals, before and before[0]), name=task.id)
        self._runs[task.id] = (work, signals)
        self._live[task.id] = gear.settings.instance_id
        work.add_done_callback(lambda done: self._forget(task.id, done))

    async def _work(
        self, gear: Gear, task: Task, lease: Lease, signals: Signals, before: asyncio.Task[None] | None
    ) -> None:
        # Every line that this run causes, also on other threads, names what it is about.
        structlog.contextvars.bind_contextvars(**actions.log_ids(task))
        if before is not None:
            # The task came back before its last run was tidied away.
            await asyncio.wait({before})
        await turn.work(gear, task, lease, signals)

    def _forget(self, task_id: str, done: asyncio.Task[None]) -> None:
        known = self._runs.get(task_id)
        if known is not None and known[0] is done:
            del self._runs[task_id]
            del self._live[task_id]

    async def _pass_on_aborts(self) -> None:
        if not self._runs:
            return
        for task_id in await self._gear.port.read(operate.open_aborts):
            if task_id in self._runs:
                self._runs[task_id][1].abort.set()
        if not any(gear.settings.steering for gear in self._gears.values()):
            return
        for task_id in await self._gear.port.read(steering.wanted):
            if task_id in self._runs:
                self._runs[task_id][1].steer.set()

    def _due(self, reader: Reader, forge: str, limit: int) -> dict[str, int]:
        return store.due_repositories(reader, forge, self._gear.station.worker_id, limit)


def _now(reader: Reader) -> int:
    return reader.now
