"""What the doors tell about limits, and letting a task go through them."""

from __future__ import annotations

from dataclasses import replace

from stationmaster.clock import iso
from stationmaster.gitea import actions, limits
from stationmaster.gitea.settings import LimitSettings
from tests.control.conftest import Running
from tests.control.test_look import get
from tests.gitea.rig import Rig

API = "/api/gitea-workflow"
ANN = (7, "ann")


def _kept(rig: Rig, count: int = 1) -> list[str]:
    """Keeps tasks back, after one that was allowed."""
    rig.settings = replace(rig.settings, limits=LimitSettings(author_per_hour=1))
    first = rig.ask(1, who=ANN)
    lease, run_id = rig.claimed(first), actions.new_run_id()
    rig.do(actions.open_turn, first, lease, run_id, "home", kind="normal", head=None)
    rig.ledger.hot(limits.count, run_id, "t1", 1234)
    rig.leave(first, "fail", lease, error_code="turn_failed")
    kept = [rig.ask(2 + number, who=ANN) for number in range(count)]
    assert rig.claim(kept[0]) is None
    return kept


async def test_what_is_kept_back_is_listed_with_its_reason(running: Running, rig: Rig) -> None:
    kept = _kept(rig, 3)
    page = await get(running, "holds", limit=2)
    more = await get(running, "holds", cursor=page["nextCursor"])
    found = [*page["holds"], *more["holds"]]
    assert {row["taskId"] for row in found} == set(kept)
    assert more["nextCursor"] is None
    assert found[0] | {"taskId": "", "resourceKey": "", "since": "", "taskCreatedAt": "", "until": ""} == {
        "taskId": "", "resourceKey": "", "author": "ann", "reason": "author_rate_reached",
        "message": "this person began as many runs as an hour allows", "since": "", "until": "", "taskCreatedAt": "",
    }  # fmt: skip
    assert found[0]["until"] > iso(rig.clock.now())
    shown = (await get(running, f"tasks/{kept[0]}"))["task"]
    assert shown["state"] == "queued"
    assert shown["hold"]["reason"] == "author_rate_reached"
    await get(running, "holds", cursor="not-one", expect=400)


async def test_what_is_used_is_shown_beside_what_is_allowed(running: Running, rig: Rig) -> None:
    _kept(rig)
    seen = await get(running, "limits")
    assert seen["limits"]["authorPerHour"] == 0
    assert "limitsOfOthers" not in seen
    assert (seen["today"]["turns"], seen["today"]["tokens"]) == (1, 1234)
    assert seen["lastHour"] == seen["today"]
    (repository,) = seen["todayByRepository"]
    assert (repository["repoKey"], repository["tokens"]) == ("default:acme/widgets", 1234)
    assert [row["author"] for row in seen["lastHourByAuthor"]] == ["ann"]


async def test_letting_go_is_one_request_however_often_it_is_sent(running: Running, rig: Rig) -> None:
    # GW-R-224
    (kept,) = _kept(rig)
    body = {"requestId": "r1", "reason": "it is urgent"}
    async with await running.ann() as client:
        first = await client.post(f"{API}/tasks/{kept}/release", json=body)
        again = await client.post(f"{API}/tasks/{kept}/release", json=body)
        other = await client.post(f"{API}/tasks/{kept}/release", json=body | {"requestId": "r2"})
    assert (first.status_code, again.json()) == (200, first.json())
    assert other.status_code == 409
    assert "No limit keeps the task" in other.json()["message"]
    assert (await get(running, "holds"))["holds"] == []
    (entry,) = rig.events("task.let_go")
    assert entry.data == {"reason": "it is urgent"}
    assert running.woken >= 1
