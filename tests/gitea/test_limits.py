"""Limits: what is kept back, for how long, who is told, and what counts as used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from stationmaster.clock import MICROS, ManualClock
from stationmaster.gitea import actions, codes, limits, operate, store
from stationmaster.gitea.settings import LimitSettings
from stationmaster.ledger.lease import Lease
from tests.gitea.rig import HOME, Rig, database

BOTH = pytest.mark.parametrize("rig", ["sqlite", "postgres"], indirect=True)
HOUR, DAY = 3600.0, 86_400.0
ANN, BOB = (7, "ann"), (8, "bob")


@pytest.fixture
def rig(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Rig]:
    made = Rig.on(database(request, getattr(request, "param", "sqlite")), clock)
    yield made
    made.close()


def limit(rig: Rig, **given: float) -> None:
    rig.settings = replace(rig.settings, limits=LimitSettings(**given))  # type: ignore[arg-type]  # counts and times


def begin(rig: Rig, task_id: str, thread: str = "t1") -> tuple[str, Lease]:
    """Claims a task and opens a run of it; returns the run."""
    lease = rig.claimed(task_id)
    run_id = actions.new_run_id()
    rig.do(actions.open_turn, task_id, lease, run_id, HOME.worker_id, kind="normal", head=None)
    rig.ledger.hot(limits.count, run_id, thread, None)
    return run_id, lease


def finish(rig: Rig, task_id: str, lease: Lease) -> None:
    rig.give_up(task_id, codes.GIT_REPO_MISSING, lease, retryable=False)


def ran(rig: Rig, task_id: str, total: int | None = None, thread: str = "t1") -> None:
    run_id, lease = begin(rig, task_id, thread)
    if total is not None:
        rig.ledger.hot(limits.count, run_id, thread, total)
    finish(rig, task_id, lease)


def hold(rig: Rig, task_id: str) -> limits.Hold | None:
    return rig.ledger.read(limits.holding, task_id)


def release(rig: Rig, task_id: str, request: str = "r1") -> None:
    wish = operate.Wish("release", task_id, "admin:op", "go on")
    rig.ledger.do(operate.command(wish, request), operate.body(rig.settings), wish)


@BOTH
def test_a_person_who_asks_too_often_waits_and_others_do_not(rig: Rig) -> None:
    limit(rig, author_per_hour=2)
    first = rig.clock.now()
    for number in (1, 2):
        ran(rig, rig.ask(number, who=ANN))
        rig.clock.advance(60)
    kept, other = rig.ask(3, who=ANN), rig.ask(4, who=BOB)
    got = rig.claim(kept)
    assert got is not None
    assert got[0].id == other  # what is kept back holds nobody else up
    finish(rig, other, got[1])
    found = hold(rig, kept)
    assert found is not None
    assert found.reason == codes.AUTHOR_RATE_REACHED
    assert found.until_at is not None
    assert first <= found.until_at - HOUR * MICROS < first + 60 * MICROS
    assert rig.state(kept) == "queued"
    (entry,) = rig.events("task.held")
    assert entry.data == {"code": codes.AUTHOR_RATE_REACHED, "until": found.until_at}
    assert rig.claim(kept) is None
    assert rig.due() == []  # nobody asks again before there is room
    rig.clock.advance(HOUR)
    assert rig.due() == [rig.task(kept).repository_id]
    assert rig.claimed(kept)
    assert rig.count("gitea_hold") == 0


@BOTH
@pytest.mark.parametrize(
    ("given", "code"),
    [({"repo_per_hour": 1}, codes.REPO_RATE_REACHED), ({"all_per_hour": 1}, codes.RATE_REACHED)],
)
def test_a_repository_and_all_have_rates_of_their_own(rig: Rig, given: dict[str, float], code: str) -> None:
    limit(rig, **given)
    ran(rig, rig.ask(1, who=ANN))
    here, elsewhere = rig.ask(2, who=BOB), rig.ask(3, who=BOB, repo=(99, "acme", "gears"))
    assert rig.claim(here) is None
    assert rig.claim(elsewhere) is None if code == codes.RATE_REACHED else rig.claimed(elsewhere)
    found = hold(rig, here)
    assert found is not None
    assert found.reason == code


def test_a_thread_is_told_once_and_keeps_its_order(rig: Rig) -> None:
    limit(rig, author_per_hour=1)
    ran(rig, rig.ask(1, who=ANN))
    kept, behind = rig.ask(5, who=ANN), rig.ask(5, who=BOB)
    assert rig.claim(kept) is None
    assert hold(rig, behind) is None
    assert rig.state(behind) == "queued"  # GW-R-115: what was asked later in a thread does not pass
    (notice,) = rig.comments(kept)
    body = rig.ledger.read(store.comment_body, notice.id)
    assert notice.id == f"{kept}:status:held"
    assert "一小时内" in body
    assert "@" not in body  # it wakes nobody, and no other bot
    release(rig, kept)
    ran(rig, kept)
    again = rig.ask(5, who=ANN)
    finish(rig, behind, rig.claimed(behind))
    assert rig.claim(again) is None
    assert hold(rig, again) is not None
    assert [row for row in rig.comments(again) if row.kind == "status"] == []


@BOTH
def test_an_operator_lets_one_run_go(rig: Rig) -> None:
    limit(rig, author_per_hour=1)
    ran(rig, rig.ask(1, who=ANN))
    kept = rig.ask(2, who=ANN)
    assert rig.claim(kept) is None
    release(rig, kept)
    assert hold(rig, kept) is None
    run = begin(rig, kept)
    rig.advance(kept, "start", run[1])
    rig.leave(kept, "wait", run[1])
    (let_go,) = rig.events("task.let_go")
    assert let_go.data == {"reason": "go on"}
    rig.ask(2, who=ANN)  # continues the waiting task
    assert rig.claim(kept) is None
    assert hold(rig, kept) is not None


def test_what_is_not_kept_back_cannot_be_let_go(rig: Rig) -> None:
    task_id = rig.ask()
    with pytest.raises(Exception, match="No limit keeps the task"):
        release(rig, task_id)


def test_what_was_begun_is_brought_to_its_end(rig: Rig) -> None:  # GW-R-107, GW-R-108
    task_id = rig.ask()
    _, lease = begin(rig, task_id)
    rig.advance(task_id, "start", lease)
    rig.postpone(task_id, "reply", lease)
    limit(rig, author_per_hour=1, task_turns=1, day_turns=1)
    assert rig.claimed(task_id)


@BOTH
def test_a_days_budget_begins_anew_with_the_day(rig: Rig) -> None:
    limit(rig, day_tokens=100)
    ran(rig, rig.ask(1), total=99)
    ran(rig, rig.ask(2), total=101)  # one short of it is enough to begin, and is brought to its end
    kept = rig.ask(3)
    assert rig.claim(kept) is None
    found = hold(rig, kept)
    assert found is not None
    assert found.reason == codes.DAY_BUDGET_SPENT
    assert found.until_at is not None
    assert found.until_at % int(DAY * MICROS) == 0
    rig.clock.advance((found.until_at - rig.clock.now()) / MICROS)
    assert rig.claimed(kept)


@pytest.mark.parametrize("given", [{"repo_day_turns": 1}, {"repo_day_tokens": 5}, {"repo_day_wall_s": 30}])
def test_a_repository_has_a_budget_of_its_own(rig: Rig, given: dict[str, float]) -> None:
    limit(rig, **given)
    run_id, lease = begin(rig, rig.ask(1))
    rig.clock.advance(30)
    rig.ledger.hot(limits.count, run_id, "t1", 5)
    rig.give_up(rig.ledger.read(store.turn, run_id).task_id, "turn_failed", lease, retryable=False)  # type: ignore[union-attr]
    here, elsewhere = rig.ask(2), rig.ask(3, repo=(99, "acme", "gears"))
    assert rig.claim(here) is None
    assert rig.claimed(elsewhere)
    found = hold(rig, here)
    assert found is not None
    assert found.reason == codes.REPO_BUDGET_SPENT


@BOTH
def test_a_tasks_budget_has_room_again_only_for_an_operator(rig: Rig) -> None:
    limit(rig, task_turns=1)
    task_id = rig.ask()
    _, lease = begin(rig, task_id)
    rig.advance(task_id, "start", lease)
    rig.leave(task_id, "wait", lease)
    rig.ask()
    assert rig.claim(task_id) is None
    found = hold(rig, task_id)
    assert found is not None
    assert (found.reason, found.until_at) == (codes.TASK_BUDGET_SPENT, None)
    rig.clock.advance(10 * DAY)
    assert rig.due() == []
    assert rig.ledger.read(store.unlisted) == []  # recovery does not offer it again and again
    release(rig, task_id)
    assert rig.claimed(task_id)


def test_a_task_that_is_cancelled_is_kept_back_no_more(rig: Rig) -> None:
    limit(rig, author_per_hour=1)
    ran(rig, rig.ask(1, who=ANN))
    kept = rig.ask(2, who=ANN)
    assert rig.claim(kept) is None
    wish = operate.Wish("cancel", kept, "admin:op", "enough")
    rig.ledger.do(operate.command(wish, "c1"), operate.body(rig.settings), wish)
    assert rig.count("gitea_hold") == 0
    assert rig.ledger.read(limits.holds, (0, ""), 10) == []


@BOTH
def test_totals_are_counted_once_however_often_they_are_told(rig: Rig) -> None:
    first = rig.ask(1)
    run_id, lease = begin(rig, first)
    told = [rig.ledger.hot(limits.count, run_id, "t1", total) for total in (10, 10, 25, 25)]
    assert told == [10, 10, 25, 25]
    finish(rig, first, lease)
    second = rig.ask(2)
    run_id, lease = begin(rig, second)
    # The thread goes on: its totals include what the first run used, and 5 that this one never told.
    told = [rig.ledger.hot(limits.count, run_id, "t1", total) for total in (30, 42)]
    assert told == [5, 17]
    # A count that began anew, and another thread.
    assert rig.ledger.hot(limits.count, run_id, "t1", 8) == 25
    assert rig.ledger.hot(limits.count, run_id, "t2", 100) == 125
    assert rig.ledger.hot(limits.count, "run-of-nobody", "t1", 5) == 0
    finish(rig, second, lease)
    assert rig.ledger.read(limits.used_since, 0).tokens == 25 + 125
    of_second = rig.ledger.read(limits.used_by_task, second)
    assert (of_second.turns, of_second.tokens) == (1, 125)


def test_many_that_are_kept_back_take_a_few_commands(rig: Rig) -> None:
    limit(rig, author_per_hour=1)
    ran(rig, rig.ask(1, who=ANN))
    kept = [rig.ask(100 + number, who=ANN) for number in range(45)]
    other = rig.ask(500, who=BOB)
    assert rig.claim(kept[0]) is None
    assert rig.due()  # there is more to be looked at
    assert rig.claim(kept[0]) is None
    got = rig.claim(kept[0])
    assert got is not None
    assert got[0].id == other
    assert len(rig.ledger.read(limits.holds, (0, ""), 100)) == 45
