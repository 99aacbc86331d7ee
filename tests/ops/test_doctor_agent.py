"""The real Codex binary, real walls and a scripted model; broken programs stand in where Codex must fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stationmaster.ops.doctor import agent
from stationmaster.standins.responses_model import ResponsesModel
from tests.ops.patient import Patient, look, one, patient

KEY = "sk-seeded-0123456789"
NOT_LOGGED_IN = "fail  codex login: Codex is not logged in. Set codex.api_key, or run `stationmaster codex login`."


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return path


def with_codex(tmp_path: Path, command: Path, text: str = "") -> Patient:
    return patient(tmp_path / "home", f'[codex]\ncommand = "{command}"\n{text}')


def with_model(tmp_path: Path, url: str, more: str = "", codex: str = "") -> Patient:
    return patient(
        tmp_path / "home",
        f"""
[codex]
{codex}
[codex.config]
model = "scripted-model"
model_provider = "scripted"
[codex.config.model_providers.scripted]
name = "scripted"
base_url = "{url}"
wire_api = "responses"
requires_openai_auth = false
request_max_retries = 0
stream_max_retries = 0
{more}
""",
    )


def talk(here: Patient, *, spend: bool = False) -> list[str]:
    before = sorted(here.home.path.rglob("*"))
    lines = look(agent.login(here.home, here.config, spend=spend), "codex login")
    assert sorted(here.home.path.rglob("*")) == before, "nothing is left behind"
    return lines


def walls(here: Patient) -> str:
    before = sorted(here.home.path.rglob("*"))
    line = one(agent.isolation(here.home, here.config))
    assert sorted(here.home.path.rglob("*")) == before, "nothing is left behind"
    return line


@pytest.fixture
def model() -> Iterator[Any]:
    with ResponsesModel({"rules": [], "default": ["ready"]}) as running:
        yield running


# --- the program ---


def test_the_packaged_codex_runs(tmp_path: Path) -> None:
    assert one(agent.binary(patient(tmp_path / "home").config)) == "ok    codex: Codex 0.163.0 runs."


def test_a_missing_codex_is_said(tmp_path: Path) -> None:
    line = one(agent.binary(with_codex(tmp_path, Path("/nowhere/codex")).config))
    assert line.startswith(
        "fail  codex: /nowhere/codex cannot be run: No such file or directory. Install Stationmaster"
    )


def test_a_program_that_is_no_codex_is_said(tmp_path: Path) -> None:
    mute = with_codex(tmp_path, program(tmp_path / "mute", "exit 0"))
    assert "does not say its version (status 0). Install Stationmaster" in one(agent.binary(mute.config))
    failing = with_codex(tmp_path, program(tmp_path / "failing", "echo 0.163.0; exit 3"))
    assert "does not say its version (status 3)" in one(agent.binary(failing.config))


def test_an_untested_codex_is_said(tmp_path: Path) -> None:
    other = with_codex(tmp_path, program(tmp_path / "other", "echo codex-cli 0.99.1"))
    assert one(agent.binary(other.config)) == (
        f"warn  codex: {tmp_path}/other is version 0.99.1; 0.163.0 is the tested one. Leave codex.command empty."
    )


# --- the walls ---


def test_the_walls_stand(tmp_path: Path) -> None:
    assert walls(patient(tmp_path / "home")) == (
        "ok    isolation: A command in Codex's sandbox inside ours works and cannot reach what it must not."
    )


def test_walls_that_are_none_are_said(tmp_path: Path) -> None:
    # Runs the command it was given without any walls of its own.
    door = program(tmp_path / "door", 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    line = walls(with_codex(tmp_path, door))
    assert line.startswith("fail  isolation: Codex's sandbox let a command reach into CODEX_HOME. Runs are refused")


def test_an_exit_status_alone_is_no_proof(tmp_path: Path) -> None:
    line = walls(with_codex(tmp_path, program(tmp_path / "quiet", "exit 0")))
    assert line.startswith("fail  isolation: A command in Codex's sandbox did not run: it said nothing.")


def test_walls_taken_down_on_purpose_are_shown(tmp_path: Path) -> None:
    alone = patient(tmp_path / "home", '[agents]\nisolation = "codex_only"')
    assert walls(alone).startswith(
        "warn  isolation: Agents run in Codex's own sandbox alone, as agents.isolation says."
    )
    bare = patient(tmp_path / "home", '[codex]\nsandbox = "danger-full-access"')
    assert walls(bare).startswith("warn  isolation: Codex's own sandbox is off, as codex.sandbox says:")


def test_a_home_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    gone = patient(tmp_path / "home")
    gone.home.config_file.unlink()
    gone.home.path.rmdir()
    line = one(agent.isolation(gone.home, gone.config))
    assert line.startswith(f"fail  check: {gone.home.path}/doctor-")
    assert line.endswith("cannot be used: No such file or directory. See there.")


# --- the account ---


def test_nobody_is_logged_in(tmp_path: Path) -> None:
    assert talk(patient(tmp_path / "home")) == [NOT_LOGGED_IN]


def test_a_key_starts_a_thread_and_is_never_said(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)
    [line] = talk(patient(tmp_path / "home", f'[codex]\napi_key = "file:{key}"'))
    assert line == f"ok    codex login: Codex starts a thread with the key of file:{key}."


def test_a_stored_login_starts_a_thread_and_is_left_alone(tmp_path: Path) -> None:
    here = patient(tmp_path / "home")
    here.config.codex.home.mkdir()
    stored = here.config.codex.home / "auth.json"
    stored.write_text(f'{{"auth_mode": "apikey", "OPENAI_API_KEY": "{KEY}"}}')
    before = stored.read_bytes()
    assert talk(here) == ["ok    codex login: Codex starts a thread with the stored API key."]
    assert (stored.read_bytes(), stored.stat().st_nlink) == (before, 1)


def test_a_provider_whose_key_is_not_set_is_said(tmp_path: Path) -> None:
    [line] = talk(with_model(tmp_path, "http://127.0.0.1:9/v1", 'env_key = "SCRIPTED_KEY"'))
    assert line.startswith("fail  codex login: The provider of [codex.config] takes its key as SCRIPTED_KEY, and")


def test_a_program_that_is_no_app_server_is_said(tmp_path: Path) -> None:
    [line] = talk(with_codex(tmp_path, program(tmp_path / "quiet", "exit 0"), 'api_key = "file:/dev/null"'))
    assert line.startswith("fail  codex login: ")
    assert "mistake of its own" not in line


def test_a_turn_is_spent_only_when_asked(tmp_path: Path, model: ResponsesModel) -> None:
    here = with_model(tmp_path, model.base_url)
    started = "ok    codex login: Codex starts a thread with the provider scripted."
    assert talk(here) == [started]
    assert model.requests == []
    assert talk(here, spend=True) == [started, "ok    codex turn: The model answered: ready"]
    assert len(model.requests) == 1


def test_a_model_that_refuses_is_said(tmp_path: Path) -> None:
    with ResponsesModel({"rules": [], "default": [{"http": 401, "body": "no such key"}]}) as model:
        line = talk(with_model(tmp_path, model.base_url), spend=True)[1]
    assert line.startswith("fail  codex turn: The turn ended failed (")
    assert "Log in again with `stationmaster codex login`" in line
