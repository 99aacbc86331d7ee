"""What the read commands tell: the wire of the specification, from the tables, paged and filtered."""

from __future__ import annotations

from typing import Any

import pytest

from stationmaster.clock import iso
from stationmaster.gitea import actions, codes
from stationmaster.ledger.lease import Lease
from tests.control.conftest import Running
from tests.gitea.rig import Rig

API = "/api/gitea-workflow"
REPO = "default:acme/widgets"
TASK_FIELDS = {
    "taskId", "deliveryKey", "deliveryId", "repoKey", "resourceKey", "sessionKey", "commentId", "author", "state",
    "stateVersion", "attempt", "replyAttempt", "unblockAttempt", "retryPurpose", "nextRetryAt", "errorCode",
    "replyFailure", "threadId", "turnRef", "turnId", "leaseId", "refs", "hold", "createdAt", "updatedAt",
}  # fmt: skip


async def get(running: Running, path: str, *, expect: int = 200, **query: Any) -> Any:
    async with running.client(await running.key(f"r{running.ledger.clock.now()}", "read")) as client:
        answer = await client.get(f"{API}/{path}", params=query)
    assert answer.status_code == expect, answer.text
    return answer.json()


def _worked(rig: Rig, number: int = 12) -> tuple[str, str, Lease]:
    """Brings a task to a turn that runs and has said its answer."""
    task_id, run_id = rig.ask(number), actions.new_run_id()
    lease = rig.claimed(task_id)
    rig.do(actions.open_turn, task_id, lease, run_id, "home", kind="normal", head="a" * 40)
    if rig.state(task_id) == "preparing":
        rig.advance(task_id, "start", lease)
    task = rig.task(task_id)
    rig.do(actions.bind_thread, task, "th-1", "tools-1", why=None)
    rig.do(actions.bind_turn, task, run_id, "tu-1", "th-1")
    key = actions.final_key(task_id, run_id)
    rig.do(actions.intend_comment, task, key, "mcp_final", "done", run_id=run_id, term=lease.term)
    return task_id, run_id, lease


async def test_nothing_has_happened_yet(running: Running) -> None:
    # GW-R-214
    assert await get(running, "overview") == {
        "globalPaused": False, "pauseReason": None, "updatedBy": None, "updatedAt": None, "version": 0,
        "activeLeases": [], "tasks": {}, "catchup": [],
    }  # fmt: skip
    assert await get(running, "tasks") == {"tasks": [], "nextCursor": None}
    assert await get(running, "repos") == {"repositories": [], "nextCursor": None}


async def test_the_overview_tells_who_works_on_what_and_how_many_wait(running: Running, rig: Rig) -> None:
    # GW-R-214, GW-R-116
    first = rig.ask(12)
    lease = rig.running(first)
    rig.ask(13)
    rig.ask(14)
    seen = await get(running, "overview")
    assert seen["tasks"] == {"queued": 2, "running": 1}
    assert seen["activeLeases"] == [
        {
            "repoKey": REPO, "leaseId": lease.lease_id, "owner": "home", "taskId": first, "fence": 1,
            "expiresAt": iso(lease.expires_at),
        }
    ]  # fmt: skip
    rig.leave(first, "wait", lease)
    assert (await get(running, "overview"))["activeLeases"] == []


async def test_an_expired_lease_is_nobodys(running: Running, rig: Rig) -> None:
    task_id = rig.ask()
    rig.running(task_id)
    rig.clock.advance(91)
    assert (await get(running, "overview"))["activeLeases"] == []
    assert (await get(running, f"tasks/{task_id}"))["task"]["leaseId"] is None


async def test_a_task_is_shown_with_all_that_belongs_to_it(running: Running, rig: Rig) -> None:
    # GW-R-216, GW-R-038, GW-R-040, GW-R-041, GW-R-024
    task_id, run_id, lease = _worked(rig)
    seen = await get(running, f"tasks/{task_id}")
    task = seen["task"]
    assert set(task) == TASK_FIELDS | {"instruction", "followUps"}
    assert (task["state"], task["stateVersion"], task["leaseId"]) == ("running", rig.task(task_id).rev, lease.lease_id)
    assert (task["repoKey"], task["resourceKey"]) == (REPO, f"{REPO}:issue:12")
    assert task["sessionKey"] == task["resourceKey"]
    assert (task["author"], task["turnRef"], task["turnId"], task["threadId"]) == ("alice", run_id, "tu-1", "th-1")
    assert task["createdAt"] == iso(rig.task(task_id).created_at)
    assert task["createdAt"].endswith("Z")
    assert task["instruction"].startswith("please fix the crash")
    assert seen["error"] is None
    session = seen["session"]
    assert (session["status"], session["threadId"]) == ("active", "th-1")
    # GW-R-035
    assert (session["lastTaskId"], session["lastTurnId"]) == (task_id, "tu-1")
    assert session["createdAt"].endswith("Z")
    [turn] = seen["turns"]
    assert (turn["turnRef"], turn["turnId"], turn["kind"], turn["status"]) == (run_id, "tu-1", "normal", "started")
    assert (turn["threadId"], turn["mcpCallObserved"], turn["completedAt"]) == ("th-1", True, None)
    [comment] = seen["comments"]
    assert (comment["commentKey"], comment["kind"]) == (f"{task_id}:final:{run_id}", "mcp_final")
    assert (comment["status"], comment["commentId"], comment["turnRef"]) == ("pending", None, run_id)


async def test_an_error_is_told_in_words(running: Running, rig: Rig) -> None:
    # GW-R-216, GW-R-213
    task_id = rig.ask()
    rig.give_up(task_id, codes.GIT_REPO_MISSING, rig.claimed(task_id), retryable=False)
    seen = await get(running, f"tasks/{task_id}")
    assert seen["error"] == {"code": "git_repo_missing", "message": codes.text("git_repo_missing")}
    assert seen["task"]["state"] == "failed"


async def test_follow_ups_are_part_of_the_task(running: Running, rig: Rig) -> None:
    # GW-R-060
    task_id = rig.waiting()
    assert rig.ask(body="@codebot and the tests") == task_id
    [said] = (await get(running, f"tasks/{task_id}"))["task"]["followUps"]
    assert (said["author"], said["instruction"]) == ("alice", "and the tests")


async def test_a_task_that_is_not_there(running: Running) -> None:
    # GW-R-216, GW-R-226
    said = await get(running, "tasks/gitea-task-none", expect=404)
    assert said["error"] == "task_not_found"
    assert said["message"].endswith("shows the tasks there are.")


async def test_lists_are_filtered(running: Running, rig: Rig) -> None:
    # GW-R-215
    other = rig.ask(12, repo=(202, "acme", "gears"))
    one = rig.ask(12)
    rig.running(one)
    two = rig.ask(13)

    async def ids(**query: Any) -> list[str]:
        return [task["taskId"] for task in (await get(running, "tasks", **query))["tasks"]]

    assert await ids() == [two, one, other]
    assert await ids(repoKey=REPO) == [two, one]
    assert await ids(repoKey="DEFAULT:Acme/Gears") == [other]
    assert await ids(resourceKey=f"{REPO}:issue:13") == [two]
    assert await ids(resourceKey=f"{REPO}:issue:13", repoKey="default:acme/gears") == []
    assert await ids(state="queued") == [two, other]
    assert await ids(state="queued", repoKey=REPO) == [two]
    assert await ids(state="running", resourceKey=f"{REPO}:issue:12") == [one]
    assert await ids(repoKey="default:nobody/nothing") == []


async def test_pages_follow_one_another_without_a_gap(running: Running, rig: Rig) -> None:
    # GW-R-215
    every = [rig.ask(20 + number) for number in range(5)]
    queries: list[dict[str, Any]] = [{}, {"repoKey": REPO}, {"state": "queued"}]
    for query in queries:
        seen: list[str] = []
        cursor: dict[str, Any] = {}
        for _ in range(6):
            answer = await get(running, "tasks", limit="2", **query, **cursor)
            seen += [task["taskId"] for task in answer["tasks"]]
            if answer["nextCursor"] is None:
                break
            cursor = {"cursor": answer["nextCursor"]}
        assert seen == every[::-1]


@pytest.mark.parametrize(
    "query",
    [
        {"state": "sleeping"}, {"limit": "0"}, {"limit": "201"}, {"cursor": "x"}, {"cursor": f"{'9' * 30}.x"},
        {"resourceKey": "acme/widgets#1"}, {"resourceKey": f"{REPO}:issue:0"}, {"model": "gpt"},
    ],
)  # fmt: skip
async def test_a_list_asked_for_wrongly_is_refused(running: Running, query: dict[str, Any]) -> None:
    # GW-R-215, GW-R-226
    assert (await get(running, "tasks", expect=400, **query))["error"] == "invalid_request"


async def test_repositories_are_told_with_their_state(running: Running, rig: Rig) -> None:
    # GW-R-030
    rig.ask()
    rig.ask(1, repo=(202, "acme", "gears"))
    first = await get(running, "repos", limit="1")
    then = await get(running, "repos", limit="1", cursor=first["nextCursor"])
    assert [row["repoKey"] for row in (*first["repositories"], *then["repositories"])] == ["default:acme/gears", REPO]
    [row] = then["repositories"]
    assert (row["status"], row["owner"], row["name"], row["version"]) == ("active", "acme", "widgets", 0)
    assert (row["defaultBranch"], row["lastFetchAt"], row["homeWorker"]) == ("main", None, None)
    # No workspace is known to a door that has none.
    assert row["workspacePath"] is None
    assert row["cloneUrl"] == "https://gitea.example.com/acme/widgets.git"


async def test_a_renamed_repository_is_found_by_both_names(running: Running, rig: Rig) -> None:
    task_id = rig.ask()
    new = rig.ask(13, repo=(101, "acme", "cogs"))
    for key in ("default:acme/widgets", "default:acme/cogs"):
        found = (await get(running, "tasks", repoKey=key))["tasks"]
        assert [(task["taskId"], task["repoKey"]) for task in found] == [
            (new, "default:acme/cogs"),
            (task_id, "default:acme/cogs"),
        ]
