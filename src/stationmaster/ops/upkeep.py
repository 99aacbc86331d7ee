"""What the commands of upkeep work with; used by the daemon and by a lone command line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from stationmaster.clock import Clock, SystemClock
from stationmaster.command import LedgerPort
from stationmaster.ledger.ledger import PostgresSettings, Slice
from stationmaster.ops import config as configuration
from stationmaster.ops.backup import create
from stationmaster.ops.backup.create import Source
from stationmaster.ops.backup.proof import Judge
from stationmaster.ops.home import Home
from stationmaster.ops.settings import Config
from stationmaster.workspaces.git import Git
from stationmaster.workspaces.paths import Layout

Backup = Callable[[Path | None], Awaitable[dict[str, Any]]]


def source(config: Config, home: Home, slices: tuple[Slice, ...], clock: Clock) -> Source:
    """Returns what a backup copies, and where a restore puts it."""
    url = config.database.url
    return Source(
        home=home,
        database=home.database if url is None else PostgresSettings(url.reveal()),
        slices=slices,
        layout=Layout(root=config.workspace.root, runs=home.runs),
        codex_home=config.codex.home,
        git=_git(config, home),
        clock=clock,
        env=configuration.environment(),
    )


def judge(config: Config, home: Home, slices: tuple[Slice, ...]) -> Judge:
    """Returns what a proof of a backup needs."""
    return Judge(slices, _git(config, home), SystemClock(), configuration.environment())


def backup(config: Config, home: Home, slices: tuple[Slice, ...], port: LedgerPort) -> Backup:
    """Returns what makes a backup on a thread of the port."""

    async def make(wanted: Path | None) -> dict[str, Any]:
        made = await port.off(create.make, source(config, home, slices, SystemClock()), wanted)
        return made.wire()

    return make


def _git(config: Config, home: Home) -> Git:
    return Git(timeout_s=config.git.timeout_s, lock_wait_s=config.git.lock_wait_s, home=home.git)
