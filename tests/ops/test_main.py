from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from stationmaster.ops import main

Run = Callable[..., CompletedProcess[str]]


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["operator", "revoke", "ghost"], 4, "There is no active key called ghost."),
        (["operator", "add", "a b"], 2, "An operator's name is 1 to 40 letters"),
        (["--home", "/proc/nowhere", "operator", "list"], 2, "The home folder /proc/nowhere cannot be written"),
    ],
)
def test_an_error_is_one_sentence_and_an_exit_code(run: Run, words: list[str], status: int, sentence: str) -> None:
    done = run(*words)
    assert done.returncode == status
    assert done.stderr.startswith(f"stationmaster: {sentence}")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize("words", [["nothing"], ["operator", "add"], ["up", "--fast"], ["operator", "add", "a", "--x"]])
def test_a_wrong_word_is_told_without_a_traceback(run: Run, words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_wrong_configuration_stops_every_verb_with_the_key(run: Run, home: Path) -> None:
    (home / "stationmaster.toml").write_text("[gitea]\ncolour = 1")
    for words in (["up"], ["operator", "list"], ["config", "show"]):
        done = run(*words)
        assert done.returncode == 2
        assert done.stderr == f"stationmaster: {home}/stationmaster.toml has an unknown key: gitea.colour.\n"


def test_a_plain_secret_stops_the_start_and_is_not_repeated(run: Run, home: Path) -> None:
    # GW-R-239
    (home / "stationmaster.toml").write_text('[gitea]\ntoken_ref = "plainly-written"')
    done = run("up")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "gitea.token_ref must be a reference" in done.stderr
    assert "plainly-written" not in done.stderr


def test_what_is_missing_for_the_daemon_is_named(run: Run, home: Path) -> None:
    (home / "stationmaster.toml").write_text('[gitea]\nbase_url = "http://127.0.0.1:9"')
    done = run("up")
    assert done.returncode == 2
    assert "gitea.token_ref, gitea.webhook_secret_ref are not set in" in done.stderr


def test_an_empty_webhook_secret_stops_the_start(run: Run) -> None:
    # GW-R-048
    done = run("up", SM_TEST_HOOK="")
    assert done.returncode == 2
    assert "gitea.webhook_secret_ref refers to an empty secret (env:SM_TEST_HOOK)" in done.stderr


def test_a_mistake_of_ours_is_a_sentence_and_a_note(run: Run, home: Path) -> None:
    (home / "stationmaster.db").mkdir()
    done = run("operator", "list")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_home_may_stand_anywhere(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shown = json.loads(run("config", "show", "--home", str(other), "--json").stdout)
    assert shown["workspace"]["root"] == str(other / "workspaces")
    assert main._home_first(["task", "list", "--home=/x", "--json"]) == ["--home=/x", "task", "list", "--json"]
    assert main._home_first(["task", "--", "--home", "/x"]) == ["task", "--", "--home", "/x"]


def test_the_version_is_told(run: Run) -> None:
    assert json.loads(run("version", "--json").stdout)["version"]
    assert run("version").stdout.startswith("stationmaster ")
