"""A CODEX_HOME made ready for a run."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from stationmaster.agents.codex_app import home
from stationmaster.agents.codex_app.settings import CodexSettings, RunSpec
from stationmaster.errors import Invalid
from stationmaster.redact import Secret

KEY = Secret("file:/key", lambda: "sk-made-up-home-key")


def spec(root: Path, **changes: Any) -> RunSpec:
    return RunSpec("run_1", root / "tree", root / "bare", root / "codex" / "repos" / "1", root / "temp", **changes)


def prepared(root: Path, config: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    settings, run = CodexSettings(home=root / "codex", config=config or {}), spec(root, **changes)
    home.prepare(settings, run)
    return tomllib.loads((run.codex_home / "config.toml").read_text())


def test_what_is_ours_is_refused_by_name() -> None:
    config = {
        "model": "m",
        "approval_policy": "on-request",
        "sandbox_mode": "danger-full-access",
        "projects": {},
        "features": {"plugins": True, "goals": False},
        "model_providers": {"p": {"base_url": "x", "experimental_bearer_token": "s"}, "q": "no table"},
    }
    assert home.refused_keys(config) == [
        "approval_policy",
        "features.plugins",
        "model_providers.p.experimental_bearer_token",
        "projects",
        "sandbox_mode",
    ]
    assert home.refused_keys({"model": "m", "model_providers": {"p": {"env_key": "K"}}}) == []


def test_a_refused_key_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        prepared(tmp_path, {"approval_policy": "untrusted"})
    assert "approval_policy" in caught.value.message
    assert not (tmp_path / "codex" / "repos").exists()


def test_the_operators_configuration_is_merged_below_ours(tmp_path: Path) -> None:
    config = {
        "model": "m",
        "features": {"goals": False},
        "model_providers": {"my provider": {"name": 'quo"te\n\x7f', "base_url": "http://x", "request_max_retries": 0}},
        "tools": {"list": [1, 2.5, True, {"a": "b"}]},
        "mcp_servers": {"s": {"command": "srv", "env": {"A": "b"}}, "web": {"url": "http://x"}},
    }
    made = prepared(tmp_path, config)
    assert made["model"] == "m"
    assert made["model_providers"] == config["model_providers"]
    assert made["tools"] == config["tools"]
    assert made["features"]["goals"] is False
    assert made["features"]["plugins"] is False
    assert made["approval_policy"] == "never"
    assert made["skills"] == {"include_instructions": False, "bundled": {"enabled": False}}
    assert made["mcp_servers"]["s"]["env"] == {"A": "b", "STATIONMASTER_RUN": "run_1"}
    assert made["mcp_servers"]["web"] == {"url": "http://x", "default_tools_approval_mode": "approve"}


def test_it_is_written_anew_private_and_whole(tmp_path: Path) -> None:
    prepared(tmp_path)
    config = tmp_path / "codex" / "repos" / "1" / "config.toml"
    config.write_text("notify = ['evil']\n")
    for name in ("AGENTS.md", ".env", "hooks.json"):
        (config.parent / name).write_text("planted")
    (config.parent / "skills" / "evil").mkdir(parents=True)
    (config.parent / "sessions" / "kept").touch()
    (config.parent / "rules").symlink_to(tmp_path / "tree")
    (tmp_path / "tree").mkdir()
    made = prepared(tmp_path)
    assert "notify" not in made
    assert config.stat().st_mode & 0o777 == 0o600
    assert config.parent.stat().st_mode & 0o777 == 0o700
    left = {path.name for path in config.parent.iterdir()}
    assert left == {"archived_sessions", "config.toml", "host-bin", "sessions", "shell-bin", "shell_snapshots"}
    assert (config.parent / "sessions" / "kept").exists()
    assert (tmp_path / "tree").is_dir()


def test_a_value_that_toml_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid):
        prepared(tmp_path, {"tools": {"x": None}})


def test_the_login_is_shared_and_never_beside_a_key(tmp_path: Path) -> None:
    stored, link = tmp_path / "codex" / "auth.json", tmp_path / "codex" / "repos" / "1" / "auth.json"
    stored.parent.mkdir()
    stored.write_text("{}")
    assert prepared(tmp_path)["cli_auth_credentials_store"] == "file"
    # Codex rewrites the file in place when it refreshes a login: both names must lead to it.
    assert link.samefile(stored)
    stored.unlink()
    stored.write_text(json.dumps({"new": True}))
    prepared(tmp_path)
    assert link.samefile(stored)
    assert prepared(tmp_path, api_key=KEY)["cli_auth_credentials_store"] == "ephemeral"
    assert not link.exists()
    stored.unlink()
    prepared(tmp_path)
    assert not link.exists()


def test_the_environment_is_made_from_nothing(tmp_path: Path) -> None:
    # GW-R-006
    settings = CodexSettings(home=tmp_path / "codex")
    env = home.environment(settings, spec(tmp_path, api_key=KEY))
    assert sorted(env) == ["CODEX_HOME", "HOME", "LANG", "PATH", "STATIONMASTER_RUN", "TMPDIR"]
    assert not env["TMPDIR"].startswith(env["CODEX_HOME"])
    assert env["PATH"].split(":")[0].endswith("host-bin")


def test_only_a_provider_with_env_key_gets_its_key_by_environment(tmp_path: Path) -> None:
    def config(name: str) -> dict[str, Any]:
        return {"model_provider": "p", "model_providers": {"p": {"env_key": name}, "other": {"env_key": "OTHER"}}}

    settings = CodexSettings(home=tmp_path / "codex", config=config("P_KEY"))
    env = home.environment(settings, spec(tmp_path, api_key=KEY))
    assert env["P_KEY"] == "sk-made-up-home-key"
    assert "OTHER" not in env
    assert "P_KEY" not in home.environment(settings, spec(tmp_path))
    assert prepared(tmp_path, config("P_KEY"), api_key=KEY)["cli_auth_credentials_store"] == "file"
    with pytest.raises(Invalid):
        home.environment(CodexSettings(home=tmp_path, config=config("PATH")), spec(tmp_path, api_key=KEY))


def test_a_threads_configuration_keeps_commands_out_of_codex_home(tmp_path: Path) -> None:
    settings, run = CodexSettings(home=tmp_path / "codex"), spec(tmp_path)
    home.prepare(settings, run)
    config = home.thread_config(settings, run)
    rules = config["permissions"]["stationmaster"]["filesystem"]
    assert rules[str(run.codex_home)] == "read"
    assert rules[f"{run.codex_home}/sessions"] == "deny"
    assert rules[f"{run.codex_home}/config.toml"] == "deny"
    assert rules[f"{run.codex_home}/*.sqlite*"] == "deny"
    assert f"{run.codex_home}/auth.json" not in rules
    assert config["shell_environment_policy"]["inherit"] == "core"
    assert config["shell_environment_policy"]["set"]["STATIONMASTER_RUN"] == "run_1"
    assert config["projects"][str(run.worktree)] == {"trust_level": "untrusted"}
    trusted = home.thread_config(settings, spec(tmp_path, repo_instructions=True))
    assert trusted["projects"][str(run.worktree)] == {"trust_level": "trusted"}


def test_a_runs_own_servers_carry_the_mark(tmp_path: Path) -> None:
    server = {"gitea": {"command": "gitea-mcp", "env": {"GITEA_ACCESS_TOKEN": "t"}}}
    config = home.thread_config(CodexSettings(home=tmp_path), spec(tmp_path, mcp_servers=server))
    assert config["mcp_servers"]["gitea"]["env"]["STATIONMASTER_RUN"] == "run_1"
    assert config["mcp_servers"]["gitea"]["default_tools_approval_mode"] == "approve"
