"""Four programs on one database, each with a ledger of its own: every contest has one winner (K3, K5, K1)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stationmaster.clock import ManualClock
from stationmaster.command import Cmd
from stationmaster.errors import Stale
from stationmaster.ledger import history, lease
from stationmaster.ledger.ledger import Ledger, PostgresSettings, Tx
from tests.conftest import PostgresServer
from tests.contract.test_commands import cmd, move, post
from tests.ledger import parcels
from tests.ledger.parcels import Q

WORKERS = 4
ROUNDS = 50


@pytest.fixture(params=["sqlite", "postgres"])
def ledgers(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[list[Ledger]]:
    database: Path | PostgresSettings = tmp_path / "ledger.db"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        database = server.settings()
    opened = [Ledger.open(database, [parcels.SLICE], clock=clock) for _ in range(WORKERS)]
    yield opened
    for ledger in opened:
        ledger.close()


def contest(ledgers: list[Ledger], step: Callable[[Ledger, str, int], Any]) -> list[list[Any]]:
    """Lets every worker take each of the rounds at the same moment; returns the outcomes by round."""
    start = threading.Barrier(WORKERS, timeout=60)
    outcomes: list[list[Any]] = [[] for _ in range(ROUNDS)]

    def work(ledger: Ledger, name: str) -> None:
        for number in range(ROUNDS):
            start.wait()
            try:
                outcomes[number].append(step(ledger, name, number))
            except Exception as error:  # noqa: BLE001 - losing is an outcome
                outcomes[number].append(error)

    threads = [threading.Thread(target=work, args=(ledger, f"w{n}")) for n, ledger in enumerate(ledgers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert all(len(outcome) == WORKERS for outcome in outcomes)
    return outcomes


def winners(outcomes: list[list[Any]], *, loser: Callable[[Any], bool]) -> Counter[int]:
    """Counts the winners of each round; anything that is neither won nor lost fails."""
    for outcome in (outcome for outcomes_ in outcomes for outcome in outcomes_):
        assert not isinstance(outcome, BaseException) or loser(outcome), outcome
    return Counter(sum(1 for outcome in outcome if not loser(outcome)) for outcome in outcomes)


def is_stale(outcome: Any) -> bool:
    return isinstance(outcome, Stale)


def is_none(outcome: Any) -> bool:
    return outcome is None


def test_contested_moves(ledgers: list[Ledger]) -> None:
    for number in range(ROUNDS):
        ledgers[0].do(cmd(), post, f"p{number}", address=f"a{number}")

    def step(ledger: Ledger, name: str, number: int) -> str:
        return ledger.do(cmd("collect"), move, f"p{number}", "collect", 0, carrier=name)

    assert winners(contest(ledgers, step), loser=is_stale) == {1: ROUNDS}
    moves = [e for e in ledgers[1].read(history.page, limit=10_000) if e.name == "collect" and e.kind == "move"]
    assert len(moves) == ROUNDS
    assert ledgers[2].verify() == []


def test_contested_births(ledgers: list[Ledger]) -> None:
    def step(ledger: Ledger, name: str, number: int) -> str:
        return ledger.do(cmd(), post, f"p{number}", address=name)

    assert winners(contest(ledgers, step), loser=is_stale) == {1: ROUNDS}


def test_contested_leases(ledgers: list[Ledger], clock: ManualClock) -> None:
    def step(ledger: Ledger, name: str, number: int) -> lease.Lease | None:
        return ledger.do(
            Cmd("claim", name, "race"),
            lease.acquire,
            kind="road",
            key=str(number),
            owner=name,
            incarnation="i",
            subject="s",
            ttl_s=1000,
        )

    for term in (1, 2):
        outcomes = contest(ledgers, step)
        assert winners(outcomes, loser=is_none) == {1: ROUNDS}
        assert {won.term for outcome in outcomes for won in outcome if won is not None} == {term}
        clock.advance(2000)


def test_equal_requests_run_once(ledgers: list[Ledger]) -> None:
    def body(tx: Tx, number: int) -> str:
        tx.run(Q.add_label, parcel=str(number), name="once")
        return tx.cmd.actor

    def step(ledger: Ledger, name: str, number: int) -> str:
        return ledger.do(Cmd("label", name, "race", dedupe=f"r{number}"), body, number)

    outcomes = contest(ledgers, step)
    assert all(len(set(outcome)) == 1 for outcome in outcomes), outcomes
    assert len([e for e in ledgers[0].read(history.page, limit=10_000) if e.kind == "command"]) == ROUNDS


def test_a_paging_reader_loses_nothing_while_writers_run(ledgers: list[Ledger]) -> None:
    done = threading.Event()
    met: list[int] = []

    def follow() -> None:
        while True:
            last = done.is_set()
            while entries := ledgers[0].read(history.page, after=met[-1] if met else 0, limit=20):
                met.extend(entry.seq for entry in entries)
            if last:
                return

    reader = threading.Thread(target=follow)
    reader.start()

    def step(ledger: Ledger, name: str, number: int) -> str:
        return ledger.do(cmd(), post, f"{name}-{number}", address=f"{name}-{number}")

    assert winners(contest(ledgers, step), loser=is_stale) == {WORKERS: ROUNDS}
    done.set()
    reader.join(60)
    whole = [e.seq for e in ledgers[1].read(history.page, limit=10_000)]
    assert met == whole
    assert len(whole) == 2 * WORKERS * ROUNDS
