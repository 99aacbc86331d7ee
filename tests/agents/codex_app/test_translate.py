"""From the wire to events, newer and broken wires included."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stationmaster import redact
from stationmaster.agents.codex_app import translate
from stationmaster.agents.codex_app.stream import EventStream
from stationmaster.agents.events import AgentError, AgentMessage, ItemCompleted, TurnCompleted, record

IDS = {"threadId": "th", "turnId": "tu"}


def completed(**item: Any) -> Any:
    return translate.notification("item/completed", {**IDS, "item": {"id": "i", **item}})


@pytest.mark.parametrize(
    ("info", "message", "code", "transient"),
    [
        ("internalServerError", "x", "internalServerError", True),
        ("serverOverloaded", "x", "serverOverloaded", True),
        ("usageLimitExceeded", "x", "usageLimitExceeded", False),
        ("contextWindowExceeded", "x", "contextWindowExceeded", False),
        ("unauthorized", "x", "unauthorized", False),
        ({"httpConnectionFailed": {"httpStatusCode": 401}}, "x", "httpConnectionFailed:401", False),
        ({"httpConnectionFailed": {"httpStatusCode": 503}}, "x", "httpConnectionFailed:503", True),
        ({"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, "x", "responseTooManyFailedAttempts:429", True),
        ({"responseStreamDisconnected": {"httpStatusCode": None}}, "x", "responseStreamDisconnected", True),
        ({"activeTurnNotSteerable": {"turnKind": "review"}}, "x", "activeTurnNotSteerable", False),
        ("other", "stream disconnected before completion", "other", True),
        ("other", "bad request: no such tool", "other", False),
        (None, "no words", "other", False),
    ],
)
def test_failures_are_named_and_weighed(info: Any, message: str, code: str, transient: bool) -> None:
    turn = {"id": "tu", "status": "failed", "error": {"message": message, "codexErrorInfo": info}}
    event = translate.notification("turn/completed", {"threadId": "th", "turn": turn})
    assert isinstance(event, TurnCompleted)
    assert (event.status, event.error_code, event.transient) == ("failed", code, transient)


def test_an_unknown_status_is_a_failure() -> None:
    event = translate.notification("turn/completed", {"threadId": "th", "turn": {"id": "tu", "status": "exploded"}})
    assert isinstance(event, TurnCompleted)
    assert event.status == "failed"


def test_texts_are_redacted_and_clipped() -> None:
    redact.register("s3cret-in-output")
    event = completed(type="commandExecution", command="cat x", aggregatedOutput="s3cret-in-output" * 1000, exitCode=0)
    assert isinstance(event, ItemCompleted)
    assert "s3cret" not in str(record(event))
    assert len(event.detail["output"]) == 4000
    message = completed(type="agentMessage", text="the s3cret-in-output")
    assert isinstance(message, AgentMessage)
    assert message.text == "the [redacted]"


def test_a_question_without_waiting_is_seen() -> None:
    # GW-R-151
    questions = [{"title": "Red?", "options": ["yes"]}, {"title": "Blue?"}]
    event = completed(type="agentMessage", text="Well", delivery="async", questions=questions, phase="final_answer")
    assert isinstance(event, AgentMessage)
    assert (event.delivery, event.questions, event.phase) == ("async", ("Red?", "Blue?"), "final_answer")


@pytest.mark.parametrize(
    ("item", "summary"),
    [
        ({"type": "fileChange", "changes": [{"path": "a"}, {"path": "b"}]}, "a, b"),
        ({"type": "mcpToolCall", "server": "s", "tool": "t", "error": {"message": "no"}}, "s.t"),
        ({"type": "dynamicToolCall", "tool": "reply", "success": True}, "reply"),
        ({"type": "webSearch", "query": "q"}, "q"),
        ({"type": "reasoning", "summary": ["one", "two"]}, "one two"),
        ({"type": "plan", "text": "first"}, "first"),
        ({"type": "brandNew", "anything": 1}, "brandNew"),
    ],
)
def test_every_step_has_a_summary(item: dict[str, Any], summary: str) -> None:
    event = completed(**item)
    assert isinstance(event, ItemCompleted)
    assert event.summary == summary


def test_retries_are_told_apart() -> None:
    error = {"error": {"message": "Reconnecting... 1/5", "codexErrorInfo": "other"}, "willRetry": True, **IDS}
    event = translate.notification("error", error)
    assert isinstance(event, AgentError)
    assert event.will_retry


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "type", "item", "turn", "error", "codexErrorInfo", "message", "tokenUsage", "total"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(method=st.sampled_from(sorted(translate._BY_METHOD)), params=st.dictionaries(st.text(max_size=3), JSON) | JSON)
def test_no_shape_breaks_it(method: str, params: Any) -> None:
    event = translate.notification(method, params if isinstance(params, dict) else {"item": params, "turn": params})
    if event is not None:
        EventStream().put(event)
        record(event)
