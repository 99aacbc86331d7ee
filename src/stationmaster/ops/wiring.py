"""The composition root: builds every part from the configuration and connects them; decides nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from stationmaster.agents.codex_app.settings import CodexSettings, packaged_binary
from stationmaster.clock import Clock, SystemClock
from stationmaster.command import LedgerPort
from stationmaster.control import rest
from stationmaster.control.commands import Site
from stationmaster.control.console.frame import Console
from stationmaster.control.console.sessions import Lasting
from stationmaster.control.dispatch import Dispatch
from stationmaster.control.machine import OPERATOR_KEY
from stationmaster.control.readiness import Standing
from stationmaster.control.registry import COMMANDS
from stationmaster.control.scrape import Metrics
from stationmaster.errors import Bug, Invalid
from stationmaster.gitea import store as gitea
from stationmaster.gitea.client import Forge
from stationmaster.gitea.gear import Gear
from stationmaster.gitea.retention import Keep, Retention, made
from stationmaster.gitea.settings import CatchupSettings, GiteaSettings, LimitSettings, Station
from stationmaster.gitea.webhook import Webhook
from stationmaster.inbox import actions as inbox
from stationmaster.jobs import actions as jobs
from stationmaster.ledger.ledger import Ledger, PostgresSettings, Slice
from stationmaster.ledger.tx import Reader
from stationmaster.ops import config as configuration
from stationmaster.ops import config_text, upkeep
from stationmaster.ops.backup import create, proof, restore
from stationmaster.ops.home import Home, locked
from stationmaster.ops.metrics.exposition import CONTENT_TYPE, Exposition, Working
from stationmaster.ops.metrics.figures import Figures
from stationmaster.ops.metrics.follow import Follower
from stationmaster.ops.settings import Config
from stationmaster.workspaces.git import Git
from stationmaster.workspaces.paths import Layout

SLICES = (
    Slice("control", "stationmaster.control", machines=(OPERATOR_KEY,), hot=frozenset({"console_session"})),
    inbox.SLICE,
    jobs.SLICE,
    gitea.SLICE,
)

# A command line holds the lock for moments only; a daemon that starts meanwhile waits for it, and the other way round.
LOCK_WAIT_S = 3.0
_ACCEPTED = 202
_OFF_THREADS = 16
_LOCAL_THREADS = 2
# One app-server takes 85 to 170 MiB, the commands of its agent more; the rest of the machine keeps a gigabyte.
_RUN_BYTES = 512 * 1024**2
_SPARE_BYTES = 1024**3
_MOST_RUNS = 8
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def open_by_forge(reader: Reader) -> Mapping[str, int]:
    """Returns how many tasks that are not at their end each forge has."""
    return gitea.open_by_forge(reader)


def open_ledger(config: Config, home: Home, clock: Clock) -> Ledger:
    """Opens the ledger that the configuration names; refuses one that a restore has only begun."""
    restore.unfinished(home)
    return reopened(config, home, clock)


def reopened(config: Config, home: Home, clock: Clock) -> Ledger:
    """Opens the ledger at the end of a restore."""
    if config.database.url is None:
        return Ledger.open(home.database, SLICES, clock=clock)
    return Ledger.open(PostgresSettings(config.database.url.reveal()), SLICES, clock=clock)


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


def gitea_settings(config: Config, forge: str) -> GiteaSettings:
    """Returns what the Gitea slice needs to know of one of the configured forges."""
    given = configuration.forges(config).get(forge)
    if given is None or given.token_ref is None or given.webhook_secret_ref is None:
        raise Bug("BUG: the Gitea slice was wired without a forge.")
    return GiteaSettings(
        instance_id=forge,
        base_url=given.base_url,
        host_ref=given.host_ref,
        token=given.token_ref,
        webhook_secrets=tuple(filter(None, (given.webhook_secret_ref, given.webhook_secret_old_ref))),
        bot_login=given.bot_login,
        disabled_repo_policy=given.disabled_repo_policy,
        reply_mode=given.reply_mode,
        push=given.push,
        allow=given.allow,
        allow_list=given.allow_list,
        triggers=frozenset(given.triggers),
        language=given.language,
        steering=given.steering,
        live_receipt=given.live_receipt,
        ttl_s=given.lease.ttl_s,
        heartbeat_s=given.lease.heartbeat_s,
        retry_delay_s=given.retry.delay_s,
        abort_timeout_s=given.abort.timeout_s,
        settle_s=given.verify.settle_s,
        forge_timeout_s=given.timeout_s,
        mcp_command=given.mcp.command,
        mcp_handshake_timeout_s=given.mcp.handshake_timeout_s,
        turn_timeout_s=config.codex.turn_timeout_s,
        delivery_days=config.retention.delivery_days,
        catchup=CatchupSettings(
            every_s=given.catchup.every_s,
            overlap_s=given.catchup.overlap_s,
            first_look_back_s=given.catchup.first_look_back_s,
            settle_s=given.catchup.settle_s,
        ),
        limits=LimitSettings(**dataclasses.asdict(given.limits)),
    )


def all_gitea_settings(config: Config) -> list[GiteaSettings]:
    """Returns the settings of every configured forge, `default` first."""
    return [gitea_settings(config, forge) for forge in configuration.forges(config)]


def station(config: Config, home: Home, worker_id: str, incarnation: str) -> Station:
    """Returns who this worker is and what its runs may use."""
    return Station(
        worker_id=worker_id,
        incarnation=incarnation,
        max_runs=config.worker.max_runs or runs_in(memory()),
        runs=home.runs,
        mounts=config.agents.mounts,
        isolation=config.agents.isolation,
        repo_instructions=config.agents.repo_instructions,
        api_key=config.codex.api_key,
    )


def runs_in(memory_bytes: int) -> int:
    """Returns how many runs fit into a machine's memory; always at least one."""
    return max(1, min(_MOST_RUNS, (memory_bytes - _SPARE_BYTES) // _RUN_BYTES))


def memory() -> int:
    """Returns the memory that this process may use: the machine's, or the limit of its control group."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(machine, int(_CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):
        return machine


def gears(config: Config, home: Home, port: LedgerPort, at: Station) -> list[Gear]:
    """Builds what the work on tasks uses, for each forge; `gear.forge` is to be closed on the loop that used it."""
    for folder in (config.workspace.root, home.runs, home.git):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            key = "workspace.root" if folder == config.workspace.root else "the home"
            raise Invalid(
                f"{key}: {folder} cannot be made: {error.strerror}.",
                code="invalid_configuration",
                hint="Name a folder that this user can write.",
            ) from error
    git = Git(timeout_s=config.git.timeout_s, lock_wait_s=config.git.lock_wait_s, home=home.git)
    layout, codex = Layout(root=config.workspace.root, runs=home.runs), codex_settings(config)
    return [
        Gear(
            port=port,
            settings=settings,
            station=at,
            forge=Forge(settings.base_url, settings.token, timeout_s=settings.forge_timeout_s),
            git=git,
            layout=layout,
            codex=codex,
        )
        for settings in all_gitea_settings(config)
    ]


def webhook_door(
    webhook: Webhook,
    wake: Callable[[], None],
    max_bytes: int,
    delivered: Callable[[int, Mapping[str, Any]], None] = lambda _status, _body: None,
) -> rest.Webhook:
    """Connects the HTTP door to the forge's: words as they are, and a bell when something may be claimable.

    `delivered` is told what each delivery was answered.
    """

    async def handle(delivery: rest.Delivery) -> rest.Reply:
        answer = await webhook(delivery.headers, delivery.body, delivery.source)
        delivered(answer.status, answer.body)
        # Accepted: a task that may be claimable, an order, or something to be read.
        if answer.status == _ACCEPTED:
            wake()
        return rest.Reply(answer.status, answer.body, answer.headers or {})

    async def too_large(delivery: rest.Delivery) -> rest.Reply:
        answer = await webhook.too_large(delivery.source, max_bytes)
        delivered(answer.status, answer.body)
        return rest.Reply(answer.status, answer.body, answer.headers or {})

    return rest.Webhook(handle, too_large, max_bytes)


def site(config: Config, home: Home, port: LedgerPort, wake: Callable[[], None]) -> Site:
    """Returns what the commands of the doors work on."""
    forges = all_gitea_settings(config)
    backup = upkeep.backup(config, home, SLICES, port)

    async def retain(dry_run: bool) -> dict[str, int]:
        return await retention(config, home, port).everything(dry_run=dry_run)

    first = forges[0] if forges else None
    root = config.workspace.root
    return Site(port, wake, first, root, backup=backup, retain=retain, others=tuple(forges[1:]))


def metrics(
    config: Config, home: Home, port: Dispatch, figures: Figures, follower: Follower, working: Callable[[], Working]
) -> Metrics:
    """Returns the page of metrics and who may read it."""
    shown = Exposition(
        port,
        figures,
        follower,
        port.ledger.pulse,
        working=working,
        database=home.database if config.database.url is None else None,
        places={"home": home.path, "workspaces": config.workspace.root},
    )
    return Metrics(shown.page, CONTENT_TYPE, config.web.metrics)


def console(config: Config, at: Site, ready: Callable[[], bool], standing: Callable[[], Standing]) -> Console:
    """Returns what the pages for people are made from."""
    lasting = Lasting(config.web.session_idle_s, config.web.session_max_s)
    return Console(at, ready, standing, lambda: config_text.plain(config), lasting)


def retention(config: Config, home: Home, port: LedgerPort) -> Retention:
    """Builds the duty that lets old payloads go."""
    days = config.retention
    keep = Keep(days.delivery_days, days.event_days, days.payload_days, days.file_days, days.thread_days)
    return made(port, keep, runs=home.runs, codex_homes=config.codex.home / "repos", scratch=home.scratch)


def backup_source(config: Config, home: Home, clock: Clock) -> create.Source:
    """Returns what a restore fills."""
    return upkeep.source(config, home, SLICES, clock)


def judge(config: Config, home: Home) -> proof.Judge:
    """Returns what a proof of a backup needs."""
    return upkeep.judge(config, home, SLICES)


@contextlib.asynccontextmanager
async def local_app(config: Config, home: Home) -> AsyncIterator[ASGIApp]:
    """Gives the app to a command line while no daemon holds the home; nothing runs in the background."""
    with locked(home, wait_s=LOCK_WAIT_S):
        ledger = open_ledger(config, home, SystemClock())
        port = Dispatch(ledger, threads=_LOCAL_THREADS)
        try:
            yield rest.app(site(config, home, port, lambda: None), COMMANDS, webhook=None, ready=lambda: True)
        finally:
            port.close()
            ledger.close()


def daemon_port(ledger: Ledger) -> Dispatch:
    """Makes the daemon's port to the ledger, with enough threads for the git work of many runs."""
    return Dispatch(ledger, threads=_OFF_THREADS)
