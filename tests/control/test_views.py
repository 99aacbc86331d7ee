"""The views tell the same on both databases, and find what they list by index."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stationmaster.clock import ManualClock
from stationmaster.control import timeline, views
from stationmaster.control.views import Wanted
from stationmaster.gitea import actions
from stationmaster.jobs import actions as jobs
from stationmaster.jobs.model import RunEvent
from stationmaster.ledger.ledger import Ledger
from stationmaster.ops.wiring import SLICES
from tests.gitea.rig import Rig, database

REPO = "default:acme/widgets"
PLANS = ["tasks", "tasks_in_state", "tasks_of_resource", "task", "turns", "comments", "run_events", "follow_ups"]


@pytest.fixture
def rig(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Rig]:
    made = Rig.on(database(request, request.param), clock)
    yield made
    made.close()


def _worked(rig: Rig) -> str:
    task_id, run_id = rig.ask(), actions.new_run_id()
    lease = rig.claimed(task_id)
    rig.do(actions.open_turn, task_id, lease, run_id, "home", kind="normal", head=None)
    key = actions.final_key(task_id, run_id)
    rig.do(actions.intend_comment, rig.task(task_id), key, "mcp_final", "done", run_id=run_id, term=lease.term)
    rig.ledger.hot(
        jobs.append, run_id, [RunEvent(at, rig.clock.now(), "warning", '{"kind":"warning"}') for at in (1, 2)]
    )
    rig.do(actions.end_turn, rig.task(task_id), run_id, "complete", None, "I did it.")
    return task_id


@pytest.mark.parametrize("rig", ["sqlite", "postgres"], indirect=True)
def test_every_view_tells_the_same(rig: Rig) -> None:
    # GW-R-214, GW-R-215, GW-R-216
    one, two = _worked(rig), rig.ask(13)
    read = rig.ledger.read
    seen = read(views.overview)
    state = rig.state(one)
    assert seen["tasks"] == {state: 1, "queued": 1}
    assert [lease["taskId"] for lease in seen["activeLeases"]] == [one]

    def listed(**given: Any) -> list[str]:
        wanted: dict[str, Any] = {"repo_key": None, "resource_key": None, "state": None, "cursor": None, "limit": 50}
        rows, _ = read(views.tasks, Wanted(**{**wanted, **given}))
        return [row["taskId"] for row in rows]

    assert listed() == listed(repo_key=REPO) == [two, one]
    assert listed(state="queued") == listed(state="queued", repo_key=REPO) == [two]
    assert listed(resource_key=f"{REPO}:issue:12") == [one]
    assert listed(resource_key=f"{REPO}:issue:12", state="queued") == []
    _, cursor = read(views.tasks, Wanted(None, None, None, None, 1))
    assert listed(cursor=cursor) == [one]
    shown = read(views.task, one)
    assert (shown["turns"][0]["eventSeq"], shown["turns"][0]["mcpCallObserved"]) == (2, True)
    assert (shown["finalText"], read(views.task, two)["finalText"]) == ("I did it.", None)
    assert [comment["kind"] for comment in shown["comments"]] == ["mcp_final"]
    rows, _ = read(views.repositories, None, 50, Path("/elsewhere"))
    assert [row["repoKey"] for row in rows] == [REPO]
    assert rows[0]["workspacePath"] == f"/elsewhere/repositories/{rows[0]['repositoryId']}"


@pytest.mark.parametrize("rig", ["sqlite", "postgres"], indirect=True)
def test_a_timeline_goes_on_where_it_ended(rig: Rig) -> None:
    task_id = _worked(rig)
    first = rig.ledger.read(timeline.page, task_id, None)
    assert [event["kind"] for event in first["events"]].count("agent") == 2
    assert first["resting"] is False
    assert rig.ledger.read(timeline.page, task_id, first["nextCursor"])["events"] == []
    run_id = rig.ledger.read(jobs.of_subject, task_id)[0].id
    rig.ledger.hot(jobs.append, run_id, [RunEvent(3, rig.clock.now(), "warning", '{"kind":"warning","message":"x"}')])
    [event] = rig.ledger.read(timeline.page, task_id, first["nextCursor"])["events"]
    assert event["event"]["message"] == "x"


@pytest.mark.parametrize("name", PLANS)
def test_what_is_listed_is_found_by_index(tmp_path: Path, clock: ManualClock, name: str) -> None:
    Ledger.open(tmp_path / "ledger.db", SLICES, clock=clock).close()
    connection = sqlite3.connect(tmp_path / "ledger.db")
    query = getattr(views.Q, name)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {query.sqlite}", dict.fromkeys(query.params)).fetchall()
    connection.close()
    steps = [step[3] for step in plan]
    assert [step for step in steps if step.startswith("SCAN") and "USING INDEX" not in step] == [], steps
