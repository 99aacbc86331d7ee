"""The daemon: takes the home, binds its addresses, opens the ledger, runs every server and loop in one event loop.

Stops in order on SIGTERM or SIGINT: no new work, then what is under way, then the ledger. A second signal ends it at
once; nothing is lost by that, it only has more to recover.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog
import uvloop

from stationmaster import ids
from stationmaster.clock import SystemClock
from stationmaster.control import rest
from stationmaster.control.commands import Site
from stationmaster.control.registry import COMMANDS
from stationmaster.control.server import Server, bind_tcp, bind_unix
from stationmaster.ledger import lease
from stationmaster.ops import wiring
from stationmaster.ops.home import Home, locked, worker_id
from stationmaster.ops.settings import Config

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a daemon can be reached once it is ready."""

    web: str
    socket: str
    home: str
    pid: int


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
    stop = asyncio.Event()
    incarnation = ids.new("inc")
    worker = worker_id(home)
    ledger = wiring.open_ledger(config, home, SystemClock())
    port = wiring.daemon_port(ledger)
    try:
        # Under the home's lock: this is what proves every earlier process of this worker dead (K5).
        await port.hot(lease.register_worker, worker, incarnation)
        app = rest.app(Site(port, wake=lambda: None), COMMANDS, webhook=None, ready=lambda: True)
        servers = [Server(app, web), Server(app, control)]
        with _signals(stop):
            async with asyncio.TaskGroup() as group:
                for server in servers:
                    group.create_task(server.run_until(stop))
                announce(_address(home, web))
                _log.info("daemon.ready", worker=worker, incarnation=incarnation)
        _log.info("daemon.stopped", worker=worker)
    finally:
        port.close()
        ledger.close()


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


def _address(home: Home, web: socket.socket) -> Address:
    host, port = web.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return Address(f"http://{shown}:{port}", str(home.socket), str(home.path), os.getpid())
