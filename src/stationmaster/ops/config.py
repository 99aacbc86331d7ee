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
from stationmaster.ops.settings import Config, Gitea
from stationmaster.redact import Secret

_SECRET_NAME = re.compile(r"(token|secret|password|authorization|api[-_]?key)$", re.IGNORECASE)
_FREE = frozenset({"codex.config", "gitea.instances"})
# The forge of `[gitea]` itself; keys of its repositories begin with it.
DEFAULT = "default"
_INSTANCE_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
# What a forge never inherits: with these it would be another one, or speak to another one with the wrong key.
_OWN = ("base_url", "token_ref", "webhook_secret_ref", "bot_login")
_NOT_INHERITED = (*_OWN, "host_ref", "webhook_secret_old_ref")


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
    instances = _instances(merged["gitea"], home.config_file)
    _fill(merged, home)
    hints = get_type_hints(Config, include_extras=True)
    values = {name: typed.read(name, hints[name], section, reference) for name, section in merged.items()}
    others = {name: typed.read(section_of(name), Gitea, table, reference) for name, table in instances.items()}
    config = Config(source=home.config_file, instances=others, **values)
    _check_together(config)
    return config


def section_of(instance_id: str) -> str:
    """Returns the section of a forge's settings."""
    return "gitea" if instance_id == DEFAULT else f"gitea.instances.{instance_id}"


def _instances(gitea: dict[str, Any], source: Path) -> dict[str, dict[str, Any]]:
    """Takes the other forges out of `[gitea]`, each filled up with what it inherits from there."""
    given = gitea.pop("instances")
    found = {}
    for name, table in given.items():
        section = f"gitea.instances.{name}"
        if not _INSTANCE_ID.fullmatch(name) or name == DEFAULT:
            raise typed.WrongValue(
                section, f'must be named by up to 32 of a-z, 0-9 and -, and not "{DEFAULT}", which is [gitea] itself'
            )
        if not isinstance(table, dict):
            raise typed.WrongValue(section, "must be a table")
        inherited = {**gitea, **dict.fromkeys(_NOT_INHERITED, "")}
        found[name] = _merge(inherited, table, f"{section}.", source)
        _fill_forge(section, found[name])
        for key in _OWN:
            if not found[name][key]:
                raise typed.WrongValue(f"{section}.{key}", "must be set: a forge has its own")
    return found


def _forge_keys(config: Config) -> dict[str, object]:
    return {
        "gitea.base_url": config.gitea.base_url,
        "gitea.token_ref": config.gitea.token_ref,
        "gitea.webhook_secret_ref": config.gitea.webhook_secret_ref,
    }


def forges(config: Config) -> dict[str, Gitea]:
    """Returns the forges that are configured, by their ids; `check_secrets` refuses one that is configured by half."""
    first = {DEFAULT: config.gitea} if all(_forge_keys(config).values()) else {}
    return {**first, **config.instances}


def has_forge(config: Config) -> bool:
    """Tells whether any forge is configured."""
    return bool(forges(config))


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
    for key, secret in named_secrets(config).items():
        if secret is not None and not secret.reveal():
            raise _wrong(config.source, f"has a wrong value: {key} refers to an empty secret ({secret.ref}).", key=key)


def named_secrets(config: Config) -> dict[str, Secret | None]:
    """Returns every secret that may be referred to, by its key."""
    found: dict[str, Secret | None] = {}
    for name, forge in {DEFAULT: config.gitea, **config.instances}.items():
        found[f"{section_of(name)}.token_ref"] = forge.token_ref
        found[f"{section_of(name)}.webhook_secret_ref"] = forge.webhook_secret_ref
        found[f"{section_of(name)}.webhook_secret_old_ref"] = forge.webhook_secret_old_ref
    return {**found, "codex.api_key": config.codex.api_key, "database.url": config.database.url}


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
    _fill_forge("gitea", merged["gitea"])


def _fill_forge(section: str, gitea: dict[str, Any]) -> None:
    if isinstance(gitea["base_url"], str):
        gitea["base_url"] = gitea["base_url"].rstrip("/")
        _check_base_url(f"{section}.base_url", gitea["base_url"])
        gitea["host_ref"] = gitea["host_ref"] or urlsplit(gitea["base_url"]).hostname or ""


def _check_together(config: Config) -> None:
    """Refuses values that are each possible but contradict one another."""
    _check_passed_through("codex.config", config.codex.config)
    refused = refused_keys(config.codex.config)
    if refused:
        raise typed.WrongValue(f"codex.config.{refused[0]}", "must be left out: Stationmaster sets it itself")
    for name, forge in {DEFAULT: config.gitea, **config.instances}.items():
        _check_forge(section_of(name), forge, config)


def _check_forge(section: str, forge: Gitea, config: Config) -> None:
    lease = forge.lease
    if lease.ttl_s < 2 * lease.heartbeat_s:
        raise typed.WrongValue(
            f"{section}.lease.ttl_s", f"must be at least twice {section}.lease.heartbeat_s ({lease.heartbeat_s})"
        )
    if lease.ttl_s > lease.max_loss_s:
        raise typed.WrongValue(
            f"{section}.lease.ttl_s", f"must be at most {section}.lease.max_loss_s ({lease.max_loss_s})"
        )
    if forge.allow == "list" and not forge.allow_list:
        raise typed.WrongValue(f"{section}.allow_list", f'must name somebody when {section}.allow = "list"')
    if not forge.bot_login:
        raise typed.WrongValue(f"{section}.bot_login", "must not be empty")
    if forge.reply_mode == "official":
        _check_official(section, forge, config)


def _check_official(section: str, forge: Gitea, config: Config) -> None:
    """Refuses what official mode cannot work with, or could not keep the bot's token from commands with."""
    when = f'when {section}.reply_mode = "official"'
    command = forge.mcp.command
    if not command or ("/" in command and not command.startswith("/")):
        raise typed.WrongValue(f"{section}.mcp.command", f"must be a name or an absolute path {when}")
    if config.codex.sandbox == "danger-full-access":
        raise typed.WrongValue(
            "codex.sandbox", f'must be "workspace-write" {when}: commands could read the bot\'s token'
        )
    servers = config.codex.config.get("mcp_servers")
    if isinstance(servers, Mapping) and bridge.SERVER in servers:
        raise typed.WrongValue(f"codex.config.mcp_servers.{bridge.SERVER}", f"must be left out {when}")


def _check_passed_through(key: str, table: Mapping[str, Any]) -> None:
    """Refuses plain secrets in the table that Codex gets as it is (GW-R-239)."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            _check_passed_through(f"{key}.{name}", value)
        elif isinstance(value, str) and _SECRET_NAME.search(name):
            raise typed.WrongValue(f"{key}.{name}", "must not hold a secret; give the provider an env_key instead")


def _check_base_url(key: str, text: str) -> None:
    if not text:
        return
    try:
        parts = urlsplit(text)
        known = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise typed.WrongValue(key, "must be an address such as https://git.example.com")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise typed.WrongValue(key, "must hold no user, password, query or fragment")
