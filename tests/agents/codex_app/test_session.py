"""The driver against the real Codex binary and a scripted model."""

from __future__ import annotations

from pathlib import Path

from stationmaster.agents.events import AgentMessage, ItemCompleted, ThreadStarted, TurnCompleted, TurnStarted, record
from stationmaster.standins.responses_model import ResponsesModel
from tests.agents.codex_app.rig import Rig, scenario, turn

PATCH = "*** Begin Patch\n*** Add File: sub/p.txt\n+patched\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch\n"


async def test_a_turn_edits_files_and_calls_a_tool(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    steps = [
        [{"text": "I look.", "phase": "commentary"}, {"patch": PATCH}],
        {"shell": "git status --short; git diff; printf made > made.txt"},
        {"call": {"name": "reply", "args": {"body": "done"}}},
        {"text": "Said: ${last_output}", "phase": "final_answer"},
    ]
    with ResponsesModel(scenario("please", *steps)) as model:
        settings = rig.settings(model.base_url)
        async with rig.run(settings, rig.spec(developer_instructions="RULES OF THE HOUSE")) as run:
            thread_id = await run.start_thread()
            events = await turn(run, thread_id, "please change it")
        assert model.strays == []
        asked = model.requests
    kinds = [event.kind for event in events]
    assert isinstance(events[0], ThreadStarted)
    assert kinds.index("turn_started") < kinds.index("item_started")
    assert [event.seq for event in events] == list(range(1, len(events) + 1))  # GW-R-149
    end = events[-1]
    assert isinstance(end, TurnCompleted)
    assert (end.status, end.error_code) == ("completed", "")
    said = [event for event in events if isinstance(event, AgentMessage)]
    assert (said[-1].text, said[-1].phase) == ("Said: reply heard", "final_answer")
    assert [(call.tool, call.arguments, call.turn_id) for call in rig.called] == [
        ("reply", {"body": "done"}, end.turn_id)
    ]
    assert (rig.tree / "a.txt").read_text() == "two\n"
    assert (rig.tree / "sub/p.txt").read_text() == "patched\n"
    assert (rig.tree / "made.txt").read_text() == "made"
    commands = [event for event in events if isinstance(event, ItemCompleted) and event.item_type == "commandExecution"]
    assert "?? sub/" in commands[0].detail["output"]
    assert "+two" in commands[0].detail["output"]
    assert any(isinstance(event, TurnStarted) for event in events)
    assert record(end)["kind"] == "turn_completed"
    assert "RULES OF THE HOUSE" in str(asked[0]["body"])
    assert run.capability_downgrades == []
    assert run.probe_failures == []


async def test_model_effort_and_instructions_reach_the_model(tmp_path: Path) -> None:
    # GW-R-143 with the real binary: accepted, and not downgraded
    rig = Rig(tmp_path)
    with ResponsesModel(["Fine."]) as model:
        settings = rig.settings(
            model.base_url, model="gpt-5.5", reasoning_effort="high", developer_instructions="OPERATOR SAYS"
        )
        async with rig.run(settings, rig.spec(developer_instructions="HOUSE SAYS")) as run:
            events = await turn(run, await run.start_thread(), "hello")
            assert run.capability_downgrades == []
        body = model.requests[0]["body"]
    assert isinstance(events[-1], TurnCompleted)
    assert events[-1].status == "completed"
    assert (body["model"], body["reasoning"]["effort"]) == ("gpt-5.5", "high")
    assert "OPERATOR SAYS" in str(body)
    assert "HOUSE SAYS" in str(body)


async def test_a_question_of_a_newer_model_is_a_message_with_questions(tmp_path: Path) -> None:
    # GW-R-151
    rig = Rig(tmp_path)
    asked = {"questions": [{"title": "Red or blue?", "options": ["red", "blue"]}]}
    steps = [{"call": {"name": "request_user_input_async", "args": asked}}, "I wait."]
    with ResponsesModel(scenario("paint", *steps)) as model:
        async with rig.run(rig.settings(model.base_url, model="gpt-6.1-sol")) as run:
            events = await turn(run, await run.start_thread(), "paint it")
    question = next(event for event in events if isinstance(event, AgentMessage) and event.delivery)
    assert (question.delivery, question.questions) == ("async", ("Red or blue?",))


async def test_a_failing_model_ends_the_turn_with_a_reason(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with ResponsesModel({"default": [{"http": 500}]}) as model:
        async with rig.run(rig.settings(model.base_url)) as run:
            thread_id = await run.start_thread()
            failed = (await turn(run, thread_id, "hello"))[-1]
            model.use(["Fine."])
            again = (await turn(run, thread_id, "hello again"))[-1]
    assert isinstance(failed, TurnCompleted)
    assert (failed.status, failed.error_code, failed.transient) == ("failed", "internalServerError", True)
    assert isinstance(again, TurnCompleted)
    assert again.status == "completed"


async def test_a_dead_provider_is_not_waited_for(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with ResponsesModel(["Fine."]) as model:
        gone = model.base_url
    async with rig.run(rig.settings(gone)) as run:
        end = (await turn(run, await run.start_thread(), "hello"))[-1]
    assert isinstance(end, TurnCompleted)
    assert (end.status, end.transient) == ("failed", True)
