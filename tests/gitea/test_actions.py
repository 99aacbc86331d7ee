"""Claims and leases: what is taken, by whom, in which order, and what a failed try leaves (section 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stationmaster.clock import ManualClock
from stationmaster.errors import Stale
from stationmaster.gitea import actions, codes, store
from stationmaster.gitea.model import LEASE_KIND
from stationmaster.ledger import history
from stationmaster.ledger import lease as leases
from tests.gitea.rig import HOME, PULL, Rig, database, elsewhere, told

BOTH = pytest.mark.parametrize("rig", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def rig(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Rig]:
    made = Rig.on(database(request, getattr(request, "param", "sqlite")), clock)
    yield made
    made.close()


def facts(rig: Rig) -> list[object]:
    """Returns everything that a claim may change; the ready list is an index of it."""
    tables = ("gitea_task", "gitea_repository", "gitea_session", "lease", "gitea_comment", "journal", "event", "ref")
    return [sorted(rig.rows(f"SELECT * FROM {table}"), key=repr) for table in tables]


@BOTH
def test_a_claim_takes_task_and_lease_together(rig: Rig) -> None:  # GW-R-078, GW-R-117, GW-R-106, GW-R-020
    task_id = rig.ask()
    got = rig.claim(task_id)
    assert got is not None
    task, lease = got
    assert (task.id, task.state, task.rev) == (task_id, "preparing", 2)
    assert rig.holder(task_id) == lease
    assert (lease.kind, lease.key, lease.subject, lease.owner) == (LEASE_KIND, task.repository_id, task_id, "home")
    assert lease.term == 1
    assert lease.expires_at > rig.clock.now() + 89_000_000
    (entry,) = rig.events("task.claim")
    assert entry.data == {"worker": "home", "term": 1}
    together = {each.name for each in rig.ledger.read(history.by_command, entry.command)}
    assert together >= {"task.claim", "lease.acquire", "claim"}
    assert rig.ledger.read(history.refs, entry.seq)["lease"] == [lease.lease_id]
    assert rig.repository(task_id).home_worker == "home"
    assert rig.claim(task_id) is None


def lease_held(rig: Rig, task_id: str) -> None:
    task = rig.task(task_id)
    rig.do(actions.take_lease, task, elsewhere("other"), rig.settings)


def somebody_died(rig: Rig, task_id: str) -> None:
    """Leaves an older task of another issue in work without a lease."""
    older = rig.ask(77)
    rig.claimed(task_id)
    rig.clock.advance(3600)
    assert rig.state(older) == "queued"


def not_due(rig: Rig, task_id: str) -> None:
    rig.give_up(task_id, codes.GIT_NETWORK_FAILED, rig.claimed(task_id))


OBSTACLES: dict[str, Callable[[Rig, str], None]] = {
    "paused": lambda rig, _: rig.pause(),  # GW-R-125
    "disabled": lambda rig, task_id: rig.switch(rig.task(task_id).repository_id, "disable"),
    "blocked": lambda rig, task_id: rig.switch(rig.task(task_id).repository_id, "block"),  # GW-R-034
    "leased": lease_held,
    "left behind": somebody_died,
    "not due": not_due,
}


@pytest.mark.parametrize("what", OBSTACLES)
def test_a_claim_that_fails_changes_nothing(rig: Rig, what: str) -> None:  # GW-R-114, GW-R-112
    task_id = rig.ask()
    OBSTACLES[what](rig, task_id)
    before = facts(rig)
    for _ in range(3):
        assert rig.claim(task_id) is None
    assert facts(rig) == before
    assert rig.task(task_id).attempt == (1 if what == "not due" else 0)


@pytest.mark.parametrize("what", ["paused", "disabled", "blocked"])
def test_what_was_held_back_is_claimed_afterwards_in_the_old_order(rig: Rig, what: str) -> None:
    # GW-R-125, GW-R-112, GW-R-218
    ids = [rig.ask(number) for number in (1, 2, 3)]
    repository_id = rig.task(ids[0]).repository_id
    OBSTACLES[what](rig, ids[0])
    ids.append(rig.ask(4) if what != "disabled" else ids[0])
    assert rig.claim(ids[0]) is None
    {
        "paused": lambda: rig.pause("resume"),
        "disabled": lambda: rig.switch(repository_id, "enable"),
        "blocked": lambda: rig.switch(repository_id, "unblock"),
    }[what]()
    assert rig.due() == [repository_id]
    assert worked_off(rig, ids[0]) == list(dict.fromkeys(ids))


def worked_off(rig: Rig, any_task: str) -> list[str]:
    """Claims and finishes one task after another; returns them in the order of their claims."""
    done: list[str] = []
    while (got := rig.claim(any_task)) is not None:
        task, lease = got
        if task.state == "preparing":
            rig.advance(task.id, "start", lease)
        rig.advance(task.id, "verify", lease)
        rig.leave(task.id, "confirm", lease)
        done.append(task.id)
    return done


def test_running_work_goes_on_while_paused(rig: Rig) -> None:  # GW-R-125
    task_id, later = rig.ask(1), rig.ask(2)
    lease = rig.running(task_id)
    rig.pause()
    rig.ledger.hot(leases.heartbeat, lease, rig.settings.ttl_s)
    rig.advance(task_id, "verify", lease)
    rig.leave(task_id, "confirm", lease)
    assert rig.claim(later) is None
    assert rig.state(later) == "queued"


@BOTH
def test_first_in_first_out(rig: Rig) -> None:  # GW-R-115, GW-R-113
    ids = [rig.ask(number) for number in (3, 1, 2, 3, 1)]
    assert worked_off(rig, ids[0]) == ids


class Stopped:
    """A clock that stands."""

    def now(self) -> int:
        return 1_800_000_000_000_000


def test_equal_times_are_ordered_by_id(clock: ManualClock, tmp_path: Path) -> None:  # GW-R-115
    rig = Rig.on(tmp_path / "stopped.db", clock, with_clock=Stopped())
    ids = [rig.ask(number) for number in range(1, 9)]
    assert len({rig.task(each).created_at for each in ids}) == 1
    assert worked_off(rig, ids[0]) == sorted(ids)
    rig.close()


UNDER_WAY = {
    "retry_wait": lambda rig, task_id: rig.give_up(task_id, codes.GIT_NETWORK_FAILED, rig.claimed(task_id)),
    "blocked_workspace": lambda rig, task_id: rig.leave(task_id, "block", rig.claimed(task_id), next_retry_at=None),
}


@pytest.mark.parametrize("state", UNDER_WAY)
def test_an_unfinished_older_task_holds_up_its_own_issue_only(rig: Rig, state: str) -> None:  # GW-R-115
    older, same, other = rig.ask(1), rig.ask(1), rig.ask(2)
    UNDER_WAY[state](rig, older)
    assert rig.state(older) == state
    assert worked_off(rig, older) == [other]
    assert rig.state(same) == "queued"
    if state == "retry_wait":
        rig.clock.advance(31)
    else:
        rig.step(older, "cancel")
    assert rig.due() == [rig.task(older).repository_id]
    assert worked_off(rig, older) == ([older, same] if state == "retry_wait" else [same])


def test_a_waiting_task_holds_up_nothing(rig: Rig) -> None:  # GW-R-115, GW-R-181
    waiting = rig.ask(1)
    same = rig.ask(1)
    rig.leave(waiting, "wait", rig.running(waiting))
    rig.clock.advance(1_000_000)
    assert worked_off(rig, same) == [same]
    assert rig.state(waiting) == "waiting_user"


def test_an_issue_and_a_pull_request_of_one_repository_share_its_lease(rig: Rig) -> None:  # GW-R-012, GW-R-244
    issue = rig.ask(1)
    pull = rig.take(told(PULL)).task_id
    assert pull is not None
    lease = rig.running(issue)
    assert rig.claim(pull) is None
    rig.advance(issue, "verify", lease)
    rig.leave(issue, "confirm", lease)
    assert rig.claimed(pull)


def test_fifty_repositories_are_claimed_at_once(rig: Rig) -> None:  # GW-R-116, GW-R-244
    ids = [rig.ask(1, repo=(1000 + n, "acme", f"r{n}")) for n in range(50)]
    assert len(rig.due()) == 50
    held = [rig.claimed(each) for each in ids]
    assert len({lease.key for lease in held}) == 50
    assert rig.due() == []
    assert {rig.state(each) for each in ids} == {"preparing"}


def test_only_the_home_worker_claims(rig: Rig) -> None:
    first, second = rig.ask(1), rig.ask(2)
    rig.leave(first, "fail", rig.claimed(first), error_code=codes.TURN_FAILED)
    other = elsewhere("other")
    assert (rig.due(other), rig.claim(second, other)) == ([], None)
    assert rig.due() == [rig.task(second).repository_id]
    assert rig.claimed(second)


def test_the_longest_waiting_repository_comes_first(rig: Rig) -> None:  # GW-R-113
    ids = [rig.ask(1, repo=(1000 + n, "acme", f"r{n}")) for n in (3, 1, 2)]
    assert rig.due() == [rig.task(each).repository_id for each in ids]
    assert list(rig.ledger.read(store.due_repositories, "default", "home", 2)) == rig.due()[:2]


# Who lost the lease --------------------------------------------------------------------------------------------------


def taken_over(rig: Rig) -> tuple[str, leases.Lease, leases.Lease]:
    """Lets a worker's lease run out and a newer start of it take the task over."""
    task_id = rig.ask()
    stale = rig.running(task_id)
    rig.clock.advance(rig.settings.ttl_s + 1)
    fresh = rig.do(actions.take_lease, rig.task(task_id), replace(HOME, incarnation="second"), rig.settings)
    assert fresh is not None
    return task_id, stale, fresh


@BOTH
def test_a_stale_worker_can_do_nothing(rig: Rig) -> None:  # GW-R-120, GW-R-121, GW-R-252, GW-R-118
    task_id, stale, fresh = taken_over(rig)
    before = facts(rig)
    attempts: list[Callable[[], object]] = [
        lambda: rig.advance(task_id, "verify", stale),
        lambda: rig.leave(task_id, "wait", stale),
        lambda: rig.give_up(task_id, codes.TURN_FAILED, stale),
        lambda: rig.postpone(task_id, "reply", stale),
        lambda: rig.do(actions.open_turn, task_id, stale, "run-x", "home", kind="normal", head=None),
        lambda: rig.ledger.read(leases.held, stale),
        lambda: rig.ledger.hot(leases.heartbeat, stale, 90),
    ]
    for attempt in attempts:
        with pytest.raises(Stale) as lost:
            attempt()
        assert lost.value.code == codes.LEASE_LOST
    assert rig.do(leases.release, stale) is False
    assert facts(rig) == before
    assert rig.holder(task_id) == fresh
    assert fresh.term == stale.term + 1
    assert rig.advance(task_id, "verify", fresh).state == "verifying_reply"


def test_an_expired_lease_fences_even_when_nobody_took_it(rig: Rig) -> None:  # GW-R-118, GW-R-121
    task_id = rig.ask()
    lease = rig.running(task_id)
    rig.clock.advance(rig.settings.ttl_s)
    with pytest.raises(Stale):
        rig.leave(task_id, "wait", lease)
    assert rig.state(task_id) == "running"


def test_a_lease_that_ran_out_is_released_and_told(rig: Rig) -> None:  # GW-R-122, GW-R-198
    task_id = rig.ask()
    lease = rig.running(task_id)
    rig.clock.advance(rig.settings.ttl_s)
    assert [gone.lease_id for gone in rig.do(leases.expire, LEASE_KIND)] == [lease.lease_id]
    (entry,) = rig.events("lease.expire")
    assert entry.data is not None
    assert (entry.data["reason"], entry.data["subject"]) == ("expired", task_id)
    # The task itself is recovery's: nobody claims beside it.
    assert rig.claim(task_id) is None
    assert rig.ledger.read(store.active_tasks, "default")[0].id == task_id


def test_a_newer_start_of_the_worker_frees_its_leases_at_once(rig: Rig) -> None:  # GW-R-183
    rig.ledger.hot(leases.register_worker, "home", "first")
    task_id = rig.ask()
    lease = rig.running(task_id)
    rig.ledger.hot(leases.register_worker, "home", "second")
    with pytest.raises(Stale):
        rig.advance(task_id, "verify", lease)
    assert rig.do(actions.take_lease, rig.task(task_id), replace(HOME, incarnation="second"), rig.settings) is not None
    other = rig.ask(1, repo=(5, "acme", "r5"))
    with pytest.raises(Stale) as superseded:
        rig.claim(other)
    assert superseded.value.code == "worker_superseded"
    assert rig.state(other) == "queued"


@pytest.mark.parametrize(
    ("verbs", "end"),
    [
        (("block",), "blocked_workspace"),
        (("fail",), "failed"),
        (("start", "wait"), "waiting_user"),
        (("start", "fail"), "failed"),
        (("start", "verify", "confirm"), "succeeded"),
        (("start", "verify", "confirm_fallback"), "succeeded_with_rest_fallback"),
        (("start", "verify", "fail_reply"), "failed_reply"),
        (("start", "abort", "stop"), "aborted"),
        (("start", "abort", "fail"), "failed"),
    ],
)
def test_the_lease_is_held_while_somebody_works_and_no_longer(rig: Rig, verbs: tuple[str, ...], end: str) -> None:
    # GW-R-106, GW-R-104
    task_id = rig.ask()
    lease = rig.claimed(task_id)
    for verb in verbs[:-1]:
        rig.advance(task_id, verb, lease)
        assert rig.holder(task_id) == lease
    assert rig.leave(task_id, verbs[-1], lease, error_code=codes.TURN_FAILED).state == end
    assert rig.holder(task_id) is None
    assert [entry.name for entry in rig.events("lease.release")] == ["lease.release"]
