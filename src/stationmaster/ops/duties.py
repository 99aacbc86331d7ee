"""The daemon's background work on one forge: what runs, in which order it begins, and how it ends.

Recovery looks once and the isolation of agents is tried before anything is claimed. At the end nothing new is claimed,
running turns are stopped and their trees saved within a bounded time; what is not done by then is recovery's.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from stationmaster.agents.codex_app.probe import probe
from stationmaster.clock import SystemClock
from stationmaster.control.readiness import Standing
from stationmaster.errors import Stale, StationmasterError
from stationmaster.gitea.catchup import Catchup
from stationmaster.gitea.gear import Gear
from stationmaster.gitea.orders import Orders
from stationmaster.gitea.receipts import Relay
from stationmaster.gitea.recovery import Recovery
from stationmaster.gitea.retention import Retention
from stationmaster.gitea.scheduler import Scheduler
from stationmaster.gitea.unblock import Unblocker
from stationmaster.gitea.webhook import Webhook
from stationmaster.ledger import lease
from stationmaster.ops.home import Home
from stationmaster.ops.loop import Loop
from stationmaster.ops.metrics.exposition import ForgeState, LoopState, Working

_SCHEDULER_REST_S = 1.0
_UNBLOCK_REST_S = 2.0
_RECOVERY_REST_S = 3.0
_RELAY_REST_S = 2.0
_ORDERS_REST_S = 2.0
_CATCHUP_REST_S = 2.0
_BOT_REST_S = 60.0
_RETENTION_REST_S = 3600.0
_WALLS_REST_S = 60.0
_MOST_SEEN_REST_S = 30.0
# Long enough for an interrupted turn to end and its tree to be committed; the unit file allows a minute for all.
_CLOSE_S = 40.0

_log = structlog.get_logger(__name__)


class Duties:
    """The loops of one worker; made inside the event loop that runs them."""

    def __init__(self, gear: Gear, webhook: Webhook, home: Home, *, dead_after_s: float, retention: Retention) -> None:
        self._gear = gear
        self._webhook = webhook
        self._home = home
        self._clock = SystemClock()
        self._refused: str | None = "It is being tried whether agents can be isolated here."
        self._walls_stand = False
        self._walls_tried = False
        self._looked = False
        self._scheduler = Scheduler(gear, unfit=lambda: not self._walls_stand)
        self._recovery = Recovery(gear, busy=lambda: self._scheduler.task_ids)
        self._relay = Relay(gear)
        self._scheduling = Loop("scheduler", lambda: self._scheduler.tick(self._clock.now()), rest_s=_SCHEDULER_REST_S)
        self._unblocker = Unblocker(gear)
        self._unblocking = Loop("unblock", lambda: self._unblocker.tick(self._clock.now()), rest_s=_UNBLOCK_REST_S)
        self._orders = Orders(gear)
        self._ordering = Loop("orders", lambda: self._orders.tick(self._clock.now()), rest_s=_ORDERS_REST_S)
        recovery_rest_s = min(_RECOVERY_REST_S, gear.settings.ttl_s / 2)
        seen_rest_s = min(_MOST_SEEN_REST_S, dead_after_s / 4)
        self._recovering = Loop("recovery", lambda: self._recovery.tick(self._clock.now()), rest_s=recovery_rest_s)
        self._retention = retention
        self._catchup = Catchup(gear, wake=self.wake)
        self._reading = Loop("catchup", lambda: self._catchup.tick(self._clock.now()), rest_s=_CATCHUP_REST_S)
        self._others = (
            self._reading,
            Loop("retention", lambda: self._retention.tick(self._clock.now()), rest_s=_RETENTION_REST_S),
            self._ordering,
            Loop("relay", lambda: self._relay.tick(self._clock.now()), rest_s=_RELAY_REST_S),
            Loop("worker", self._say_alive, rest_s=seen_rest_s),
            Loop("bot", self._ask_who_we_are, rest_s=_BOT_REST_S),
            Loop("walls", self._look_at_walls, rest_s=_WALLS_REST_S),
        )

    @property
    def standing(self) -> Standing:
        """How far the start has come, apart from the ledger."""
        return Standing(
            recovery="done" if self._looked or self._recovering.ticks > self._recovering.failures else "pending",
            isolation="proven" if self._walls_stand else "refused" if self._walls_tried else "pending",
            forge="pending" if self._webhook.bot_id is None else "reached",
            runs_refused=self._refused,
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
            forges={gear.settings.instance_id: ForgeState(gear.forge.asked, gear.forge.seconds)},
        )

    @property
    def _loops(self) -> tuple[Loop, ...]:
        return (*self._others, self._scheduling, self._recovering, self._unblocking)

    def wake(self) -> None:
        """Says that something may be claimable, or that an operator wants something of a run or a worktree."""
        self._scheduling.wake()
        self._unblocking.wake()
        self._ordering.wake()
        self._reading.wake()

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set, then ends what is under way."""
        tasks = [asyncio.create_task(loop.run(stop), name=loop.name) for loop in self._others]
        tasks.append(asyncio.create_task(self._work(stop), name="work"))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # A duty that ended by itself broke; without it the others must not go on as if all were well.
            stop.set()
            await stopping
            await self._close(tasks)

    async def _work(self, stop: asyncio.Event) -> None:
        await self._first_look()
        await asyncio.gather(*(loop.run(stop) for loop in (self._scheduling, self._recovering, self._unblocking)))

    async def _first_look(self) -> None:
        # A claim leaves alone what recovery has not settled, so a look that fails must not end the daemon.
        try:
            self._recovering.done += await self._recovery.tick(self._clock.now())
            self._recovering.ticks += 1
            self._looked = True
        except Exception as error:  # noqa: BLE001 - the loop looks again
            _log.warning("recovery.postponed", error=str(error), exc_info=error)

    async def _close(self, tasks: list[asyncio.Task[None]]) -> None:
        try:
            self._catchup.close()
            async with asyncio.timeout(_CLOSE_S):
                await self._scheduler.close()
                await asyncio.wait(tasks)
                await self._relay.close()
        except TimeoutError:
            _log.warning("daemon.left_to_recovery", tasks=sorted(self._scheduler.task_ids))
            # A command that waits for a silent forge would keep the home for as long as git may take.
            self._gear.git.close()
        except StationmasterError as error:
            _log.warning("daemon.left_to_recovery", error=str(error))
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

    async def _ask_who_we_are(self) -> int:
        if self._webhook.bot_id is None:
            self._webhook.bot_id = await self._gear.bot_id()
            _log.info("forge.reached", bot=self._gear.settings.bot_login, bot_id=self._webhook.bot_id)
        return 0
