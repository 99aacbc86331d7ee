"""Four programs on one database contend for the same tasks: one winner each, and nothing is lost between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stationmaster.clock import ManualClock
from stationmaster.command import Cmd
from stationmaster.errors import Illegal, Stale
from stationmaster.gitea import actions, claiming, codes, store
from stationmaster.gitea.model import LEASE_KIND, Task
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.ledger import Ledger
from stationmaster.ledger.tx import Tx
from tests.gitea.rig import Rig, database, elsewhere, told
from tests.races.test_single_winner import ROUNDS, WORKERS, contest

CMD = Cmd("race", "system", "race")
LOST = (Stale, Illegal)


@pytest.fixture(params=["sqlite", "postgres"])
def rigs(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[list[Rig]]:
    where = database(request, request.param)
    opened = [Rig.on(where, clock) for _ in range(WORKERS)]
    yield opened
    for rig in opened:
        rig.close()


def asked(rig: Rig) -> list[str]:
    """Makes a task in each of as many repositories as there are rounds."""
    return [rig.ask(1, repo=(1000 + number, "acme", f"r{number}")) for number in range(ROUNDS)]


def outcomes(rigs: list[Rig], step: Callable[[Ledger, str, int], Any]) -> list[list[Any]]:
    found = contest([rig.ledger for rig in rigs], step)
    for outcome in (each for round_ in found for each in round_):
        assert not isinstance(outcome, BaseException) or isinstance(outcome, LOST), outcome
    return found


def won(round_: list[Any]) -> int:
    return sum(1 for each in round_ if each is not None and not isinstance(each, LOST))


def test_contested_claims(rigs: list[Rig]) -> None:  # GW-R-002, GW-R-116, GW-R-117, GW-R-123, GW-R-252
    ids = asked(rigs[0])
    places = [rigs[0].task(each).repository_id for each in ids]

    def step(ledger: Ledger, name: str, number: int) -> tuple[Task, Lease] | None:
        return ledger.do(CMD, claiming.claim, places[number], elsewhere(name), rigs[0].settings)

    found = outcomes(rigs, step)
    assert Counter(won(round_) for round_ in found) == {1: ROUNDS}
    for task_id in ids:
        holder = rigs[0].holder(task_id)
        assert holder is not None
        assert (rigs[0].task(task_id).state, rigs[0].task(task_id).rev, holder.term) == ("preparing", 2, 1)
        assert rigs[0].repository(task_id).home_worker == holder.owner
    assert rigs[0].ledger.verify() == []


def test_contested_moves_of_one_task(rigs: list[Rig]) -> None:  # GW-R-039, GW-R-072, GW-R-123
    seen = [rigs[0].task(each) for each in asked(rigs[0])]

    def cancel(tx: Tx, task: Task) -> Task:
        return actions.step(tx, task, "cancel", rigs[0].settings)

    def step(ledger: Ledger, name: str, number: int) -> Task:
        return ledger.do(CMD, cancel, seen[number])

    assert Counter(won(round_) for round_ in outcomes(rigs, step)) == {1: ROUNDS}
    for task in seen:
        assert rigs[0].moves(task.id)[2:] == [("queued", "cancel", "cancelled")]


def test_a_cancel_against_a_claim(rigs: list[Rig]) -> None:  # GW-R-079, GW-R-114, GW-R-177
    ids = asked(rigs[0])
    places = [rigs[0].task(each).repository_id for each in ids]

    def cancel(tx: Tx, task_id: str) -> Task:
        return actions.step(tx, store.task(tx, task_id), "cancel", rigs[0].settings)

    def step(ledger: Ledger, name: str, number: int) -> object:
        if name in {"w0", "w1"}:
            return ledger.do(CMD, cancel, ids[number])
        return ledger.do(CMD, claiming.claim, places[number], elsewhere(name), rigs[0].settings)

    assert Counter(won(round_) for round_ in outcomes(rigs, step)) == {1: ROUNDS}
    for task_id in ids:
        held = rigs[0].holder(task_id) is not None
        assert rigs[0].state(task_id) == ("preparing" if held else "cancelled")


def test_a_holder_against_those_who_take_over(rigs: list[Rig], clock: ManualClock) -> None:
    # GW-R-118, GW-R-120, GW-R-122, GW-R-252
    ids = asked(rigs[0])
    old = [rigs[0].running(each) for each in ids]
    clock.advance(rigs[0].settings.ttl_s + 1)

    def leave(tx: Tx, task_id: str, lease: Lease) -> Task:
        return actions.leave(tx, task_id, "wait", lease, rigs[0].settings)

    def step(ledger: Ledger, name: str, number: int) -> object:
        if name == "w0":
            return ledger.do(CMD, leave, ids[number], old[number])
        if name == "w1":
            return ledger.do(CMD, leases.release, old[number]) or None
        task = ledger.read(store.task, ids[number])
        return ledger.do(CMD, actions.take_lease, task, elsewhere(name), rigs[0].settings)

    found = outcomes(rigs, step)
    # The stale holder may still hand back a row that nobody took; it never moves its task.
    for task_id, round_ in zip(ids, found, strict=True):
        taken = [each for each in round_ if isinstance(each, Lease)]
        assert [lease.term for lease in taken] == [2]
        assert rigs[0].ledger.read(leases.current, LEASE_KIND, taken[0].key) == taken[0]
        assert rigs[0].state(task_id) == "running"
        assert isinstance(next(each for each in round_ if isinstance(each, BaseException)), Stale)


def test_no_task_is_forgotten_between_asking_and_claiming(rigs: list[Rig]) -> None:  # GW-R-113, GW-R-240
    ids = asked(rigs[0])
    places = [rigs[0].task(each).repository_id for each in ids]
    for task_id in ids:
        rigs[0].step(task_id, "cancel")  # its repository stays on the ready list until somebody looks
    made: dict[int, str] = {}

    def step(ledger: Ledger, name: str, number: int) -> object:
        if name == "w0":
            made[number] = rigs[0].ask(1, repo=(1000 + number, "acme", f"r{number}"))
            return made[number]
        return ledger.do(CMD, claiming.claim, places[number], elsewhere("home"), rigs[0].settings)

    found = outcomes(rigs, step)
    due = set(rigs[0].due(elsewhere("home")))
    for number, round_ in enumerate(found):
        claimed = [each[0].id for each in round_ if isinstance(each, tuple)]
        assert claimed in ([], [made[number]])
        assert (rigs[0].state(made[number]), places[number] in due) == (
            ("preparing", False) if claimed else ("queued", True)
        )
    assert rigs[0].ledger.read(store.unlisted) == []


def test_answers_against_the_waiting_task(rigs: list[Rig]) -> None:  # GW-R-060, GW-R-023
    ids = asked(rigs[0])
    for task_id in ids:
        rigs[0].leave(task_id, "wait", rigs[0].running(task_id), error_code=codes.INTERNAL_ERROR)

    def step(ledger: Ledger, name: str, number: int) -> str | None:
        rig = rigs[int(name[1])]
        data = told(number=1, comment_id=5000 + number, repo=(1000 + number, "acme", f"r{number}"))
        reply = rig.take(data, f"{name}-{number}")
        return reply.task_id

    found = outcomes(rigs, step)
    assert Counter(won(round_) for round_ in found) == {1: ROUNDS}
    for task_id in ids:
        assert len(rigs[0].ledger.read(store.follow_ups, task_id)) == 1
        assert rigs[0].state(task_id) == "queued"
    assert rigs[0].count("gitea_task") == ROUNDS
