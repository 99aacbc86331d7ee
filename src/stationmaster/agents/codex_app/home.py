"""A repository's CODEX_HOME: made ready before each run, so that nothing an earlier run left can steer this one.

`config.toml` and the folders around it are the product's; the login is the operator's, shared by hard link because
Codex rewrites it in place; threads belong to Codex. No key is ever written here.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stationmaster.agents import isolation, process
from stationmaster.agents.codex_app.settings import CodexSettings, RunSpec
from stationmaster.errors import Invalid

PROFILE = "stationmaster"
LOGIN_FILE = "auth.json"

# Each of these would reach out, run a program of its own, or start more than this one turn.
_QUIET_FEATURES = (
    "apps",
    "browser_use",
    "computer_use",
    "daemon_auto_start",
    "hooks",
    "image_generation",
    "memories",
    "multi_agent",
    "plugins",
    "remote_plugin",
    "shell_snapshot",
    "skill_mcp_dependency_install",
    "tool_suggest",
    "unbounded_connection_retries",
    "workspace_dependencies",
    "worktrees",
)
_FIXED: dict[str, Any] = {
    "approval_policy": "never",
    "check_for_update_on_startup": False,
    "mcp_optional_startup_grace_ms": 0,
    "analytics": {"enabled": False},
    "feedback": {"enabled": False},
    "history": {"persistence": "none"},
    "otel": {"exporter": "none", "metrics_exporter": "none", "trace_exporter": "none"},
}
_OURS = frozenset(
    {
        *_FIXED,
        "cli_auth_credentials_store",
        "default_permissions",
        "developer_instructions",
        "hooks",
        "permissions",
        "projects",
        "sandbox_mode",
        "sandbox_workspace_write",
        "shell_environment_policy",
        "skills",
    }
)
_PLAIN_SECRETS = frozenset({"experimental_bearer_token", "api_key", "bearer_token"})
# What a run with full access may have left to steer a later one.
_PLANTED = ("AGENTS.md", "AGENTS.override.md", ".env", "hooks.json", "rules", "prompts", "plugins", "skills")
# The sandbox cannot deny what does not exist in a read-only folder: every command would fail.
_PRIVATE_FOLDERS = ("sessions", "archived_sessions", "shell_snapshots")
_SHIM = "#!/bin/sh\nexit 128\n"


def refused_keys(config: Mapping[str, Any]) -> list[str]:
    """Lists the keys of `[codex.config]` that the product sets itself, or that would hold a plain secret."""
    found = [key for key in config if key in _OURS]
    features = config.get("features")
    if isinstance(features, Mapping):
        found += [f"features.{key}" for key in features if key in _QUIET_FEATURES]
    for table in ("model_providers", "mcp_servers"):
        for name, entry in _tables(config.get(table)):
            found += [f"{table}.{name}.{key}" for key in entry if key in _PLAIN_SECRETS]
    return sorted(found)


def provider_key_name(config: Mapping[str, Any]) -> str | None:
    """Returns the variable through which the chosen provider takes its key, when it has one of its own."""
    chosen = config.get("model_provider")
    for name, entry in _tables(config.get("model_providers")):
        if name == chosen:
            key = entry.get("env_key")
            return key if isinstance(key, str) and key else None
    return None


def prepare(settings: CodexSettings, spec: RunSpec) -> None:
    """Makes CODEX_HOME and the run's temporary folders ready; writes `config.toml` anew (0600, atomically)."""
    if refused := refused_keys(settings.config):
        raise Invalid(
            f"[codex.config] sets {', '.join(refused)}, which Stationmaster sets itself.",
            code="invalid_configuration",
            hint="Remove it there.",
        )
    home = spec.codex_home
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in _PLANTED:
        _remove(home / name)
    for folder in (*(home / name for name in _PRIVATE_FOLDERS), host_bin(spec), shell_bin(spec)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in (host_temp(spec), work_temp(spec)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _replace(host_bin(spec) / "git", _SHIM, 0o700)
    _link_patch_tool(shell_bin(spec) / "apply_patch", settings.command.resolve())
    _share_login(settings, spec)
    _replace(home / "config.toml", toml(_config(settings, spec)), 0o600)


def rooms(settings: CodexSettings, spec: RunSpec) -> isolation.Rooms:
    """Returns the folders that a run may see."""
    return isolation.Rooms(
        settings.command,
        spec.worktree,
        spec.bare,
        spec.codex_home,
        spec.run_temp,
        mounts=spec.mounts,
        programs=spec.programs,
        read_only=spec.read_only,
    )


def host_temp(spec: RunSpec) -> Path:
    """Returns the app-server's own TMPDIR, which commands can only read."""
    return spec.run_temp / "host"


def work_temp(spec: RunSpec) -> Path:
    """Returns HOME and TMPDIR of the commands."""
    return spec.run_temp / "work"


def host_bin(spec: RunSpec) -> Path:
    """Returns the folder that comes first in the app-server's PATH.

    Its `git` always fails: the app-server runs `git status` outside its sandbox at every turn, and a filter that a
    command configured would run with it. Commands have the real git.
    """
    return spec.codex_home / "host-bin"


def shell_bin(spec: RunSpec) -> Path:
    """Returns the folder that gives commands the `apply_patch` program under its usual name."""
    return spec.codex_home / "shell-bin"


def environment(settings: CodexSettings, spec: RunSpec) -> dict[str, str]:
    """Returns the whole environment of the app-server; it inherits nothing."""
    env = {
        "PATH": f"{host_bin(spec)}:{isolation.search_path(spec.mounts)}",
        "HOME": str(spec.codex_home),
        "LANG": "C.UTF-8",
        "TMPDIR": str(host_temp(spec)),
        "CODEX_HOME": str(spec.codex_home),
        process.MARK: spec.run_id,
    }
    name = provider_key_name(settings.config)
    if name and spec.api_key:
        if name in env:
            raise Invalid(f"[codex.config] uses {name} as env_key, which is taken.", code="invalid_configuration")
        env[name] = spec.api_key.reveal()
    return env


def thread_config(settings: CodexSettings, spec: RunSpec) -> dict[str, Any]:
    """Returns the `config` of thread/start and of every thread/resume: Codex does not restore it (GW-R-146)."""
    config: dict[str, Any] = {
        "projects": {str(spec.worktree): {"trust_level": "trusted" if spec.repo_instructions else "untrusted"}},
        "shell_environment_policy": {
            "inherit": "core",
            "ignore_default_excludes": False,
            "set": {
                "PATH": f"{isolation.search_path(spec.mounts)}:{shell_bin(spec)}",
                "HOME": str(work_temp(spec)),
                "TMPDIR": str(work_temp(spec)),
                # Their index lies in the mirror, which is read-only: git status must not try to refresh it.
                "GIT_OPTIONAL_LOCKS": "0",
                process.MARK: spec.run_id,
            },
        },
        "skills": _skills(spec),
    }
    if settings.sandbox != "danger-full-access":
        config["permissions"] = {PROFILE: _profile(spec)}
    if spec.mcp_servers:
        config["mcp_servers"] = {name: _marked_server(spec, entry) for name, entry in _tables(spec.mcp_servers)}
    return config


def _profile(spec: RunSpec) -> dict[str, Any]:
    home = spec.codex_home
    rules = {
        # Codex's workspace profile may write in /tmp, and this folder may lie there.
        str(home): "read",
        str(spec.bare): "read",
        str(host_temp(spec)): "read",
        str(work_temp(spec)): "write",
        f"{home}/*.sqlite*": "deny",
        f"{home}/config.toml": "deny",
    }
    if spec.read_only:
        rules[str(spec.worktree)] = "read"
    rules |= {str(home / name): "deny" for name in _PRIVATE_FOLDERS}
    if (home / LOGIN_FILE).exists():
        rules[str(home / LOGIN_FILE)] = "deny"
    return {"extends": ":workspace", "filesystem": rules}


def _config(settings: CodexSettings, spec: RunSpec) -> dict[str, Any]:
    config = {**settings.config, **_FIXED}
    config["features"] = {**dict(settings.config.get("features", {})), **dict.fromkeys(_QUIET_FEATURES, False)}
    config["skills"] = _skills(spec)
    keyed = spec.api_key is not None and provider_key_name(settings.config) is None
    config["cli_auth_credentials_store"] = "ephemeral" if keyed else "file"
    servers = settings.config.get("mcp_servers")
    if servers:
        config["mcp_servers"] = {name: _marked_server(spec, entry) for name, entry in _tables(servers)}
    return config


def _skills(spec: RunSpec) -> dict[str, Any]:
    return {"include_instructions": spec.repo_instructions, "bundled": {"enabled": False}}


def _marked_server(spec: RunSpec, entry: Mapping[str, Any]) -> dict[str, Any]:
    # Under approval policy "never" a tool without annotations is refused unless its server says otherwise.
    server = {"default_tools_approval_mode": "approve", **entry}
    if "command" in server:
        server["env"] = {**dict(server.get("env", {})), process.MARK: spec.run_id}
    return server


def _share_login(settings: CodexSettings, spec: RunSpec) -> None:
    source, link = settings.home / LOGIN_FILE, spec.codex_home / LOGIN_FILE
    if spec.api_key is not None or not source.is_file():
        link.unlink(missing_ok=True)
        return
    if link.is_symlink() or not link.exists() or not link.samefile(source):
        link.unlink(missing_ok=True)
        link.hardlink_to(source)


def _link_patch_tool(link: Path, binary: Path) -> None:
    # The binary looks at the name it was called by.
    if not link.is_symlink() or link.readlink() != binary:
        _remove(link)
        link.symlink_to(binary)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _replace(path: Path, text: str, mode: int) -> None:
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)


def _tables(value: Any) -> list[tuple[str, Mapping[str, Any]]]:
    if not isinstance(value, Mapping):
        return []
    return [(str(name), entry) for name, entry in value.items() if isinstance(entry, Mapping)]


def toml(config: Mapping[str, Any]) -> str:
    """Writes a table as TOML, nested ones inline; raises Invalid for a value that TOML does not have."""
    return "".join(f"{_key(key)} = {_value(key, value)}\n" for key, value in config.items())


def _key(key: str) -> str:
    return key if key and all(char.isascii() and (char.isalnum() or char in "_-") for char in key) else _text(key)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(name))} = {_value(key, item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(key, item) for item in value) + "]"
    raise Invalid(
        f"[codex.config] {key} holds a {type(value).__name__}, which Codex's configuration does not know.",
        code="invalid_configuration",
    )
