"""The composition root: builds every part from the configuration and connects them; decides nothing."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from starlette.types import ASGIApp

from stationmaster.agents.codex_app.settings import CodexSettings, packaged_binary
from stationmaster.clock import Clock, SystemClock
from stationmaster.control import rest
from stationmaster.control.commands import Site
from stationmaster.control.dispatch import Dispatch
from stationmaster.control.machine import OPERATOR_KEY
from stationmaster.control.registry import COMMANDS
from stationmaster.ledger.ledger import Ledger, Slice
from stationmaster.ops.home import Home, locked
from stationmaster.ops.settings import Config

SLICES = (Slice("control", "stationmaster.control", machines=(OPERATOR_KEY,)),)

# A command line holds the lock for moments only; a daemon that starts meanwhile waits for it, and the other way round.
LOCK_WAIT_S = 3.0
_OFF_THREADS = 16
_LOCAL_THREADS = 2


def open_ledger(config: Config, home: Home, clock: Clock) -> Ledger:
    """Opens the ledger that the configuration names."""
    database = home.database if config.database.url is None else config.database.url.reveal()
    return Ledger.open(database, SLICES, clock=clock)


def codex_settings(config: Config) -> CodexSettings:
    """Returns what the Codex driver needs to know."""
    codex = config.codex
    return CodexSettings(
        home=codex.home,
        command=codex.command or packaged_binary(),
        model=codex.model,
        reasoning_effort=codex.reasoning_effort,
        developer_instructions=codex.developer_instructions,
        sandbox=codex.sandbox,
        config=codex.config,
        request_timeout_s=codex.request_timeout_s,
    )


@contextlib.asynccontextmanager
async def local_app(config: Config, home: Home) -> AsyncIterator[ASGIApp]:
    """Gives the app to a command line while no daemon holds the home; nothing runs in the background."""
    with locked(home, wait_s=LOCK_WAIT_S):
        ledger = open_ledger(config, home, SystemClock())
        port = Dispatch(ledger, threads=_LOCAL_THREADS)
        try:
            yield rest.app(Site(port, wake=lambda: None), COMMANDS, webhook=None, ready=lambda: True)
        finally:
            port.close()
            ledger.close()


def daemon_port(ledger: Ledger) -> Dispatch:
    """Makes the daemon's port to the ledger, with enough threads for the git work of many runs."""
    return Dispatch(ledger, threads=_OFF_THREADS)
