"""The daemon's background work: what runs, in which order it begins, and how it ends. Each forge has a desk of its own.

Recovery looks once and the isolation of agents is tried before anything is claimed for a forge. At the end nothing new
is claimed, running turns are stopped and their trees saved within a bounded time; what is not done by then is
recovery's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import structlog

from stationmaster.agents.codex_app.probe import probe
from stationmaster.clock import SystemClock
from stationmaster.control.readiness import Standing
from stationmaster.errors import Stale
from stationmaster.gitea.gear import Gear
from stationmaster.gitea.retention import Retention
from stationmaster.gitea.scheduler import Scheduler
from stationmaster.gitea.webhook import Webhook
from stationmaster.ledger import lease
from stationmaster.ops.desk import Desk
from stationmaster.ops.home import Home
from stationmaster.ops.loop import Loop
from stationmaster.ops.metrics.exposition import ForgeState, LoopState, Working

_SCHEDULER_REST_S = 1.0
_RETENTION_REST_S = 3600.0
_WALLS_REST_S = 60.0
_MOST_SEEN_REST_S = 30.0
# Long enough for an interrupted turn to end and its tree to be committed; the unit file allows a minute for all.
_CLOSE_S = 40.0

_log = structlog.get_logger(__name__)


class Duties:
    """The loops of one worker; made inside the event loop that runs them."""

    def __init__(
        self, forges: Sequence[tuple[Gear, Webhook]], home: Home, *, dead_after_s: float, retention: Retention
    ) -> None:
        gears = [gear for gear, _ in forges]
        # Everything but the forge and its settings is one for all.
        self._gear = gears[0]
        self._home = home
        self._clock = SystemClock()
        self._refused: str | None = "It is being tried whether agents can be isolated here."
        self._walls_stand = False
        self._walls_tried = False
        self._scheduler = Scheduler(*gears, unfit=self._unfit)
        self._scheduling = Loop("scheduler", lambda: self._scheduler.tick(self._clock.now()), rest_s=_SCHEDULER_REST_S)
        busy = self._busy
        self._desks = {
            gear.settings.instance_id: Desk(gear, webhook, busy=busy, wake=self.wake) for gear, webhook in forges
        }
        seen_rest_s = min(_MOST_SEEN_REST_S, dead_after_s / 4)
        self._retention = retention
        self._others = (
            *(loop for desk in self._desks.values() for loop in desk.first),
            Loop("retention", lambda: self._retention.tick(self._clock.now()), rest_s=_RETENTION_REST_S),
            Loop("worker", self._say_alive, rest_s=seen_rest_s),
            Loop("walls", self._look_at_walls, rest_s=_WALLS_REST_S),
        )

    @property
    def standing(self) -> Standing:
        """How far the start has come, apart from the ledger."""
        desks = self._desks.values()
        return Standing(
            recovery="done" if all(desk.recovered for desk in desks) else "pending",
            isolation="proven" if self._walls_stand else "refused" if self._walls_tried else "pending",
            forge="reached" if all(desk.reached for desk in desks) else "pending",
            runs_refused=self._refused,
            silent=tuple(desk.forge for desk in desks if not desk.reached) if len(desks) > 1 else (),
        )

    @property
    def working(self) -> Working:
        """What is under way, for metrics."""
        gear = self._gear
        return Working(
            live_runs=len(self._scheduler.task_ids),
            max_runs=gear.station.max_runs,
            refused=self._walls_tried and not self._walls_stand,
            loops={loop.name: LoopState(loop.ticks, loop.done, loop.failures, loop.age_s) for loop in self._loops},
            forges={
                name: ForgeState(desk.gear.forge.asked, desk.gear.forge.seconds) for name, desk in self._desks.items()
            },
        )

    @property
    def _loops(self) -> tuple[Loop, ...]:
        return (*self._others, self._scheduling, *(loop for desk in self._desks.values() for loop in desk.later))

    def wake(self) -> None:
        """Says that something may be claimable, or that an operator wants something of a run or a worktree."""
        self._scheduling.wake()
        for desk in self._desks.values():
            desk.wake()

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set, then ends what is under way."""
        tasks = [asyncio.create_task(loop.run(stop), name=loop.name) for loop in self._others]
        works = [self._work(desk, stop) for desk in self._desks.values()]
        tasks += [asyncio.create_task(work, name="work") for work in works]
        tasks.append(asyncio.create_task(self._scheduling.run(stop), name="scheduler"))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # A duty that ended by itself broke; without it the others must not go on as if all were well.
            stop.set()
            await stopping
            await self._close(tasks)

    async def _work(self, desk: Desk, stop: asyncio.Event) -> None:
        await desk.first_look()
        self._scheduling.wake()
        await desk.work(stop)

    def _unfit(self, forge: str) -> bool:
        # Nothing is claimed for a forge before its first look; another forge's look may hang.
        return not self._walls_stand or not self._desks[forge].begun

    def _busy(self) -> frozenset[str]:
        return self._scheduler.task_ids

    async def _close(self, tasks: list[asyncio.Task[None]]) -> None:
        try:
            for desk in self._desks.values():
                desk.closing()
            async with asyncio.timeout(_CLOSE_S):
                await self._scheduler.close()
                await asyncio.wait(tasks)
                for desk in self._desks.values():
                    await desk.close()
        except TimeoutError:
            _log.warning("daemon.left_to_recovery", tasks=sorted(self._scheduler.task_ids))
            # A command that waits for a silent forge would keep the home for as long as git may take.
            self._gear.git.close()
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended

    # The isolation of agents

    async def _prove_walls(self) -> None:
        began = time.monotonic()
        self._home.scratch.mkdir(mode=0o700, exist_ok=True)
        mode = self._gear.station.isolation
        try:
            reason = await self._gear.port.off(probe, self._gear.codex, self._home.scratch, mode=mode)
        except Exception as error:  # noqa: BLE001 - a wall that could not be tried is no wall
            reason = f"The isolation of agents could not be tried: {error}"
        self._refused = reason
        self._walls_stand = reason is None
        self._walls_tried = True
        if reason is None:
            _log.info("agents.isolated", mode=mode, seconds=round(time.monotonic() - began, 2))
        else:
            _log.error("agents.refused", reason=reason)

    async def _look_at_walls(self) -> int:
        if not self._walls_stand:
            await self._prove_walls()
            self._scheduling.wake()
        return 0

    # Small duties

    async def _say_alive(self) -> int:
        station = self._gear.station
        try:
            await self._gear.port.hot(lease.seen_worker, station.worker_id, station.incarnation)
        except Stale:
            # The home's lock makes this impossible but for a copied home; whoever came later is right.
            _log.error("worker.superseded", worker=station.worker_id)
        return 0
