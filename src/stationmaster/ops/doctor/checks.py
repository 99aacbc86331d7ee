"""The list of checks in their order, each with its time; `examine` performs them and says what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from stationmaster.errors import Invalid
from stationmaster.ops import config as configuration
from stationmaster.ops.doctor import agent, arrivals, database, forge, host
from stationmaster.ops.doctor.report import Check, Finding, fail, ok, perform, warn
from stationmaster.ops.home import Home
from stationmaster.ops.settings import Config

_SOON, _LATER, _LONG = 20.0, 120.0, 600.0
_MEND = "Mend it there and run doctor again: what depends on it was left out."
_README = "Set gitea.base_url, gitea.token_ref and gitea.webhook_secret_ref; README.md says how."
_HOST = "Look at the machine's log; a disk or a network folder may hang."
_STORE = "Look at the database settings and the disk."
_CODEX = "See the lines about home, bubblewrap and codex first."
_FORGE = "See the line about the forge first."
_MCP = "See gitea.mcp.command."


def examine(place: Home, say: Callable[[Finding], None], *, spend: bool = False) -> bool:
    """Performs every check and says each finding as it is found; returns whether nothing failed."""
    healthy = True
    for finding in _findings(place, spend=spend):
        healthy = healthy and finding.status != "fail"
        say(finding)
    return healthy


def _findings(place: Home, *, spend: bool) -> Iterator[Finding]:
    loaded: list[Config] = []
    yield from perform(Check("configuration", partial(_configuration, place, loaded), _SOON, _MEND))
    for check in _checks(place, loaded[0], spend=spend) if loaded else _without(place):
        yield from perform(check)


def _configuration(place: Home, loaded: list[Config]) -> Iterator[Finding]:
    config = configuration.load(place)
    loaded.append(config)
    try:
        configuration.check_secrets(config)
    except Invalid as error:
        if error.code == "config_incomplete":
            yield fail("configuration", error.message, error.hint)
            return
        # A secret that cannot be read has a line of its own.
    if configuration.has_forge(config):
        yield ok("configuration", f"{config.source} is understood and complete.")
    else:
        yield warn("configuration", f"No forge is set in {config.source}: nobody can ask for anything.", _README)


def _without(place: Home) -> Iterator[Check]:
    """The checks that need no configuration."""
    yield Check("home", partial(host.home, place), _SOON, _HOST)
    yield Check("daemon", partial(host.daemon, place), _SOON, _HOST)
    yield Check("disk", partial(host.disk, place), _SOON, _HOST)
    yield Check("clock", host.clock, _SOON, _HOST)
    yield Check("bubblewrap", host.box, _LATER, _HOST)
    yield Check("git", host.git, _LATER, "Install git; see the line about bubblewrap, in which it runs.")


def _checks(place: Home, config: Config, *, spend: bool) -> Iterator[Check]:
    yield Check("secrets", partial(forge.secrets, config), _SOON, _MEND)
    yield Check("home", partial(host.home, place), _SOON, _HOST)
    yield Check("daemon", partial(host.daemon, place), _SOON, _HOST)
    yield Check("disk", partial(host.disk, place, config.workspace.root), _SOON, _HOST)
    yield Check("workspace", partial(host.workspace, place, config.workspace.root), _SOON, _HOST)
    yield Check("port", partial(host.port, place, config), _SOON, "Set web.host and web.port.")
    yield Check("clock", host.clock, _SOON, _HOST)
    yield from _ledger(place, config)
    yield Check("reading", partial(arrivals.reading, place, config), _LATER, _STORE)
    yield Check("bubblewrap", host.box, _LATER, _HOST)
    yield Check("git", host.git, _LATER, "Install git; see the line about bubblewrap, in which it runs.")
    yield Check("git locks", partial(host.locks, config), _LATER, _HOST)
    yield Check("codex", partial(agent.binary, config), _SOON, _CODEX)
    yield Check("isolation", partial(agent.isolation, place, config), _LATER, _CODEX)
    # The check itself gives up before this, and ends the agent first.
    seconds = 4 * agent.TURN_S
    yield Check("codex login", partial(agent.login, place, config, spend=spend), seconds, _CODEX)
    first = (configuration.DEFAULT,) if config.gitea.base_url else ()
    for name in (*first, *config.instances):
        # What is found of another forge says which.
        of = "" if name == configuration.DEFAULT else f" of {name}"
        yield Check(f"forge{of}", partial(_of, of, forge.answers, config, name), _SOON, _FORGE)
        yield Check(f"token{of}", partial(_of, of, forge.bot, config, name), _LATER, _FORGE)
        yield Check(f"webhook{of}", partial(_of, of, arrivals.webhook, config, name), _LATER, _FORGE)
        yield Check(f"gitea-mcp{of}", partial(_of, of, forge.bridge, place, config, name), _LATER, _MCP)
        permissions = partial(_of, of, forge.permissions, place, config, name)
        yield Check(f"permission{of}", permissions, _LONG, _FORGE)


def _of(which: str, look: Callable[..., Iterator[Finding]], *args: Any) -> Iterator[Finding]:
    for finding in look(*args):
        yield replace(finding, name=f"{finding.name}{which}")


def _ledger(place: Home, config: Config) -> Iterator[Check]:
    yield Check("database", partial(database.opens, place, config), _SOON, _STORE)
    yield Check("integrity", partial(database.integrity, place, config), _LONG, _STORE)
    yield Check("guards", partial(database.guards, place, config), _LATER, _STORE)
    yield Check("waiting", partial(database.waiting, place, config), _LATER, _STORE)
