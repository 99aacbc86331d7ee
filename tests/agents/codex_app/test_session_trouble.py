"""The driver against an app-server that misbehaves, and what a resumed thread is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from stationmaster.agents.events import (
    AgentMessage,
    ItemCompleted,
    TurnCompleted,
)
from stationmaster.errors import Denied, NotFound, Unavailable
from stationmaster.redact import Secret
from tests.agents.codex_app.conftest import MakeFake, ended, error, item
from tests.agents.codex_app.rig import until


async def test_a_command_that_is_not_there_is_named_by_kind(fake: MakeFake) -> None:
    made = fake(command=Path("/nowhere/codex"))
    with pytest.raises(Unavailable) as caught:
        await made.launch()
    assert caught.value.code == "app_server_unreachable"


async def test_garbage_on_the_wire_is_skipped(fake: MakeFake) -> None:
    made = fake({"answers": {"thread/start": ["garbage"]}, "after": {"thread/start": [{"id": 999, "result": {}}]}})
    run = await made.launch()
    assert await run.start_thread() == "th-1"
    await run.close()


async def test_a_line_of_megabytes_is_read(fake: MakeFake) -> None:
    big = "x" * (3 * 1024 * 1024)
    made = fake({"after": {"turn/start": [item("completed", "big", aggregatedOutput=big), ended()]}})
    run = await made.launch()
    await run.start_turn(await run.start_thread(), "hello")
    events = await until(run, lambda event: isinstance(event, TurnCompleted))
    await run.close()
    assert isinstance(events[0], ItemCompleted)
    assert len(events[0].detail["output"]) == 4000


async def test_another_threads_events_are_not_ours(fake: MakeFake) -> None:
    other = {
        "method": "item/completed",
        "params": {"threadId": "th-2", "turnId": "t", "item": {"type": "agentMessage", "id": "m", "text": "not ours"}},
    }
    made = fake({"after": {"turn/start": [other, ended()]}})
    run = await made.launch()
    await run.start_turn(await run.start_thread(), "hello")
    events = await until(run, lambda event: isinstance(event, TurnCompleted))
    await run.close()
    assert not [event for event in events if isinstance(event, AgentMessage)]


async def test_an_interrupt_of_an_ended_turn_returns(fake: MakeFake) -> None:
    # GW-R-154: Codex does not answer for a turn that is over
    made = fake({"answers": {"turn/interrupt": ["silence"]}, "after": {"turn/interrupt": [ended("interrupted")]}})
    run = await made.launch()
    turn_id = await run.start_turn(await run.start_thread(), "hello")
    await run.interrupt("th-1", turn_id)
    await run.interrupt("th-1", turn_id)
    await run.close()
    assert made.methods().count("turn/interrupt") == 1


async def test_an_interrupt_that_comes_too_early_is_asked_again(fake: MakeFake) -> None:
    # GW-R-154: for a moment after its start Codex does not know the turn
    early = [error(-32600, "no active turn to interrupt")] * 2
    made = fake({"answers": {"turn/interrupt": [*early, {"result": {}}]}})
    run = await made.launch()
    turn_id = await run.start_turn(await run.start_thread(), "hello")
    await run.interrupt("th-1", turn_id)
    await run.close()
    assert made.methods().count("turn/interrupt") == 3


async def test_an_interrupt_without_an_echo_times_out(fake: MakeFake) -> None:
    made = fake({"answers": {"turn/interrupt": ["silence"]}}, request_timeout_s=0.5)
    run = await made.launch()
    turn_id = await run.start_turn(await run.start_thread(), "hello")
    with pytest.raises(Unavailable) as caught:
        await run.interrupt("th-1", turn_id)
    assert caught.value.code == "app_server_timeout"
    await run.close()


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        ("no rollout found for thread id th-1", True),
        ("session th-1 is archived. Run `codex unarchive th-1` to unarchive it first.", True),
        ("thread th-1 not found", True),
        ("failed to read session metadata /x.jsonl: empty session file", True),
        ("failed to read session metadata /x.jsonl: Too many open files (os error 24)", False),
        ("model provider `scripted` not found", False),
        ("thread th-1 already has an active writer", False),
        ("failed to load configuration: x", False),
    ],
)
async def test_only_a_lost_thread_is_unrecoverable(fake: MakeFake, words: str, lost: bool) -> None:
    made = fake({"answers": {"thread/resume": [error(-32600, words)]}})
    run = await made.launch()
    with pytest.raises(NotFound if lost else Unavailable) as caught:
        await run.resume_thread("th-1")
    await run.close()
    assert (caught.value.code == "session_unrecoverable") == lost


async def test_a_resume_carries_the_same_configuration_as_a_start(fake: MakeFake) -> None:
    # GW-R-146
    made = fake()
    run = await made.launch(developer_instructions="House rules.")
    await run.start_thread()
    await run.resume_thread("th-1")
    await run.close()
    told = made.told()
    start, resume = told["thread/start"], told["thread/resume"]
    assert start.pop("dynamicTools")[0]["name"] == "reply"
    assert (resume.pop("threadId"), resume.pop("excludeTurns")) == ("th-1", True)
    assert resume == start


async def test_full_access_is_sent_as_a_sandbox_and_never_with_permissions(fake: MakeFake) -> None:
    made = fake(sandbox="danger-full-access")
    run = await made.launch()
    await run.start_thread()
    await run.close()
    params = made.heard()[-1]["params"]
    assert params["sandbox"] == "danger-full-access"
    assert "permissions" not in params
    assert "permissions" not in params["config"]


async def test_a_key_is_sent_after_initialized_and_the_account_must_show(fake: MakeFake) -> None:
    made = fake({"answers": {"account/read": [{"result": {"account": None, "requiresOpenaiAuth": True}}]}})
    with pytest.raises(Denied) as caught:
        await made.launch(api_key=Secret("file:/key", lambda: "sk-made-up-key"))
    assert caught.value.code == "codex_not_logged_in"
    told = made.told()
    assert told["account/login/start"] == {"type": "apiKey", "apiKey": "sk-made-up-key"}
    assert made.methods().index("account/login/start") > made.methods().index("initialized")
