from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import typer

from stationmaster.control import errors
from stationmaster.errors import Busy, NotFound, StationmasterError
from stationmaster.ops import main, tell
from tests.ops.conftest import Daemon

Run = Callable[..., CompletedProcess[str]]


def _one(done: CompletedProcess[str]) -> dict[str, Any]:
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    said: dict[str, Any] = json.loads(line)
    assert said["exitCode"] == done.returncode
    return said


@pytest.mark.parametrize(
    ("words", "code", "error", "message", "hint"),
    [
        (
            ["operator", "revoke", "ghost"],
            4,
            "operator_not_found",
            "There is no active key called ghost.",
            "operator list",
        ),
        (["operator", "add", "a b"], 2, "invalid_operator", "An operator's name is 1 to 40 letters", None),
        (["task", "show", "t"], 4, "task_not_found", "There is no task t.", None),
        (
            ["--home", "/proc/nowhere", "operator", "list"],
            2,
            "",
            "The home folder /proc/nowhere cannot be written",
            None,
        ),
        (["operator", "add"], 2, "usage", "Missing argument 'name'.", "operator add --help`"),
        (["nothing"], 2, "usage", "No such command 'nothing'.", "--help"),
        (["up", "--fast"], 2, "usage", "No such option: --fast", "up --help"),
        (["audit", "--since", "yesterday"], 2, "invalid_request", "since", None),
    ],
)
def test_with_json_an_error_is_one_object(
    run: Run, words: list[str], code: int, error: str, message: str, hint: str | None
) -> None:
    said = _one(run(*words, "--json"))
    assert said["exitCode"] == code
    assert said["error"] == error or not error
    assert message in said["message"]
    if hint is not None:
        assert hint in said["hint"]
        assert hint not in said["message"]


def test_a_running_daemon_s_errors_are_the_same(run: Run, start: Callable[..., Daemon]) -> None:
    alone = _one(run("operator", "revoke", "ghost", "--json"))
    start()
    assert _one(run("operator", "revoke", "ghost", "--json")) == alone
    assert run("operator", "revoke", "ghost").stderr == f"stationmaster: {alone['message']} {alone['hint']}\n"


def test_a_wrong_setting_and_a_mistake_of_ours_are_objects_too(run: Run, home: Path) -> None:
    (home / "stationmaster.toml").write_text('[gitea]\ntoken_ref = "plainly-written"')
    said = _one(run("up", "--json"))
    assert (said["error"], said["exitCode"]) == ("config_invalid", 2)
    assert "plainly-written" not in json.dumps(said)
    (home / "stationmaster.toml").write_text("")
    (home / "stationmaster.db").mkdir()
    said = _one(run("operator", "list", "--json"))
    assert said["exitCode"] != 0
    assert said["hint"]


def test_an_answer_is_on_standard_output_and_nothing_on_standard_error(run: Run) -> None:
    done = run("operator", "list", "--json")
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, {"operators": []}, "")


def test_what_stands_after_the_end_of_options_is_no_wish() -> None:
    assert tell.wants_json(["task", "list", "--json"])
    assert not tell.wants_json(["codex", "login", "--", "--json"])
    assert not tell.wants_json(["task", "list"])


@pytest.mark.parametrize(
    "error",
    [
        NotFound("There is no task t.", code="task_not_found", hint="Look at the list.", task="t"),
        NotFound("There is no task t."),
        Busy("Somebody works there.", code="busy", hint="Later.", repo="a/b"),
    ],
)
def test_an_error_comes_over_the_socket_as_it_was(error: StationmasterError) -> None:
    same = errors.from_body(errors.status(error), errors.body(error))
    assert type(same) is type(error)
    assert (same.message, same.hint, same.ids) == (error.message, error.hint, error.ids)
    assert errors.body(same) == errors.body(error)


def test_every_command_takes_json() -> None:
    # What talks to a person or to another program alone, and what answers in JSON whatever is asked.
    without = {"codex login", "demo", "standin forge", "standin model", "standin gitea-mcp", "canon"}
    found = dict(_commands(typer.main.get_command(main.app), ""))
    assert len(found) > 25
    assert {words for words, options in found.items() if "--json" not in options} <= without


def _commands(command: Any, words: str) -> Iterator[tuple[str, set[str]]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words.strip(), {option for parameter in command.params for option in parameter.opts}
        return
    for name, each in inner.items():
        yield from _commands(each, f"{words} {name}")
