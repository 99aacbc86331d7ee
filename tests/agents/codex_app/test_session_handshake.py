"""The driver against an app-server that follows a script: order, policy, deadlines, deaths."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stationmaster.agents import process
from stationmaster.agents.codex_app import settings as codex_settings
from stationmaster.agents.codex_app.session import CodexRun
from stationmaster.agents.driver import ToolAnswer, ToolCall
from stationmaster.agents.events import (
    AgentEvent,
    AgentMessage,
    AgentRequest,
    AgentWarning,
    ItemCompleted,
    ProcessExited,
    TurnCompleted,
)
from stationmaster.errors import Denied, NotFound, Unavailable
from stationmaster.redact import Secret
from tests.agents.codex_app import fake_app_server
from tests.agents.codex_app.rig import Rig, until
from tests.support import eventually_async

Plan = dict[str, Any]
IDS = {"threadId": "th-1", "turnId": "tu-1"}


def item(phase: str, name: str, **more: Any) -> Plan:
    return {"method": f"item/{phase}", "params": {**IDS, "item": {"type": "commandExecution", "id": name, **more}}}


def ended(status: str = "completed", turn: str = "tu-1", error: Any = None) -> Plan:
    return {
        "method": "turn/completed",
        "params": {"threadId": "th-1", "turn": {"id": turn, "status": status, "error": error}},
    }


def error(number: int, words: str) -> Plan:
    return {"error": {"code": number, "message": words}}


@dataclass
class Fake:
    """A rig whose Codex is the scripted one; no walls, for it needs this Python."""

    rig: Rig
    settings: codex_settings.CodexSettings
    log: Path

    def spec(self, **changes: Any) -> codex_settings.RunSpec:
        return self.rig.spec(isolation="codex_only", **changes)

    def launch(self, **changes: Any) -> Awaitable[CodexRun]:
        return CodexRun.launch(self.settings, self.spec(**changes), on_tool=self.rig.on_tool)

    def heard(self) -> list[Plan]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def told(self) -> dict[str, Plan]:
        """The parameters of the last message of each method."""
        return {message["method"]: message.get("params", {}) for message in self.heard() if "method" in message}

    def methods(self) -> list[str]:
        return [message["method"] for message in self.heard() if "method" in message]


MakeFake = Callable[..., Fake]


@pytest.fixture
def fake(tmp_path: Path) -> MakeFake:
    def make(plan: Plan | None = None, **changes: Any) -> Fake:
        rig, log, script, called = Rig(tmp_path), tmp_path / "log", tmp_path / "plan.json", tmp_path / "codex"
        script.write_text(json.dumps({"log": str(log), **(plan or {})}))
        program = shlex.join([sys.executable, str(Path(fake_app_server.__file__)), str(script)])
        called.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        called.chmod(0o700)
        changes = {"command": called, "request_timeout_s": 20.0, "close_grace_s": 5.0, **changes}
        return Fake(rig, rig.settings(**changes), log)

    return make


async def test_one_initialize_then_initialized_then_everything_else(fake: MakeFake) -> None:
    # GW-R-246 AC-07, GW-R-005, GW-R-139, GW-R-140, GW-R-141
    made = fake()
    run = await made.launch()
    thread_id = await run.start_thread()
    await run.start_turn(thread_id, "hello")
    await run.close()
    assert made.methods() == [
        "initialize",
        "initialized",
        "experimentalFeature/enablement/set",
        "collaborationMode/list",
        "account/read",
        "thread/start",
        "turn/start",
    ]
    told = made.told()
    assert told["experimentalFeature/enablement/set"] == {"enablement": {"goals": True}}
    assert told["thread/start"]["cwd"] == str(made.rig.tree)
    assert told["thread/start"]["permissions"] == "stationmaster"
    assert told["thread/start"]["approvalPolicy"] == "never"
    assert "sandbox" not in told["thread/start"]
    assert told["thread/start"]["config"]["projects"] == {str(made.rig.tree): {"trust_level": "untrusted"}}
    assert told["turn/start"] == {"threadId": "th-1", "input": [{"type": "text", "text": "hello"}]}


async def test_failed_probes_are_told_and_change_nothing(fake: MakeFake) -> None:
    # GW-R-246 AC-07, GW-R-005, GW-R-236, GW-R-140
    answers = {
        "experimentalFeature/enablement/set": [error(-32600, "no such thing")],
        "collaborationMode/list": ["silence"],
    }
    made = fake({"answers": answers}, probe_timeout_s=0.2)
    run = await made.launch()
    assert await run.start_thread() == "th-1"
    await run.close()
    assert len(run.probe_failures) == 2


async def test_model_effort_and_instructions_go_only_into_the_collaboration_mode(fake: MakeFake) -> None:
    # GW-R-143
    made = fake(model="m-1", reasoning_effort="high", developer_instructions="Be brief.")
    run = await made.launch(developer_instructions="House rules.")
    await run.start_turn(await run.start_thread(), "hello")
    await run.close()
    told = made.told()
    assert told["turn/start"]["collaborationMode"] == {
        "mode": "default",
        "settings": {"model": "m-1", "reasoning_effort": "high", "developer_instructions": "Be brief."},
    }
    assert "model" not in told["turn/start"]
    assert "effort" not in told["turn/start"]
    assert told["thread/start"]["developerInstructions"] == "House rules."


async def test_without_a_configured_model_the_threads_own_is_named(fake: MakeFake) -> None:
    made = fake(reasoning_effort="low")
    run = await made.launch()
    await run.start_turn(await run.start_thread(), "hello")
    await run.close()
    assert made.heard()[-1]["params"]["collaborationMode"]["settings"]["model"] == "fake-model"


async def test_a_refused_collaboration_mode_is_downgraded_once(fake: MakeFake) -> None:
    # GW-R-246 AC-07, GW-R-236, GW-R-144
    refusal = error(-32600, "turn/start.collaborationMode requires experimentalApi capability")
    made = fake(
        {"answers": {"turn/start": [refusal, {"result": {"turn": {"id": "tu-1"}}}]}},
        model="m-1",
        reasoning_effort="high",
        developer_instructions="Be brief.",
    )
    run = await made.launch()
    thread_id = await run.start_thread()
    assert await run.start_turn(thread_id, "one") == "tu-1"
    assert await run.start_turn(thread_id, "two") == "tu-1"
    await run.close()
    turns = [message["params"] for message in made.heard() if message.get("method") == "turn/start"]
    assert ["collaborationMode" in params for params in turns] == [True, False, False]
    assert (turns[1]["model"], turns[1]["effort"]) == ("m-1", "high")
    assert [part["text"] for part in turns[1]["input"]] == ["Operator's instructions:\nBe brief.", "one"]
    assert len(run.capability_downgrades) == 1


async def test_a_tool_server_that_a_run_cannot_do_without_is_named(fake: MakeFake) -> None:
    # GW-R-159: its words hold what would otherwise pass for a lost thread
    words = (
        "error creating thread: Fatal error: Failed to initialize session: required MCP servers failed to initialize: "
        "gitea: program not found"
    )
    made = fake({"answers": {"thread/start": [error(-32603, words)], "thread/resume": [error(-32603, words)]}})
    run = await made.launch()
    for asked in (run.start_thread(), run.resume_thread("th-1")):
        with pytest.raises(Unavailable, match="required MCP servers failed to initialize: gitea") as caught:
            await asked
        assert caught.value.code == "mcp_handshake_failed"
    await run.close()


async def test_another_refusal_of_a_turn_is_not_sent_again(fake: MakeFake) -> None:
    made = fake({"answers": {"turn/start": [error(-32600, "thread not found")]}}, model="m-1")
    run = await made.launch()
    with pytest.raises(Unavailable) as caught:
        await run.start_turn(await run.start_thread(), "one")
    await run.close()
    assert caught.value.code == "app_server_rejected"
    assert made.methods().count("turn/start") == 1
    assert run.capability_downgrades == []


async def test_the_turn_id_comes_before_everything_about_the_turn(fake: MakeFake) -> None:
    # GW-R-147, GW-R-149: notifications before the answer, out of order and doubled
    call = {
        "id": 7,
        "method": "item/tool/call",
        "params": {**IDS, "callId": "c1", "tool": "reply", "arguments": {"body": "x"}},
    }
    early = [
        {"method": "turn/started", "params": {"threadId": "th-1", "turn": {"id": "tu-1"}}},
        item("completed", "c1", exitCode=0),
        item("started", "c1"),
        item("completed", "c1", exitCode=1),
        call,
    ]
    made = fake({"before": {"turn/start": early}, "after": {"turn/start": [ended(), ended("failed")]}})
    order: list[str] = []

    async def on_tool(call: ToolCall) -> ToolAnswer:
        order.append(f"tool {call.turn_id}")
        return ToolAnswer("ok", ok=True)

    async def stored(turn_id: str) -> None:
        await asyncio.sleep(0)
        order.append(f"stored {turn_id}")

    run = await CodexRun.launch(made.settings, made.spec(), on_tool=on_tool)
    thread_id = await run.start_thread()
    seen: list[AgentEvent] = []

    async def read() -> None:
        async for event in run.events():
            order.append(event.kind)
            seen.append(event)

    reader = asyncio.create_task(read())
    order.append(f"returned {await run.start_turn(thread_id, 'hello', stored=stored)}")
    await eventually_async(lambda: answered(made, 7))
    await run.close()
    await reader
    assert order[:2] == ["stored tu-1", "returned tu-1"]
    assert [event.kind for event in seen] == ["turn_started", "item_completed", "turn_completed", "process_exited"]
    assert [event.seq for event in seen] == [1, 2, 3, 4]
    assert isinstance(seen[1], ItemCompleted)
    assert seen[1].detail["exitCode"] == 0
    assert isinstance(seen[2], TurnCompleted)
    assert seen[2].status == "completed"
    assert "tool tu-1" in order


async def answered(made: Fake, number: int) -> Plan | None:
    return next((message for message in made.heard() if message.get("id") == number and "method" not in message), None)


ELICITATION = {
    "id": 1,
    "method": "mcpServer/elicitation/request",
    "params": {
        **IDS,
        "serverName": "gitea",
        "mode": "form",
        "_meta": {"codex_approval_kind": "mcp_tool_call"},
        "message": "Allow it?",
    },
}
POLICY: list[tuple[Plan, frozenset[str], Plan, str, bool]] = [
    (ELICITATION, frozenset({"gitea"}), {"action": "accept", "content": {}, "_meta": None}, "accept", False),
    (ELICITATION, frozenset(), {"action": "cancel", "content": None, "_meta": None}, "cancel", True),
    (
        {**ELICITATION, "params": {**IDS, "serverName": "gitea", "_meta": None, "message": "Which colour?"}},
        frozenset({"gitea"}),
        {"action": "cancel", "content": None, "_meta": None},
        "cancel",
        True,
    ),
    (
        {"id": 2, "method": "item/commandExecution/requestApproval", "params": {**IDS, "command": "rm -rf /"}},
        frozenset(),
        {"decision": "decline"},
        "decline",
        False,
    ),
    (
        {"id": 3, "method": "item/fileChange/requestApproval", "params": {**IDS, "reason": "outside"}},
        frozenset(),
        {"decision": "decline"},
        "decline",
        False,
    ),
    (
        {"id": 4, "method": "item/permissions/requestApproval", "params": {**IDS, "reason": "network"}},
        frozenset(),
        {"permissions": {}},
        "decline",
        False,
    ),
]


@pytest.mark.parametrize(("asked", "trusted", "result", "action", "waiting"), POLICY)
async def test_requests_are_answered_by_policy_at_once(
    fake: MakeFake, asked: Plan, trusted: frozenset[str], result: Plan, action: str, waiting: bool
) -> None:
    # GW-R-151, GW-R-152
    made = fake({"after": {"turn/start": [asked, ended()]}})
    run = await made.launch(trusted_servers=trusted)
    await run.start_turn(await run.start_thread(), "hello")
    events = await until(run, lambda event: isinstance(event, AgentRequest))
    answer = await eventually_async(lambda: answered(made, asked["id"]))
    await run.close()
    assert answer == {"id": asked["id"], "result": result}
    event = events[-1]
    assert isinstance(event, AgentRequest)
    assert (event.action, event.waiting) == (action, waiting)


@pytest.mark.parametrize(
    "asked",
    [
        {"id": "five", "method": "item/tool/requestUserInput", "params": {**IDS, "questions": [{"question": "Why?"}]}},
        {"id": 6, "method": "account/chatgptAuthTokens/refresh", "params": {}},
        {"id": 7, "method": "something/new", "params": {}},
        {"id": 8, "method": "item/tool/call"},
    ],
)
async def test_no_request_stays_without_an_answer(fake: MakeFake, asked: Plan) -> None:
    # GW-R-152
    made = fake({"after": {"turn/start": [asked]}})
    run = await made.launch()
    await run.start_turn(await run.start_thread(), "hello")
    answer = await eventually_async(lambda: answered(made, asked["id"]))
    assert answer
    assert ("error" in answer) == (asked["method"] != "item/tool/call")
    assert answer.get("result", {}).get("success") in (None, False)
    if asked["method"] == "item/tool/requestUserInput":
        event = (await until(run, lambda event: isinstance(event, AgentRequest)))[-1]
        assert isinstance(event, AgentRequest)
        assert (event.waiting, event.questions) == (True, ("Why?",))
    await run.close()


async def test_a_slow_tool_does_not_stop_the_reader(fake: MakeFake) -> None:
    call = {
        "id": 9,
        "method": "item/tool/call",
        "params": {**IDS, "callId": "c", "tool": "reply", "arguments": {"body": "x"}},
    }
    made = fake({"after": {"turn/start": [call, item("completed", "later"), ELICITATION]}})
    release = asyncio.Event()

    async def on_tool(_: ToolCall) -> ToolAnswer:
        await release.wait()
        return ToolAnswer("slow", ok=True)

    run = await CodexRun.launch(made.settings, made.spec(), on_tool=on_tool)
    await run.start_turn(await run.start_thread(), "hello")
    await until(run, lambda event: isinstance(event, ItemCompleted))
    await eventually_async(lambda: answered(made, 1))
    assert await answered(made, 9) is None
    release.set()
    answer = await eventually_async(lambda: answered(made, 9))
    await run.close()
    assert answer
    assert answer["result"] == {"contentItems": [{"type": "inputText", "text": "slow"}], "success": True}


@pytest.mark.parametrize(
    ("fault", "words"), [(Denied("You may not.", code="x"), "You may not."), (ValueError("inner"), "ValueError")]
)
async def test_a_tool_that_fails_is_answered_and_told(fake: MakeFake, fault: Exception, words: str) -> None:
    call = {"id": 9, "method": "item/tool/call", "params": {**IDS, "callId": "c", "tool": "reply", "arguments": {}}}
    made = fake({"after": {"turn/start": [call]}})

    async def on_tool(_: ToolCall) -> ToolAnswer:
        raise fault

    run = await CodexRun.launch(made.settings, made.spec(), on_tool=on_tool)
    await run.start_turn(await run.start_thread(), "hello")
    events = await until(run, lambda event: isinstance(event, AgentWarning))
    answer = await eventually_async(lambda: answered(made, 9))
    await run.close()
    assert answer
    assert answer["result"]["success"] is False
    assert words in answer["result"]["contentItems"][0]["text"]
    assert "inner" not in str(answer)
    assert words in str(events[-1])


async def test_overload_is_asked_again_within_the_deadline(fake: MakeFake) -> None:
    # GW-R-153
    busy = error(-32001, "Server overloaded; retry later.")
    made = fake({"answers": {"turn/start": [busy, busy, {"result": {"turn": {"id": "tu-1"}}}]}})
    run = await made.launch()
    assert await run.start_turn(await run.start_thread(), "hello") == "tu-1"
    await run.close()
    assert made.methods().count("turn/start") == 3


async def test_overload_without_end_and_silence_are_timeouts(fake: MakeFake) -> None:
    # GW-R-153
    made = fake(
        {"answers": {"turn/start": [error(-32001, "busy")], "thread/resume": ["silence"]}}, request_timeout_s=1.0
    )
    run = await made.launch()
    for asking in (run.start_turn("th-1", "hello"), run.resume_thread("th-1")):
        with pytest.raises(Unavailable) as caught:
            await asking
        assert caught.value.code == "app_server_timeout"
    await run.close()


async def test_a_silent_start_leaves_no_process(fake: MakeFake) -> None:
    made = fake({"answers": {"initialize": ["silence"]}}, request_timeout_s=0.5)
    spec = made.spec()
    with pytest.raises(Unavailable) as caught:
        await CodexRun.launch(made.settings, spec, on_tool=made.rig.on_tool)
    assert caught.value.code == "app_server_timeout"
    assert process.marked(spec.run_id) == []


async def test_death_ends_every_open_request_and_the_events(fake: MakeFake) -> None:
    # GW-R-153
    made = fake({"answers": {"turn/start": ["die"]}})
    run = await made.launch(log=made.rig.root / "stderr")
    with pytest.raises(Unavailable) as caught:
        await run.start_turn(await run.start_thread(), "hello")
    assert caught.value.code == "app_server_unreachable"
    events = [event async for event in run.events()]
    last = events[-1]
    assert isinstance(last, ProcessExited)
    assert last.code == 3
    with pytest.raises(Unavailable):
        await run.start_thread()
    await run.close()
    await run.close()
    assert "the fake dies now" in (made.rig.root / "stderr").read_text()


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
