"""The operator's login, with the real program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stationmaster.agents.codex_app.login import LoginStatus, login, login_status
from stationmaster.agents.codex_app.settings import CodexSettings
from stationmaster.errors import Unavailable

KEY = "sk-made-up-0123456789"


def test_nobody_is_logged_in_at_first(tmp_path: Path) -> None:
    assert login_status(CodexSettings(home=tmp_path / "codex")) == LoginStatus("none", "not logged in")
    (tmp_path / "codex").mkdir()
    assert login_status(CodexSettings(home=tmp_path / "codex")).account == "none"


def test_a_stored_login_is_shown_without_any_of_it(tmp_path: Path) -> None:
    settings = CodexSettings(home=tmp_path / "codex")
    settings.home.mkdir()
    (settings.home / "auth.json").write_text(json.dumps({"auth_mode": "apikey", "OPENAI_API_KEY": KEY}))
    assert login_status(settings) == LoginStatus("api_key", "logged in with an API key")


def test_the_real_login_runs_in_codex_home(tmp_path: Path) -> None:
    settings = CodexSettings(home=tmp_path / "codex")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    assert login(settings, env=env, args=["status"]) == 1
    assert settings.home.stat().st_mode & 0o777 == 0o700


def test_a_missing_program_is_said(tmp_path: Path) -> None:
    settings = CodexSettings(home=tmp_path, command=Path("/nowhere/codex"))
    with pytest.raises(Unavailable):
        login_status(settings)
    with pytest.raises(Unavailable):
        login(settings, env={})
