"""Every change that an operator may ask for, through the real door: once per request id, where the table allows."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stationmaster.control import change, grants, rest
from stationmaster.control.commands import Site
from stationmaster.control.dispatch import Dispatch
from stationmaster.control.registry import COMMANDS
from stationmaster.control.server import PEER
from stationmaster.errors import StationmasterError
from stationmaster.gitea import actions, codes, operate
from stationmaster.ledger import history
from stationmaster.ledger.ledger import Ledger
from stationmaster.ops.wiring import SLICES
from tests.control.conftest import Running
from tests.gitea.rig import SETTINGS, Rig

API = "/api/gitea-workflow"
REPO = "default:acme/widgets"
ENCODED = "default%3Aacme%2Fwidgets"
POSTS = [command for command in COMMANDS if command.method == "POST" and command.path.startswith(API)]


async def post(running: Running, path: str, request_id: str = "r-1", **more: Any) -> httpx.Response:
    async with await running.ann() as client:
        return await client.post(f"{API}/{path}", json={"requestId": request_id, "reason": "because", **more})


async def done(running: Running, path: str, request_id: str = "r-1", status: int = 200) -> dict[str, Any]:
    answer = await post(running, path, request_id)
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert isinstance(body, dict)
    return body


def _blocked(rig: Rig) -> str:
    task_id = rig.ask()
    rig.leave(task_id, "block", rig.claimed(task_id), error_code=codes.WORKSPACE_DIRTY)
    return task_id


def _ended(rig: Rig) -> str:
    task_id = rig.ask()
    rig.give_up(task_id, codes.GIT_REPO_MISSING, rig.claimed(task_id), retryable=False)
    return task_id


def _preparing(rig: Rig) -> str:
    task_id = rig.ask()
    rig.claimed(task_id)
    return task_id


def _running(rig: Rig) -> str:
    task_id = rig.ask()
    rig.running(task_id)
    return task_id


def _verifying(rig: Rig) -> str:
    task_id = rig.ask()
    rig.advance(task_id, "verify", rig.running(task_id))
    return task_id


def _aborting(rig: Rig) -> str:
    task_id = rig.ask()
    rig.advance(task_id, "abort", rig.running(task_id))
    return task_id


def _retrying(rig: Rig) -> str:
    task_id = rig.ask()
    rig.give_up(task_id, codes.GIT_NETWORK_FAILED, rig.claimed(task_id))
    return task_id


STATES: dict[str, Callable[[Rig], str]] = {
    "queued": lambda rig: rig.ask(),
    "preparing": _preparing,
    "running": _running,
    "waiting_user": lambda rig: rig.waiting(),
    "verifying_reply": _verifying,
    "retry_wait": _retrying,
    "blocked_workspace": _blocked,
    "aborting": _aborting,
    "failed": _ended,
}
ALLOWED = {
    "cancel": {"queued", "waiting_user", "blocked_workspace"},
    "abort": {"running"},
    "unblock": {"blocked_workspace"},
}


# Pause and resume ----------------------------------------------------------------------------------------------------


async def test_a_pause_holds_new_work_back_until_resume(running: Running, rig: Rig) -> None:
    # GW-R-044, GW-R-125, GW-R-197, GW-R-217
    first, second = rig.ask(12), rig.ask(13)
    said = await done(running, "control/pause", "r-1")
    assert said == {"globalPaused": True, "pauseReason": "because", "version": 1}
    assert rig.claim(first) is None
    assert (rig.state(first), rig.task(first).attempt) == ("queued", 0)
    async with running.client(await running.key("reader", "read")) as client:
        seen = (await client.get(f"{API}/overview")).json()
    assert (seen["globalPaused"], seen["pauseReason"], seen["version"]) == (True, "because", 1)
    assert seen["updatedBy"] == "admin:ann"
    assert (await done(running, "control/resume", "r-2"))["globalPaused"] is False
    assert rig.claimed(first)
    assert rig.state(second) == "queued"
    assert running.woken == 2


async def test_what_runs_goes_on_while_paused(running: Running, rig: Rig) -> None:
    # GW-R-125
    task_id = rig.ask()
    lease = rig.running(task_id)
    await done(running, "control/pause")
    assert rig.advance(task_id, "verify", lease).state == "verifying_reply"


async def test_pausing_twice_and_resuming_what_runs_is_refused(running: Running) -> None:
    answer = await post(running, "control/resume", "r-0")
    assert (answer.status_code, answer.json()["error"]) == (409, "invalid_state")
    await done(running, "control/pause", "r-1")
    answer = await post(running, "control/pause", "r-2")
    assert (answer.status_code, answer.json()["error"]) == (409, "invalid_state")
    assert "because" in answer.json()["message"]
    await done(running, "control/resume", "r-3")
    await done(running, "control/pause", "r-4")


# Repositories --------------------------------------------------------------------------------------------------------


async def test_a_disabled_repository_refuses_mentions_and_keeps_its_queue(running: Running, rig: Rig) -> None:
    # GW-R-218, GW-R-194, GW-R-066
    worked, waits = rig.ask(12), rig.ask(13)
    lease = rig.running(worked)
    assert await done(running, f"repos/{ENCODED}/disable") == {"repoKey": REPO, "status": "disabled", "version": 2}
    assert rig.advance(worked, "verify", lease).state == "verifying_reply"
    rig.leave(worked, "confirm", lease)
    assert rig.claim(waits) is None
    assert rig.state(waits) == "queued"
    assert (await done(running, f"repos/{ENCODED}/enable", "r-2"))["status"] == "active"
    assert rig.due()
    assert rig.claimed(waits)


async def test_enabling_lifts_a_block(running: Running, rig: Rig) -> None:
    # GW-R-034
    rig.switch(rig.repository(rig.ask()).id, "block")
    assert (await done(running, f"repos/{ENCODED}/enable"))["status"] == "active"
    assert rig.events("repo.unblock")


async def test_a_key_in_other_letters_and_an_old_name_are_the_same_repository(running: Running, rig: Rig) -> None:
    # GW-R-012
    rig.ask(12)
    rig.ask(13, repo=(101, "acme", "cogs"))
    said = await done(running, "repos/DEFAULT:Acme/Widgets/disable")
    assert said["repoKey"] == "default:acme/cogs"


@pytest.mark.parametrize(("verb", "words"), [("enable", "is active already"), ("disable", "is disabled already")])
async def test_a_repository_that_is_there_already(running: Running, rig: Rig, verb: str, words: str) -> None:
    rig.ask()
    if verb == "disable":
        await done(running, f"repos/{ENCODED}/disable", "r-0")
    answer = await post(running, f"repos/{ENCODED}/{verb}")
    assert (answer.status_code, answer.json()["error"]) == (409, "invalid_state")
    assert words in answer.json()["message"]


async def test_what_is_not_there_is_not_found(running: Running) -> None:
    # GW-R-226
    answer = await post(running, "repos/default%3Ano%2Fbody/disable")
    assert (answer.status_code, answer.json()["error"]) == (404, "repository_not_found")
    for verb in ("cancel", "abort", "unblock"):
        answer = await post(running, f"tasks/gitea-task-none/{verb}", f"r-{verb}")
        assert (answer.status_code, answer.json()["error"]) == (404, "task_not_found")


# Tasks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("verb", ALLOWED)
async def test_a_task_is_changed_only_where_the_table_allows(running: Running, rig: Rig, verb: str, state: str) -> None:
    # GW-R-177, GW-R-178, GW-R-079, GW-R-090, GW-R-101, GW-R-087, GW-R-071, GW-R-219, GW-R-220, GW-R-221
    task_id = STATES[state](rig)
    before = rig.task(task_id)
    assert before.state == state
    answer = await post(running, f"tasks/{task_id}/{verb}")
    if state in ALLOWED[verb]:
        assert answer.status_code == (200 if verb == "cancel" else 202), answer.text
        assert rig.state(task_id) == {"cancel": "cancelled", "abort": "aborting", "unblock": state}[verb]
        return
    said = answer.json()
    assert (answer.status_code, said["error"], said["details"]["state"]) == (409, "invalid_state", state)
    assert state in said["message"]
    assert rig.task(task_id) == before


async def test_a_cancelled_task_says_who_and_why(running: Running, rig: Rig) -> None:
    # GW-R-219, GW-R-223, GW-R-230, GW-R-043
    task_id = rig.ask()
    said = await done(running, f"tasks/{task_id}/cancel")
    assert said == {
        "taskId": task_id, "state": "cancelled", "stateVersion": rig.task(task_id).rev,
        "errorCode": "cancelled_by_operator", "pending": False,
    }  # fmt: skip
    async with running.client(await running.key("reader", "read")) as client:
        events = (await client.get(f"{API}/audit", params={"taskId": task_id, "requestId": "r-1"})).json()["events"]
    [move] = [event for event in events if event["kind"] == "move" and event["action"] == "task.cancel"]
    assert (move["fromState"], move["toState"], move["deliveryId"]) == ("queued", "cancelled", move["deliveryId"])
    [told] = [event for event in events if event["kind"] == "observation" and event["action"] == "task.cancel"]
    assert told["metadata"]["reason"] == "because"
    assert told["actor"] == "admin:ann"
    assert (told["requestId"], told["repoKey"]) == ("r-1", REPO)
    assert rig.comments(task_id) == []


async def test_a_cancelled_task_that_had_begun_gets_its_receipt(running: Running, rig: Rig) -> None:
    # GW-R-135
    task_id = rig.waiting()
    key = actions.status_key(task_id, "running")
    rig.do(actions.intend_comment, rig.task(task_id), key, "status", "begun")
    await done(running, f"tasks/{task_id}/cancel")
    assert actions.status_key(task_id, "cancelled") in {comment.id for comment in rig.comments(task_id)}
    assert rig.session(task_id).state == "active"


async def test_an_abort_is_accepted_and_finished_by_the_worker(running: Running, rig: Rig) -> None:
    # GW-R-178, GW-R-104, GW-R-224
    task_id = rig.ask()
    lease = rig.running(task_id)
    said = await done(running, f"tasks/{task_id}/abort", status=202)
    assert (said["state"], said["pending"]) == ("aborting", True)
    assert running.ledger.read(operate.open_aborts) == [task_id]
    again = await post(running, f"tasks/{task_id}/abort")
    assert (again.status_code, again.json()["error"]) == (409, "request_in_progress")
    other = await post(running, f"tasks/{task_id}/abort", "r-2")
    assert (other.status_code, other.json()["error"]) == (409, "invalid_state")
    rig.leave(task_id, "stop", lease, error_code=codes.ABORTED_BY_OPERATOR)
    rig.do(operate.finish_abort, task_id)
    final = await done(running, f"tasks/{task_id}/abort")
    assert (final["state"], final["errorCode"], final["pending"]) == ("aborted", "aborted_by_operator", False)
    assert running.ledger.read(operate.open_aborts) == []


async def test_an_unblock_waits_for_the_worker_that_has_the_tree(running: Running, rig: Rig) -> None:
    # GW-R-221, GW-R-100, GW-R-109
    task_id = _blocked(rig)
    said = await done(running, f"tasks/{task_id}/unblock", status=202)
    assert (said["state"], said["pending"]) == ("blocked_workspace", True)
    [wanted] = running.ledger.read(operate.unblock_wanted)
    assert (wanted.task_id, wanted.home_worker) == (task_id, "home")
    second = await post(running, f"tasks/{task_id}/unblock", "r-2")
    assert (second.status_code, second.json()["error"]) == (409, "invalid_state")
    rig.do(operate.finish_unblock, task_id, None, rig.settings)
    assert (await done(running, f"tasks/{task_id}/unblock"))["state"] == "queued"
    assert rig.task(task_id).unblock_attempt == 1


async def test_a_refused_unblock_says_what_is_still_wrong(running: Running, rig: Rig) -> None:
    # GW-R-221
    task_id = _blocked(rig)
    await done(running, f"tasks/{task_id}/unblock", status=202)
    rig.do(operate.finish_unblock, task_id, Dirty(), rig.settings)
    answer = await post(running, f"tasks/{task_id}/unblock")
    assert (answer.status_code, answer.json()["error"]) == (409, "invalid_state")
    assert answer.json()["details"] == {"task": task_id, "state": "blocked_workspace", "problem": "workspace_dirty"}
    assert answer.json()["message"].startswith("notes.txt is not ours.")
    assert (rig.state(task_id), rig.task(task_id).unblock_attempt) == ("blocked_workspace", 0)
    await done(running, f"tasks/{task_id}/unblock", "r-2", status=202)


class Dirty:
    code = "workspace_dirty"
    sentence = "notes.txt is not ours. Move it away."


# Requests ------------------------------------------------------------------------------------------------------------


async def test_a_repeat_gets_the_first_answer_and_changes_nothing(running: Running, rig: Rig) -> None:
    # GW-R-224, GW-R-003
    task_id = rig.waiting()
    async with await running.ann() as ann:
        body = {"requestId": "r-1", "reason": "because"}
        first = await ann.post(f"{API}/tasks/{task_id}/cancel", json=body)
        assert first.status_code == 200
        rows = rig.count("journal"), rig.count("event"), rig.count("command")
        again = await ann.post(f"{API}/tasks/{task_id}/cancel", json=body)
    assert (again.status_code, again.json()) == (200, first.json())
    assert (rig.count("journal"), rig.count("event"), rig.count("command")) == rows


async def test_a_refusal_is_the_first_answer_too(running: Running, rig: Rig) -> None:
    # GW-R-224
    task_id = rig.ask()
    lease = rig.running(task_id)
    async with await running.ann() as ann:
        body = {"requestId": "r-1", "reason": "because"}
        first = await ann.post(f"{API}/tasks/{task_id}/cancel", json=body)
        rig.leave(task_id, "wait", lease)
        again = await ann.post(f"{API}/tasks/{task_id}/cancel", json=body)
    assert (again.status_code, again.json()) == (first.status_code, first.json()) == (409, first.json())
    assert rig.state(task_id) == "waiting_user"


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("tasks/{id}/cancel", {"reason": "another"}),
        ("tasks/{id}/abort", {}),
        ("tasks/{other}/cancel", {}),
        ("control/pause", {}),
        (f"repos/{ENCODED}/disable", {}),
    ],
)
async def test_an_id_serves_one_request(running: Running, rig: Rig, path: str, more: dict[str, str]) -> None:
    # GW-R-224, GW-R-046
    task_id, other = rig.ask(12), rig.ask(13)
    async with await running.ann() as ann:
        body = {"requestId": "r-1", "reason": "because"}
        assert (await ann.post(f"{API}/tasks/{task_id}/cancel", json=body)).status_code == 200
        answer = await ann.post(f"{API}/{path.format(id=task_id, other=other)}", json={**body, **more})
    assert (answer.status_code, answer.json()["error"]) == (409, "request_id_conflict")
    assert rig.state(other) == "queued"


async def test_an_id_is_its_operators_own(running: Running, rig: Rig) -> None:
    # GW-R-223
    task_id = rig.ask()
    body = {"requestId": "r-1", "reason": "because"}
    async with await running.ann() as ann, running.client(await running.key("bob")) as bob:
        assert (await ann.post(f"{API}/tasks/{task_id}/cancel", json=body)).status_code == 200
        answer = await bob.post(f"{API}/tasks/{task_id}/cancel", json=body)
    assert (answer.status_code, answer.json()["error"]) == (409, "request_id_conflict")


async def test_of_two_cancels_at_once_one_wins(running: Running, rig: Rig) -> None:
    # GW-R-039, GW-R-071
    await running.ann()
    for number in range(5):
        task_id = rig.ask(40 + number)
        answers = await asyncio.gather(
            *(post(running, f"tasks/{task_id}/cancel", f"r-{number}-{each}") for each in range(4))
        )
        assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
        assert [move[1] for move in rig.moves(task_id)].count("cancel") == 1


async def test_bug_1_equal_requests_at_once_are_one_transition_with_one_answer(running: Running, rig: Rig) -> None:
    # GW-R-224
    task_id = rig.ask()
    async with await running.ann() as ann:
        body = {"requestId": "r-1", "reason": "because"}
        answers = await asyncio.gather(*(ann.post(f"{API}/tasks/{task_id}/cancel", json=body) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    assert [move[1] for move in rig.moves(task_id)].count("cancel") == 1


async def test_of_cancel_and_claim_at_once_one_wins(running: Running, rig: Rig) -> None:
    # GW-R-039
    for number in range(5):
        task_id = rig.ask(60 + number)
        claiming = asyncio.get_running_loop().run_in_executor(None, rig.claim, task_id)
        answer, claimed = await asyncio.gather(post(running, f"tasks/{task_id}/cancel", f"r-{number}"), claiming)
        assert (answer.status_code == 200) == (claimed is None)
        assert rig.state(task_id) == ("cancelled" if claimed is None else "preparing")
        if claimed is not None:
            rig.leave(task_id, "retry", claimed[1], next_retry_at=0, retry_purpose="execution", attempt=1)
            rig.step(task_id, "fail", error_code=codes.RESOURCE_GONE)


async def test_answers_survive_a_restart(tmp_path: Path, running: Running, rig: Rig) -> None:
    # GW-R-224, GW-R-046
    task_id, aborted = rig.ask(12), rig.ask(13)
    grant = grants.own()
    cancel = change.Task(request_id="r-1", reason="because", task_id=task_id)
    abort = change.Task(request_id="r-2", reason="because", task_id=aborted)
    rig.running(task_id)
    rig.step(task_id, "verify")
    rig.step(task_id, "confirm")

    async def ask(port: Dispatch) -> list[str]:
        said = []
        for verb, given_ in ((change.cancel, cancel), (change.abort, abort)):
            try:
                said.append(str((await verb.run(Site(port, lambda: None, SETTINGS), grant, given_)).body))
            except StationmasterError as error:
                said.append(f"{error.code} {error}")
        return said

    first = await ask(running.port)
    running.ledger.close()
    with Ledger.open(tmp_path / "ledger.db", SLICES, clock=rig.clock) as reopened:
        port = Dispatch(reopened, threads=1)
        assert await ask(port) == first
        port.close()


# Who may, and what is taken ------------------------------------------------------------------------------------------


def _path(path: str) -> str:
    return path.replace("{taskId}", "gitea-task-x").replace("{repoKey}", ENCODED).replace("{name}", "ann")


async def test_nothing_is_read_or_changed_without_a_key(running: Running) -> None:
    # GW-R-237
    async with running.client() as client:
        for command in COMMANDS:
            answer = await client.request(command.method, _path(command.path), json={"requestId": "r", "reason": "x"})
            assert (answer.status_code, answer.json()["error"]) == (401, "unauthenticated"), command.name
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.post("/api/gitea/webhook", content=b"{}")).status_code == 202


async def test_a_key_made_to_read_changes_nothing(running: Running, rig: Rig) -> None:
    # GW-R-226
    rig.ask()
    rows = rig.count("command")
    async with running.client(await running.key("reader", "read")) as client:
        for command in POSTS:
            answer = await client.post(_path(command.path), json={"requestId": "r", "reason": "x"})
            assert (answer.status_code, answer.json()["error"]) == (403, "forbidden"), command.name
    assert rig.count("command") == rows + 1


@pytest.mark.parametrize("missing", ["requestId", "reason"])
async def test_every_change_has_an_id_and_a_reason(running: Running, missing: str) -> None:
    # GW-R-223
    async with running.client(await running.key()) as client:
        for command in POSTS:
            for value in (None, "", 7):
                body = {"requestId": "r-1", "reason": "because"} | {missing: value}
                if value is None:
                    del body[missing]
                answer = await client.post(_path(command.path), json=body)
                assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request"), command.name


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["model", "effort", "mcp", "tool", "arguments", "git", "command", "actor", "task_id", "state"])
    | st.text(min_size=1, max_size=20).filter(lambda text: text not in {"requestId", "reason"}),
    value=st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.lists(st.integers(), max_size=3),
    chosen=st.sampled_from(POSTS),
)
def test_no_change_takes_a_field_that_it_does_not_declare(name: str, value: Any, chosen: Any) -> None:
    # GW-R-225, GW-R-145
    app = rest.app(Site(Untouched(), lambda: None, SETTINGS), COMMANDS, None, lambda: True)

    async def owned(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, PEER: os.geteuid()}, receive, send)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(owned), base_url="http://door") as client:
            body = {"requestId": "r-1", "reason": "because", name: value}
            return await client.post(_path(chosen.path), json=body)

    answer = asyncio.run(ask())
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


class Untouched:
    """A port that nothing may reach."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the ledger was asked: {name}")


async def test_a_change_is_told_under_its_request(running: Running, rig: Rig) -> None:
    # GW-R-222, GW-R-230
    rig.ask()
    await done(running, f"repos/{ENCODED}/disable", "r-7")
    entries = running.ledger.read(history.by_ref, "request", "r-7")
    assert {"repo.disable", "control.request", "disable"} == {entry.name for entry in entries}
    assert {entry.cause for entry in entries} == {"request:r-7"}
