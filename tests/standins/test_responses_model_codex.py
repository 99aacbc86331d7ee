"""The scripted model against the real Codex binary: what the demo and the journeys rest on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stationmaster.standins.responses_model import ResponsesModel
from tests.standins.codex import AppServer, Codex
from tests.support import eventually

PATCH = "*** Begin Patch\n*** Add File: patched.txt\n+one line\n*** End Patch\n"


async def test_exec_runs_a_command_and_answers(tmp_path: Path) -> None:
    steps = [
        [{"reasoning": "I should look"}, {"shell": "printf hi > made.txt; cat made.txt"}],
        [{"text": "It says ${last_output}"}, {"usage": {"input_tokens": 7, "output_tokens": 2}}],
    ]
    with ResponsesModel({"rules": [{"when": {"user": "^look"}, "advance": "tool", "steps": steps}]}) as model:
        codex = Codex(tmp_path, model.base_url)
        status, seen = await codex.run("look around")
        strays = model.strays
    items = [event["item"] for event in seen if event["type"] == "item.completed"]
    assert status == 0
    assert [item["type"] for item in items if item["type"] != "error"] == [
        "reasoning",
        "command_execution",
        "agent_message",
    ]
    assert "hi" in items[-1]["text"]
    assert seen[-1]["usage"]["output_tokens"] > 0
    assert (codex.work / "made.txt").read_text() == "hi"
    assert strays == []


async def test_a_cut_stream_is_retried_and_an_error_fails_the_turn(tmp_path: Path) -> None:
    flaky = [[{"text": "half", "open": True}, {"cut": "close"}], "whole"]
    rules = [{"when": {"user": "^flaky"}, "steps": flaky}, {"when": {"user": "^broken"}, "steps": [{"http": 500}]}]
    with ResponsesModel({"rules": rules}) as model:
        codex = Codex(tmp_path, model.base_url, retries=2)
        status, seen = await codex.run("flaky")
        assert (status, seen[-2]["item"]["text"]) == (0, "whole")
        status, seen = await codex.run("broken")
        assert (status, seen[-1]["type"]) == (1, "turn.failed")


@pytest.mark.parametrize("name", ["scripted-model", "gpt-5.5", "gpt-6.1-sol"])
async def test_every_shape_of_tools_is_spoken(tmp_path: Path, name: str) -> None:
    steps = [
        {"shell": "echo out > shell.txt"},
        {"patch": PATCH},
        {"call": {"name": "reply", "args": {"body": "${1}"}}},
        {"text": "End: ${last_output}", "phase": "final_answer"},
    ]
    rule = {"when": {"user": "^say (.*)"}, "advance": "tool", "steps": steps}
    with ResponsesModel({"rules": [rule]}) as model:
        codex = Codex(tmp_path, model.base_url, model=name)
        async with AppServer(codex) as server:
            turn = await server.turn("say hello", ["reply"])
    assert turn["status"] == "completed"
    assert turn["items"][-1]["text"].endswith("reply heard")
    assert [(call["tool"], call["arguments"]) for call in server.called] == [("reply", {"body": "hello"})]
    assert (codex.work / "patched.txt").read_text() == "one line\n"
    assert (codex.work / "shell.txt").read_text() == "out\n"


async def test_a_released_hold_ends_the_turn(tmp_path: Path) -> None:
    with ResponsesModel([[{"text": "thinking", "phase": "commentary"}, {"hold": "gate"}, "done"]]) as model:
        running = asyncio.create_task(Codex(tmp_path, model.base_url).run("wait for it"))
        await asyncio.to_thread(eventually, lambda: model.requests)
        assert not running.done()
        model.release("gate")
        status, seen = await running
    assert (status, seen[-2]["item"]["text"]) == (0, "done")
