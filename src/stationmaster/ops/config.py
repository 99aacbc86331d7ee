"""Reads the configuration: `default.toml` under the operator's file, every value checked before anything starts.

The only place that reads the environment. A wrong key or value is one sentence that names the key and the file, and
never repeats the value of something that may be a secret.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import urlsplit

from stationmaster import faults
from stationmaster.agents.codex_app.home import refused_keys
from stationmaster.errors import Invalid
from stationmaster.gitea import bridge
from stationmaster.ops import typed
from stationmaster.ops.home import Home
from stationmaster.ops.settings import Config
from stationmaster.redact import Secret

_SECRET_NAME = re.compile(r"(token|secret|password|authorization|api[-_]?key)$", re.IGNORECASE)
_FREE = frozenset({"codex.config"})


def home_path(given: Path | None) -> Path:
    """Returns the home folder: the option, else STATIONMASTER_HOME, else ~/.stationmaster."""
    chosen = given or Path(os.environ.get("STATIONMASTER_HOME") or "~/.stationmaster")
    return chosen.expanduser().absolute()


def environment() -> dict[str, str]:
    """Returns a copy of the process environment, for the few children that need parts of it."""
    return dict(os.environ)


def arm_faults() -> None:
    """Arms the fault points of STATIONMASTER_FAULT (`name[:nth]`, comma separated); tests kill the product there."""
    for entry in filter(None, os.environ.get("STATIONMASTER_FAULT", "").split(",")):
        name, _, nth = entry.partition(":")
        faults.arm(name, nth=int(nth) if nth.isdecimal() and int(nth) > 0 else 1)


@cache
def default_text() -> str:
    """Returns `default.toml` as it is shipped."""
    return resources.files("stationmaster.ops").joinpath("default.toml").read_text()


@cache
def _defaults() -> dict[str, Any]:
    return tomllib.loads(default_text())


def load(home: Home) -> Config:
    """Reads the home's configuration; a missing file means the defaults."""
    source = home.config_file
    try:
        given = tomllib.loads(source.read_text())
    except FileNotFoundError:
        given = {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _wrong(source, f"is not TOML: {error}.") from None
    except OSError as error:
        raise _wrong(source, f"cannot be read: {error.strerror}.") from None
    try:
        return build(home, given)
    except typed.WrongValue as error:
        raise _wrong(source, f"has a wrong value: {error}.", key=error.key) from None


def build(home: Home, given: Mapping[str, Any]) -> Config:
    """Merges `given` over the defaults and checks everything; raises `typed.WrongValue` or Invalid."""
    merged = _merge(_defaults(), given, "", home.config_file)
    _fill(merged, home)
    hints = get_type_hints(Config, include_extras=True)
    values = {name: typed.read(name, hints[name], section, reference) for name, section in merged.items()}
    config = Config(source=home.config_file, **values)
    _check_together(config)
    return config


def _forge_keys(config: Config) -> dict[str, object]:
    return {
        "gitea.base_url": config.gitea.base_url,
        "gitea.token_ref": config.gitea.token_ref,
        "gitea.webhook_secret_ref": config.gitea.webhook_secret_ref,
    }


def has_forge(config: Config) -> bool:
    """Tells whether a forge is configured; `check_secrets` refuses one that is configured by half."""
    return all(_forge_keys(config).values())


def check_secrets(config: Config) -> None:
    """Raises Invalid for a forge that is configured by half, and proves that every secret can be read."""
    needed = _forge_keys(config)
    missing = [key for key, value in needed.items() if not value]
    if missing and len(missing) < len(needed):
        listed = ", ".join(missing)
        raise Invalid(
            f"{listed} {'is' if len(missing) == 1 else 'are'} not set in {config.source}.",
            code="config_incomplete",
            hint="`stationmaster up` needs the Gitea address, a token and a webhook secret; see README.md.",
        )
    named = {
        "gitea.token_ref": config.gitea.token_ref,
        "gitea.webhook_secret_ref": config.gitea.webhook_secret_ref,
        "codex.api_key": config.codex.api_key,
        "database.url": config.database.url,
    }
    for key, secret in named.items():
        if secret is not None and not secret.reveal():
            raise _wrong(config.source, f"has a wrong value: {key} refers to an empty secret ({secret.ref}).", key=key)


def reference(key: str, text: str) -> Secret:
    """Turns `env:NAME` or `file:/path` into a Secret; anything else is refused without being repeated (GW-R-239)."""
    if key == "database.url" and text.startswith(("postgresql://", "postgres://")):
        if urlsplit(text).password:
            raise typed.WrongValue(key, "must hold no password; put the address into env:NAME or file:/path")
        return Secret(text, lambda: text)
    scheme, _, name = text.partition(":")
    if scheme == "env" and name:
        return Secret(text, lambda: _from_environment(key, name))
    if scheme == "file" and name.startswith("/"):
        return Secret(text, lambda: _from_file(key, Path(name)))
    raise typed.WrongValue(key, "must be a reference, env:NAME or file:/absolute/path, never the secret itself")


def _from_environment(key: str, name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise Invalid(
            f"{key} refers to the environment variable {name}, which is not set.", code="secret_missing"
        ) from None


def _from_file(key: str, path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        words = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Invalid(f"{key} refers to {path}, which cannot be read: {words}.", code="secret_missing") from None


def _wrong(source: Path, words: str, *, key: str = "") -> Invalid:
    return Invalid(f"{source} {words}", code="config_invalid", key=key)


def _merge(defaults: Mapping[str, Any], given: Mapping[str, Any], prefix: str, source: Path) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for name in given:
        if name not in defaults:
            raise _wrong(source, f"has an unknown key: {prefix}{name}.", key=f"{prefix}{name}")
    for name, default in defaults.items():
        key = f"{prefix}{name}"
        value = given.get(name, default)
        if isinstance(default, dict):
            if not isinstance(value, dict):
                raise typed.WrongValue(key, "must be a table")
            merged[name] = dict(value) if key in _FREE else _merge(default, given.get(name, {}), f"{key}.", source)
        else:
            merged[name] = value
    return merged


def _fill(merged: dict[str, Any], home: Home) -> None:
    """Puts in the defaults that depend on other values; a value of a wrong type is left for the check to name."""
    merged["workspace"]["root"] = merged["workspace"]["root"] or str(home.path / "workspaces")
    merged["codex"]["home"] = merged["codex"]["home"] or str(home.path / "codex")
    gitea = merged["gitea"]
    if isinstance(gitea["base_url"], str):
        gitea["base_url"] = gitea["base_url"].rstrip("/")
        _check_base_url(gitea["base_url"])
        gitea["host_ref"] = gitea["host_ref"] or urlsplit(gitea["base_url"]).hostname or ""


def _check_together(config: Config) -> None:
    """Refuses values that are each possible but contradict one another."""
    _check_passed_through("codex.config", config.codex.config)
    refused = refused_keys(config.codex.config)
    if refused:
        raise typed.WrongValue(f"codex.config.{refused[0]}", "must be left out: Stationmaster sets it itself")
    lease = config.gitea.lease
    if lease.ttl_s < 2 * lease.heartbeat_s:
        raise typed.WrongValue(
            "gitea.lease.ttl_s", f"must be at least twice gitea.lease.heartbeat_s ({lease.heartbeat_s})"
        )
    if lease.ttl_s > lease.max_loss_s:
        raise typed.WrongValue("gitea.lease.ttl_s", f"must be at most gitea.lease.max_loss_s ({lease.max_loss_s})")
    if config.gitea.allow == "list" and not config.gitea.allow_list:
        raise typed.WrongValue("gitea.allow_list", 'must name somebody when gitea.allow = "list"')
    if not config.gitea.bot_login:
        raise typed.WrongValue("gitea.bot_login", "must not be empty")
    if config.gitea.reply_mode == "official":
        _check_official(config)


def _check_official(config: Config) -> None:
    """Refuses what official mode cannot work with, or could not keep the bot's token from commands with."""
    command = config.gitea.mcp.command
    if not command or ("/" in command and not command.startswith("/")):
        raise typed.WrongValue(
            "gitea.mcp.command", 'must be a name or an absolute path when gitea.reply_mode = "official"'
        )
    if config.codex.sandbox == "danger-full-access":
        raise typed.WrongValue(
            "codex.sandbox",
            'must be "workspace-write" when gitea.reply_mode = "official": commands could read the bot\'s token',
        )
    servers = config.codex.config.get("mcp_servers")
    if isinstance(servers, Mapping) and bridge.SERVER in servers:
        raise typed.WrongValue(
            f"codex.config.mcp_servers.{bridge.SERVER}", 'must be left out when gitea.reply_mode = "official"'
        )


def _check_passed_through(key: str, table: Mapping[str, Any]) -> None:
    """Refuses plain secrets in the table that Codex gets as it is (GW-R-239)."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            _check_passed_through(f"{key}.{name}", value)
        elif isinstance(value, str) and _SECRET_NAME.search(name):
            raise typed.WrongValue(f"{key}.{name}", "must not hold a secret; give the provider an env_key instead")


def _check_base_url(text: str) -> None:
    if not text:
        return
    try:
        parts = urlsplit(text)
        known = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise typed.WrongValue("gitea.base_url", "must be an address such as https://git.example.com")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise typed.WrongValue("gitea.base_url", "must hold no user, password, query or fragment")
