"""The daemon: takes the home, binds its addresses, opens the ledger, runs every server and loop in one event loop.

Stops in order on SIGTERM or SIGINT: no new work, then what is under way, then the ledger. A second signal ends it at
once; nothing is lost by that, it only has more to recover.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import structlog
import uvloop

from stationmaster import ids
from stationmaster.clock import SystemClock
from stationmaster.control import rest
from stationmaster.control.dispatch import Dispatch
from stationmaster.control.readiness import Standing
from stationmaster.control.registry import COMMANDS
from stationmaster.control.server import Server, bind_tcp, bind_unix
from stationmaster.errors import StationmasterError
from stationmaster.gitea.settings import Station
from stationmaster.gitea.webhook import Webhook
from stationmaster.ledger import lease
from stationmaster.ops import config as configuration
from stationmaster.ops import wiring
from stationmaster.ops.duties import Duties
from stationmaster.ops.home import Home, locked, worker_id
from stationmaster.ops.loop import Loop
from stationmaster.ops.metrics.exposition import Working
from stationmaster.ops.metrics.figures import Figures
from stationmaster.ops.metrics.follow import Follower
from stationmaster.ops.settings import Config

_FOLLOW_REST_S = 2.0
_LAST_WINDOWS = 50

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a daemon can be reached once it is ready."""

    web: str
    socket: str
    home: str
    pid: int
    forge: str


def run(home: Home, config: Config, announce: Callable[[Address], None]) -> None:
    """Runs the daemon until it is told to stop; raises before anything started when it cannot start."""
    with locked(home, wait_s=wiring.LOCK_WAIT_S), contextlib.ExitStack() as stack:
        web = stack.enter_context(bind_tcp(config.web.host, config.web.port))
        control = stack.enter_context(bind_unix(home.socket))
        stack.callback(home.socket.unlink, missing_ok=True)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(home, config, web, control, announce))


async def _serve(
    home: Home, config: Config, web: socket.socket, control: socket.socket, announce: Callable[[Address], None]
) -> None:
    ledger = wiring.open_ledger(config, home, SystemClock())
    port = wiring.daemon_port(ledger)
    try:
        async with contextlib.AsyncExitStack() as stack:
            worker, incarnation = worker_id(home), ids.new("inc")
            # Under the home's lock: this is what proves every earlier process of this worker dead (K5).
            await port.hot(lease.register_worker, worker, incarnation)
            house = _House(home, config, port)
            if configuration.has_forge(config):
                await house.take_up(wiring.station(config, home, worker, incarnation), stack)
            else:
                _log.warning(
                    "forge.none", words="No forge is configured: there is no webhook and nothing is worked on."
                )
            await house.tell_of_strangers()
            with _signals(house.stop):
                await house.run(web, control, lambda: announce(_address(home, config, web)))
            _log.info("daemon.stopped", worker=worker)
    finally:
        port.close()
        ledger.close()


class _House:
    """Everything that runs in the event loop: the two servers, and the duties when there is a forge."""

    def __init__(self, home: Home, config: Config, port: Dispatch) -> None:
        self.stop = asyncio.Event()
        self._home = home
        self._config = config
        self._port = port
        self._duties: Duties | None = None
        self._doors: dict[str, rest.Webhook] = {}
        self._figures = Figures()
        self._follower = Follower(port, self._figures)

    async def take_up(self, station: Station, stack: contextlib.AsyncExitStack) -> None:
        """Builds what works on the forges' mentions."""
        config = self._config
        forges = [
            (gear, Webhook(self._port, gear.settings)) for gear in wiring.gears(config, self._home, self._port, station)
        ]
        retention = wiring.retention(config, self._home, self._port)
        self._duties = Duties(forges, self._home, dead_after_s=config.worker.dead_after_s, retention=retention)
        for gear, webhook in forges:
            await stack.enter_async_context(gear.forge)
            name = gear.settings.instance_id
            self._doors[name] = wiring.webhook_door(
                webhook, self._duties.wake, config.web.webhook_max_bytes, partial(self._figures.delivery, name)
            )
            about = {"instance": name, "forge": gear.settings.base_url, "bot": gear.settings.bot_login}
            _log.info("forge.configured", **about, runs=station.max_runs)

    async def tell_of_strangers(self) -> None:
        """Says which open tasks belong to a forge that is not configured: they stay as they are until it is again."""
        for forge, tasks in (await self._port.read(wiring.open_by_forge)).items():
            if forge not in self._doors:
                words = "Its open tasks stay as they are until it is configured again, or are cancelled by hand."
                _log.warning("forge.not_configured", instance=forge, tasks=tasks, words=words)

    async def run(self, web: socket.socket, control: socket.socket, ready: Callable[[], None]) -> None:
        """Serves and works until `stop` is set; the servers answer until the last run is over."""
        over = asyncio.Event()
        site = wiring.site(self._config, self._home, self._port, self._wake)
        metrics = wiring.metrics(self._config, self._home, self._port, self._figures, self._follower, self._working)
        app = rest.app(
            site,
            COMMANDS,
            self._doors,
            lambda: not self.stop.is_set(),
            standing=self._standing,
            metrics=metrics,
            counted=self._figures.response,
            console=wiring.console(self._config, site, lambda: not self.stop.is_set(), self._standing),
        )
        following = Loop("figures", lambda: self._follower.tick(0), rest_s=_FOLLOW_REST_S)
        await self._follower.begin()
        async with asyncio.TaskGroup() as group:
            for server in (Server(app, web), Server(app, control)):
                group.create_task(server.run_until(over))
            group.create_task(following.run(over))
            ready()
            _log.info("daemon.ready")
            try:
                await (self.stop.wait() if self._duties is None else self._duties.run(self.stop))
            finally:
                over.set()
        # What the last moments wrote is told too.
        with contextlib.suppress(StationmasterError):
            await self._follower.catch_up(_LAST_WINDOWS)

    def _wake(self) -> None:
        if self._duties is not None:
            self._duties.wake()

    def _standing(self) -> Standing:
        standing = Standing() if self._duties is None else self._duties.standing
        return dataclasses.replace(standing, writable=self._port.ledger.pulse.writable)

    def _working(self) -> Working:
        return Working() if self._duties is None else self._duties.working


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def told() -> None:
        if stop.is_set():
            os._exit(130)
        _log.info("daemon.stopping")
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _address(home: Home, config: Config, web: socket.socket) -> Address:
    host, port = web.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return Address(
        f"http://{shown}:{port}",
        str(home.socket),
        str(home.path),
        os.getpid(),
        ", ".join(forge.base_url for forge in configuration.forges(config).values()),
    )
