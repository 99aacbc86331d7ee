"""What this worker does for one forge apart from runs: recovery, comments, orders, reading, and asking who the bot is.

Each forge has loops of its own, so that one that does not answer holds up nobody else's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from stationmaster.clock import SystemClock
from stationmaster.errors import StationmasterError
from stationmaster.gitea.catchup import Catchup
from stationmaster.gitea.gear import Gear
from stationmaster.gitea.orders import Orders
from stationmaster.gitea.receipts import Relay
from stationmaster.gitea.recovery import Recovery
from stationmaster.gitea.unblock import Unblocker
from stationmaster.gitea.webhook import Webhook
from stationmaster.ops import config
from stationmaster.ops.loop import Loop

_UNBLOCK_REST_S = 2.0
_RECOVERY_REST_S = 3.0
_RELAY_REST_S = 2.0
_ORDERS_REST_S = 2.0
_CATCHUP_REST_S = 2.0
_BOT_REST_S = 60.0

_log = structlog.get_logger(__name__)


class Desk:
    """The duties for one forge; `busy` names the tasks that this process works on, `wake` tells of new ones."""

    def __init__(
        self, gear: Gear, webhook: Webhook, *, busy: Callable[[], frozenset[str]], wake: Callable[[], None]
    ) -> None:
        self.gear = gear
        self.forge = gear.settings.instance_id
        # Whether the first look is over, however it went.
        self.begun = False
        self._looked = False
        self._webhook = webhook
        self._clock = SystemClock()
        now = self._clock.now
        self._recovery = Recovery(gear, busy=busy)
        self._relay = Relay(gear)
        self._unblocker = Unblocker(gear)
        self._orders = Orders(gear)
        self._catchup = Catchup(gear, wake=wake)
        rest_s = min(_RECOVERY_REST_S, gear.settings.ttl_s / 2)
        self.recovering = Loop(self._named("recovery"), lambda: self._recovery.tick(now()), rest_s=rest_s)
        self._unblocking = Loop(self._named("unblock"), lambda: self._unblocker.tick(now()), rest_s=_UNBLOCK_REST_S)
        self._ordering = Loop(self._named("orders"), lambda: self._orders.tick(now()), rest_s=_ORDERS_REST_S)
        self._reading = Loop(self._named("catchup"), lambda: self._catchup.tick(now()), rest_s=_CATCHUP_REST_S)
        self.first = (
            self._reading,
            self._ordering,
            Loop(self._named("relay"), lambda: self._relay.tick(now()), rest_s=_RELAY_REST_S),
            Loop(self._named("bot"), self._ask_who_we_are, rest_s=_BOT_REST_S),
        )
        # What begins after the first look at what an earlier process left.
        self.later = (self.recovering, self._unblocking)

    def _named(self, duty: str) -> str:
        return duty if self.forge == config.DEFAULT else f"{duty}:{self.forge}"

    @property
    def reached(self) -> bool:
        """Whether the forge has told who the bot is."""
        return self._webhook.bot_id is not None

    @property
    def recovered(self) -> bool:
        """Whether what an earlier process left was looked at."""
        return self._looked or self.recovering.ticks > self.recovering.failures

    def wake(self) -> None:
        """Says that an operator, or somebody at the forge, wants something."""
        for loop in (self._unblocking, self._ordering, self._reading):
            loop.wake()

    async def first_look(self) -> None:
        """Looks once at what an earlier process left."""
        # A claim leaves alone what recovery has not settled, so a look that fails must not end the daemon.
        try:
            self.recovering.done += await self._recovery.tick(self._clock.now())
            self.recovering.ticks += 1
            self._looked = True
        except Exception as error:  # noqa: BLE001 - the loop looks again
            _log.warning("recovery.postponed", forge=self.forge, error=str(error), exc_info=error)
        self.begun = True

    async def work(self, stop: asyncio.Event) -> None:
        """Does what comes after the first look until `stop` is set."""
        await asyncio.gather(*(loop.run(stop) for loop in self.later))

    def closing(self) -> None:
        """Begins no further reading."""
        self._catchup.close()

    async def close(self) -> None:
        """Gives up the duties that one process at a time has."""
        try:
            await self._relay.close()
        except StationmasterError as error:
            # It runs out by itself.
            _log.warning("relay.not_left", forge=self.forge, error=str(error))

    async def _ask_who_we_are(self) -> int:
        if self._webhook.bot_id is None:
            self._webhook.bot_id = await self.gear.bot_id()
            login = self.gear.settings.bot_login
            _log.info("forge.reached", forge=self.forge, bot=login, bot_id=self._webhook.bot_id)
        return 0
