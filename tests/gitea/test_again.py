"""A task that has ended is done again because an operator asks: once, with its own words, as its own author."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stationmaster.clock import ManualClock
from stationmaster.errors import Illegal
from stationmaster.gitea import codes, operate, store
from tests.gitea.rig import Rig, database

BOTH = pytest.mark.parametrize("rig", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def rig(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Iterator[Rig]:
    assert tmp_path
    made = Rig.on(database(request, getattr(request, "param", "sqlite")), clock)
    yield made
    made.close()


def retry(rig: Rig, task_id: str, request: str = "r1") -> dict[str, object]:
    wish = operate.Wish("retry", task_id, "admin:op", "mended")
    return rig.ledger.do(operate.command(wish, request), operate.body(rig.settings), wish)


def failed(rig: Rig, **more: object) -> str:
    task_id = rig.ask(**more)  # type: ignore[arg-type]  # what a delivery says
    rig.give_up(task_id, codes.GIT_REPO_MISSING, rig.claimed(task_id), retryable=False)
    return task_id


@BOTH
def test_it_is_a_new_task_with_the_same_words_and_author(rig: Rig) -> None:  # GW-R-224
    task_id = failed(rig, who=(7, "ann"), may="write")
    answer = retry(rig, task_id)
    assert retry(rig, task_id) == answer
    made = rig.task(str(answer["taskId"]))
    assert (made.state, made.author, made.author_id, made.sender_may) == ("queued", "ann", 7, None)
    assert made.session_id == rig.task(task_id).session_id
    assert rig.ledger.read(store.instruction, made.id) == rig.ledger.read(store.instruction, task_id)
    assert rig.state(task_id) == "failed"
    assert rig.claimed(made.id)
    with pytest.raises(Illegal, match="came after it"):
        retry(rig, task_id, "r2")
    assert rig.count("gitea_task") == 2


def test_what_continued_it_is_asked_again_too(rig: Rig) -> None:
    task_id = rig.waiting()
    rig.ask(who=(8, "bob"))
    rig.give_up(task_id, codes.GIT_REPO_MISSING, rig.claimed(task_id), retryable=False)
    made = rig.task(str(retry(rig, task_id)["taskId"]))
    assert rig.ledger.read(store.instruction, made.id).count("please") == 2
    assert made.author == "bob"


def test_only_the_last_task_of_a_thread_and_only_when_it_has_ended(rig: Rig) -> None:
    first = failed(rig)
    second = rig.ask()
    with pytest.raises(Illegal, match="came after it"):
        retry(rig, first)
    with pytest.raises(Illegal, match="is queued: only the last task"):
        retry(rig, second, "r2")


def test_words_that_are_gone_cannot_be_asked_again(rig: Rig) -> None:
    task_id = failed(rig)
    beside = rig.rows("SELECT 1")
    assert beside
    rig._beside.execute("DELETE FROM gitea_instruction")
    with pytest.raises(Illegal, match="no longer kept"):
        retry(rig, task_id)
