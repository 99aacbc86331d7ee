from __future__ import annotations

import json
from typing import Any

import pytest

from stationmaster import ids
from stationmaster.clock import iso
from stationmaster.command import Cmd
from stationmaster.control import audit, operators
from stationmaster.ledger.ledger import Tx
from tests.control.conftest import Running
from tests.gitea.rig import Rig

PATH = "/api/gitea-workflow/audit"


def _told(tx: Tx, action: str, /, **refs: str) -> None:
    tx.event(action, refs=refs, said=action)


def _acted(tx: Tx) -> None:
    intent = tx.intent("git.fetch", subject="task-1", refs={"lease": "l-1"})
    tx.result(intent, "failed", code="git_auth_failed")
    tx.refusal("task.claim", "lease_lost")


async def _fill(running: Running) -> None:
    one = Cmd("task.work", "system", "tick:t", refs={"task": "task-1", "delivery": "d-1"})
    two = Cmd("task.work", "admin:ann", "request:r-1", refs={"task": "task-2", "request": "r-1"})
    await running.port.do(one, _told, "turn.start", thread="th-1", turn="tu-1")
    await running.port.do(two, _told, "control.pause")
    await running.port.do(one, _acted)
    await running.port.do(two, operators.add, "ann", "read", "h")


async def _events(running: Running, **query: Any) -> list[dict[str, Any]]:
    async with running.client(await running.key(ids.new("r"), "read")) as client:
        answer = await client.get(PATH, params=query)
    assert answer.status_code == 200, answer.text
    events = answer.json()["events"]
    assert isinstance(events, list)
    return [event for event in events if event["metadata"].get("entity") is None or event["actor"] != "admin:test"]


async def test_the_chain_is_told_in_order_with_its_ids(running: Running) -> None:
    # GW-R-222, GW-R-229
    await _fill(running)
    events = await _events(running, taskId="task-1")
    assert [event["action"] for event in events] == ["turn.start", "git.fetch.intent", "git.fetch.result", "task.claim"]
    assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)
    assert {(event["taskId"], event["deliveryId"]) for event in events} == {("task-1", "d-1")}
    assert (events[0]["threadId"], events[0]["turnId"], events[0]["metadata"]["said"]) == ("th-1", "tu-1", "turn.start")
    assert events[2]["intentId"] == events[1]["eventId"]
    assert (events[2]["outcome"], events[2]["errorCode"]) == ("failed", "git_auth_failed")
    assert events[3]["errorCode"] == "lease_lost"
    assert events[1]["leaseId"] == "l-1"
    assert events[2]["leaseId"] is None


async def test_moves_are_events_with_both_states(running: Running) -> None:
    await _fill(running)
    [event] = await _events(running, taskId="task-2", action="operator_key.")
    assert (event["action"], event["fromState"], event["toState"]) == ("operator_key.add", None, "active")
    assert event["metadata"]["stateVersion"] == 0
    assert event["actor"] == "admin:ann"


@pytest.mark.parametrize(
    ("query", "actions"),
    [
        ({"threadId": "th-1"}, ["turn.start"]),
        ({"threadId": "th-1", "taskId": "task-2"}, []),
        ({"taskId": "task-1", "turnId": "tu-1"}, ["turn.start"]),
        ({"requestId": "r-1", "actor": "admin:ann"}, ["control.pause", "operator_key.add"]),
        ({"leaseId": "l-1"}, ["git.fetch.intent"]),
        ({"action": "git."}, ["git.fetch.intent", "git.fetch.result"]),
        ({"taskId": "nobody"}, []),
    ],
)
async def test_every_filter_narrows(running: Running, query: dict[str, str], actions: list[str]) -> None:
    # GW-R-222
    await _fill(running)
    assert [event["action"] for event in await _events(running, **query)] == actions


async def test_times_are_a_half_open_range(running: Running) -> None:
    await _fill(running)
    third = (await _events(running, taskId="task-1"))[1]
    assert await _events(running, taskId="task-1", until=third["timestamp"]) == []
    later = iso(running.ledger.clock.now() + 10_000_000)
    assert await _events(running, since=later) == []


async def test_pages_follow_one_another_to_the_end(running: Running) -> None:
    await _fill(running)
    async with running.client(await running.key("reader")) as client:
        seen: list[int] = []
        cursor: dict[str, str] = {}
        while True:
            answer = (await client.get(PATH, params={"limit": "2", **cursor})).json()
            seen += [event["seq"] for event in answer["events"]]
            if answer["nextCursor"] is None:
                break
            cursor = {"cursor": answer["nextCursor"]}
        whole = (await client.get(PATH, params={"limit": "1000"})).json()["events"]
        assert seen == [event["seq"] for event in whole]
        export = await client.get(PATH, params={"format": "ndjson"})
    assert export.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in export.text.splitlines()] == whole


async def test_a_long_history_is_read_in_chunks(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_CHUNK", 2)
    monkeypatch.setattr(audit, "_MOST_CHUNKS", 1)
    await _fill(running)
    async with running.client(await running.key("reader")) as client:
        cursor, seen = "0", []
        for _ in range(50):
            answer = (await client.get(PATH, params={"cursor": cursor, "actor": "admin:ann"})).json()
            seen += [event["action"] for event in answer["events"]]
            if answer["nextCursor"] is None:
                break
            cursor = answer["nextCursor"]
    assert seen == ["control.pause", "operator_key.add"]


@pytest.mark.parametrize(
    "query", [{"cursor": "x"}, {"cursor": "9" * 40}, {"since": "today"}, {"limit": "0"}, {"limit": "x"}]
)
async def test_what_makes_no_sense_is_refused(running: Running, query: dict[str, str]) -> None:
    # GW-R-226
    async with running.client(await running.key("reader")) as client:
        answer = await client.get(PATH, params=query)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


async def test_a_claim_is_found_under_its_task(running: Running, rig: Rig) -> None:
    # GW-R-222, GW-R-230
    first, second = rig.ask(12), rig.ask(13)
    lease = rig.running(first)
    rig.leave(first, "wait", lease)
    rig.running(second)
    found = await _events(running, taskId=first)
    assert {event["taskId"] for event in found} == {first}
    assert [event["action"] for event in found if event["kind"] == "move"][:4] == [
        "task.receive", "task.enqueue", "task.claim", "task.start",
    ]  # fmt: skip
    assert {event["leaseId"] for event in found if event["action"].startswith("lease.")} == {lease.lease_id}
    assert {"lease.acquire", "lease.release"} <= {event["action"] for event in found}
    both = await _events(running, taskId=first, leaseId=lease.lease_id)
    assert "task.claim" in {event["action"] for event in both}
