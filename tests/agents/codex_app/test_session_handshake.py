"""The driver against an app-server that follows a script: order, policy, deadlines, deaths."""

from __future__ import annotations

import asyncio

import pytest

from stationmaster.agents import process
from stationmaster.agents.codex_app.session import CodexRun
from stationmaster.agents.driver import ToolAnswer, ToolCall
from stationmaster.agents.events import (
    AgentEvent,
    AgentRequest,
    AgentWarning,
    ItemCompleted,
    ProcessExited,
    TurnCompleted,
)
from stationmaster.errors import Denied, Unavailable
from tests.agents.codex_app.conftest import IDS, Fake, MakeFake, Plan, ended, error, item
from tests.agents.codex_app.rig import until
from tests.support import eventually_async


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
