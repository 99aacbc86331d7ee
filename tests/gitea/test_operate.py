"""What operators ask for, as the worker meets it: stored wishes that survive and are answered once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stationmaster.clock import ManualClock
from stationmaster.errors import Busy, Illegal, Stale, StationmasterError, Unavailable
from stationmaster.gitea import codes, operate, store
from stationmaster.gitea.operate import Verb, Wish
from stationmaster.gitea.settings import GiteaSettings
from stationmaster.ledger import history
from stationmaster.workspaces.guard import Problem
from tests.gitea.rig import SETTINGS, Rig, database

PROBLEM = Problem("workspace_dirty", "notes.txt is not ours. Move it away.")
BOTH = pytest.mark.parametrize("rig", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def rig(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Rig]:
    made = Rig.on(database(request, getattr(request, "param", "sqlite")), clock)
    yield made
    made.close()


def ask(
    rig: Rig, verb: Verb, target: str = "", request_id: str = "r-1", settings: GiteaSettings | None = SETTINGS
) -> dict[str, Any]:
    wish = Wish(verb, target, "admin:ann", "because")
    return rig.ledger.do(operate.command(wish, request_id), operate.body(settings), wish)


def blocked(rig: Rig, number: int = 12) -> str:
    task_id = rig.ask(number)
    rig.leave(task_id, "block", rig.claimed(task_id), error_code=codes.WORKSPACE_DIRTY)
    return task_id


def settled(rig: Rig, task_id: str, problem: Problem | None = None) -> None:
    rig.do(operate.finish_unblock, task_id, problem, rig.settings)


@BOTH
def test_an_abort_outlives_the_worker_and_is_finished_by_whoever_settles_the_task(rig: Rig) -> None:
    # GW-R-178, GW-R-185, GW-R-189
    task_id = rig.ask()
    lease = rig.running(task_id)
    ask(rig, "abort", task_id)
    assert rig.state(task_id) == "aborting"
    assert rig.ledger.read(operate.open_aborts) == [task_id]
    # Recovery closes what is open under the task's own id; a request is not.
    assert rig.ledger.read(history.open_intents, subject=task_id) == []
    with pytest.raises(Busy) as met:
        ask(rig, "abort", task_id)
    assert met.value.code == "request_in_progress"
    rig.leave(task_id, "fail", lease, error_code=codes.ABORT_TIMEOUT)
    rig.do(operate.finish_abort, task_id)
    rig.do(operate.finish_abort, task_id)
    assert ask(rig, "abort", task_id)["errorCode"] == "abort_timeout"
    [result] = rig.events("task.abort.result")
    assert (result.outcome, rig.ledger.read(operate.open_aborts)) == ("failed", [])


@BOTH
def test_a_usable_tree_queues_the_task_once(rig: Rig) -> None:
    # GW-R-100, GW-R-109, GW-R-221
    task_id = blocked(rig)
    rig.switch(rig.repository(task_id).id, "block")
    ask(rig, "unblock", task_id)
    settled(rig, task_id)
    settled(rig, task_id)
    task = rig.task(task_id)
    assert (task.state, task.unblock_attempt, task.error_code) == ("queued", 1, None)
    assert rig.repository(task_id).state == "active"
    assert rig.events("repo.unblock")
    assert rig.ledger.read(operate.unblock_wanted) == []
    rig.leave(task_id, "block", rig.claimed(task_id), error_code=codes.WORKSPACE_DIRTY)
    with pytest.raises(Illegal, match="can only be cancelled"):
        ask(rig, "unblock", task_id, "r-2")
    assert ask(rig, "cancel", task_id, "r-3")["state"] == "cancelled"


@BOTH
def test_a_tree_that_is_not_usable_leaves_the_task_and_spends_nothing(rig: Rig) -> None:
    # GW-R-221, GW-R-196
    task_id = blocked(rig)
    ask(rig, "unblock", task_id)
    before = rig.task(task_id)
    settled(rig, task_id, PROBLEM)
    assert rig.task(task_id) == before
    with pytest.raises(Illegal, match=r"notes\.txt is not ours") as met:
        ask(rig, "unblock", task_id)
    assert (met.value.code, met.value.ids["problem"]) == ("invalid_state", "workspace_dirty")
    ask(rig, "unblock", task_id, "r-2")
    settled(rig, task_id)
    assert rig.state(task_id) == "queued"


@BOTH
def test_a_cancel_answers_the_unblock_that_it_overtook(rig: Rig) -> None:
    # GW-R-101, GW-R-224
    task_id = blocked(rig)
    ask(rig, "unblock", task_id)
    ask(rig, "cancel", task_id, "r-2")
    assert rig.ledger.read(operate.unblock_wanted) == []
    with pytest.raises(Illegal, match="cancelled meanwhile"):
        ask(rig, "unblock", task_id)
    settled(rig, task_id)
    assert rig.state(task_id) == "cancelled"


@BOTH
def test_many_changes_at_once_have_one_winner(rig: Rig) -> None:
    # GW-R-039, GW-R-044
    for number in range(6):
        task_id = blocked(rig, 50 + number)
        wishes: list[tuple[Verb, str]] = [("cancel", task_id), ("unblock", task_id)]
        wishes *= 2
        said = _at_once(rig, wishes, f"{number}")
        assert said.count("cancelled") == 1, said
        assert rig.state(task_id) == "cancelled"
        assert rig.ledger.read(operate.unblock_wanted) == []
    assert _at_once(rig, [("pause", "")] * 4, "p").count("paused") == 1
    control = rig.ledger.read(store.control)
    assert control is not None
    assert (control.state, control.rev, control.reason) == ("paused", 1, "because")


def _at_once(rig: Rig, wishes: list[tuple[Verb, str]], name: str) -> list[str]:
    def one(at: int) -> str:
        verb, target = wishes[at]
        try:
            said = ask(rig, verb, target, f"r-{name}-{at}")
        except (Illegal, Stale) as error:
            return error.code
        return str(said.get("state", "paused"))

    with ThreadPoolExecutor(len(wishes)) as pool:
        return list(pool.map(one, range(len(wishes))))


@BOTH
def test_two_unblocks_are_settled_by_one_look(rig: Rig) -> None:
    task_id = blocked(rig)
    _at_once(rig, [("unblock", task_id)] * 4, "u")
    settled(rig, task_id)
    assert (rig.state(task_id), rig.task(task_id).unblock_attempt) == ("queued", 1)
    assert rig.ledger.read(operate.unblock_wanted) == []
    assert rig.count("receipt") == rig.rows("SELECT count(*) FROM receipt WHERE status <> 'pending'")[0][0]


def test_without_a_forge_tasks_stay_as_they_are_and_the_same_request_may_come_again(rig: Rig) -> None:
    task_id = rig.ask()
    with pytest.raises(Unavailable, match="No forge is configured"):
        ask(rig, "cancel", task_id, settings=None)
    assert ask(rig, "pause", request_id="r-2", settings=None)["globalPaused"] is True
    assert ask(rig, "cancel", task_id)["state"] == "cancelled"


def test_order_is_kept_over_a_pause(rig: Rig) -> None:
    # GW-R-125
    first, second = rig.ask(12), rig.ask(12)
    ask(rig, "pause")
    third = rig.ask(12)
    ask(rig, "resume", request_id="r-2")
    for task_id in (first, second, third):
        rig.leave(task_id, "fail", rig.claimed(task_id), error_code=codes.RESOURCE_GONE)


def test_every_code_is_in_the_registry(rig: Rig) -> None:
    # GW-R-213
    task_id = rig.ask()
    met: list[StationmasterError] = []
    for number, (verb, target) in enumerate(
        [("resume", ""), ("enable", "default:acme/widgets"), ("enable", "no/body"), ("abort", task_id), ("abort", "x")]
    ):
        try:
            ask(rig, verb, target, f"r-{number}")  # type: ignore[arg-type]
        except StationmasterError as error:
            met.append(error)
    assert len(met) == 5
    assert all(codes.known(error.code) for error in met)
