"""K13 and K14 on PostgreSQL: one transaction a command, equal requests wait, losers run again, a stable horizon."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from stationmaster.clock import ManualClock
from stationmaster.errors import Invalid, Unavailable
from stationmaster.ledger import history, lease, queries
from stationmaster.ledger.ledger import Ledger, PostgresSettings, Reader, Tx
from tests.conftest import PostgresServer
from tests.contract.test_commands import cmd, move, post
from tests.ledger import parcels
from tests.ledger.parcels import Q
from tests.support import eventually

X = queries.parse(
    """
-- name: relabel :run
UPDATE label SET name = :name WHERE parcel = :parcel;
-- name: hang_up :many
SELECT 1 AS gone;
-- name: hang_up :many [postgres]
SELECT pg_terminate_backend(pg_backend_pid()) AS gone;
""",
    "x",
)


@pytest.fixture
def settings(postgres: PostgresServer) -> PostgresSettings:
    return postgres.settings()


@pytest.fixture
def ledger(settings: PostgresSettings, clock: ManualClock) -> Iterator[Ledger]:
    with Ledger.open(settings, [parcels.SLICE], clock=clock) as opened:
        yield opened


class Held:
    """A command that waits inside its body until it is let go."""

    def __init__(self, ledger: Ledger, dedupe: str | None = None, parcel: str = "held") -> None:
        self._entered = threading.Event()
        self._go = threading.Event()
        self._parcel = parcel
        self.future = ledger.submit(cmd(dedupe=dedupe), self._body, parcel)
        assert self._entered.wait(10)

    def _body(self, tx: Tx, parcel: str) -> str:
        post(tx, parcel, address=parcel)
        self._entered.set()
        assert self._go.wait(10)
        return parcel

    def let_go(self) -> str:
        self._go.set()
        return self.future.result(10)


def waits_for_a_lock(settings: PostgresSettings) -> bool:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with psycopg.connect(settings.dsn, autocommit=True) as connection:
        return bool(eventually(lambda: connection.execute(waiting).fetchall()[0][0], 5))


def test_nothing_above_the_horizon_while_a_transaction_runs(ledger: Ledger) -> None:
    ledger.do(cmd(), post, "p1", address="a1")
    ledger.do(cmd(), post, "p2", address="a2")
    held = Held(ledger)
    ledger.do(cmd(), post, "p3", address="a3")
    horizon = ledger.read(history.horizon)
    seqs = [e.seq for e in ledger.read(history.page)]
    assert 0 < horizon < 5
    assert max(seqs) <= horizon
    held.let_go()
    assert ledger.read(history.horizon) == 8
    # The one that waited has the lower numbers: a cursor past the later one would have lost it.
    assert [e.entity for e in ledger.read(history.page) if e.kind == "move"] == ["p1", "p2", "held", "p3"]


def test_a_transaction_with_a_later_id_and_an_earlier_number_holds_the_horizon(
    ledger: Ledger, settings: PostgresSettings
) -> None:
    ledger.do(cmd(), post, "p1")
    by_hand = b"INSERT INTO command (name, actor, cause, args_hash, at, sealed) VALUES ('x', 'x', 'x', 'x', 1, 0)"
    options = f"-c search_path={settings.schema}"
    with (
        psycopg.connect(settings.dsn, options=options) as older,
        psycopg.connect(settings.dsn, options=options) as late,
    ):
        older.execute("SELECT pg_current_xact_id()")
        late.execute(by_hand)
        older.execute(by_hand)
        older.commit()
        # The later id is not in the snapshot's list of running ones: nothing above it has finished yet.
        assert [e.seq for e in ledger.read(history.page)] == []
        late.commit()
    assert [e.seq for e in ledger.read(history.page)] == [1, 2, 3, 4]


def test_an_equal_request_waits_and_reads_the_first_receipt(ledger: Ledger, settings: PostgresSettings) -> None:
    held = Held(ledger, "r1")
    waiting = ledger.submit(cmd(dedupe="r1"), held._body, "held")
    assert waits_for_a_lock(settings)
    assert not waiting.done()
    assert held.let_go() == "held"
    assert waiting.result(10) == "held"
    assert len([e for e in ledger.read(history.page) if e.kind == "move"]) == 1


def test_a_refusal_is_remembered_behind_an_equal_request(ledger: Ledger) -> None:
    def refused(tx: Tx) -> None:
        raise Invalid("No.", code="no")

    waiting = [ledger.submit(cmd(dedupe="r1"), refused) for _ in range(4)]
    assert [type(future.exception(10)) for future in waiting] == [Invalid] * 4
    assert len([e for e in ledger.read(history.page) if e.kind == "refusal"]) == 1


def test_a_deadlock_is_run_again(ledger: Ledger) -> None:
    def fill(tx: Tx) -> None:
        for parcel in ("a", "b"):
            tx.run(Q.add_label, parcel=parcel, name="x")

    ledger.do(cmd(), fill)
    both = threading.Barrier(2)
    tries: list[str] = []

    def cross(tx: Tx, first: str, second: str) -> str:
        tx.run(X.relabel, parcel=first, name=f"by-{first}")
        tries.append(first)
        if len(tries) <= 2:
            both.wait(10)
        tx.run(X.relabel, parcel=second, name=f"by-{first}")
        return first

    crossing = [ledger.submit(cmd("cross"), cross, *names) for names in (("a", "b"), ("b", "a"))]
    assert [future.result(20) for future in crossing] == ["a", "b"]
    assert len(tries) > 2, "one of them lost, and was run again"
    assert len([e for e in ledger.read(history.page) if e.kind == "command"]) == 3


def test_a_lost_connection_is_unavailable_and_the_next_command_works(ledger: Ledger) -> None:
    def hang_up(tx: Tx) -> None:
        post(tx, "p1")
        tx.many(X.hang_up)

    with pytest.raises(Unavailable) as lost:
        ledger.do(cmd(), hang_up)
    assert lost.value.code == "store_unavailable"
    assert ledger.do(cmd(), post, "p1") == "p1"
    with pytest.raises(Unavailable):
        ledger.read(lambda reader: reader.many(X.hang_up))
    assert len(ledger.read(history.page)) == 2


def test_a_move_waits_for_the_row_and_then_is_stale(ledger: Ledger, settings: PostgresSettings) -> None:
    ledger.do(cmd(), post, "p1")
    entered, go = threading.Event(), threading.Event()

    def slow(tx: Tx) -> str:
        state = move(tx, "p1", "collect", 0)
        entered.set()
        assert go.wait(10)
        return state

    first = ledger.submit(cmd(), slow)
    assert entered.wait(10)
    second = ledger.submit(cmd(), move, "p1", "recall", 0)
    assert waits_for_a_lock(settings)
    go.set()
    assert first.result(10) == "travelling"
    assert getattr(second.exception(10), "code", None) == "version_conflict"


def test_held_keeps_the_lease_until_the_commit(ledger: Ledger, settings: PostgresSettings, clock: ManualClock) -> None:
    def take(tx: Tx, owner: str) -> lease.Lease | None:
        return lease.acquire(tx, kind="road", key="1", owner=owner, incarnation="i", subject="s", ttl_s=10)

    mine = ledger.do(cmd(), take, "w1")
    assert mine is not None
    entered, go = threading.Event(), threading.Event()

    def fenced(tx: Tx) -> int:
        lease.held(tx, mine)
        entered.set()
        assert go.wait(10)
        return tx.event("fenced")

    writing = ledger.submit(cmd(), fenced)
    assert entered.wait(10)
    clock.advance(20)
    taking = ledger.submit(cmd(), take, "w2")
    assert waits_for_a_lock(settings)
    go.set()
    written = writing.result(10)
    assert taking.result(10) is not None
    acquired = ledger.read(history.by_action, "lease.acquire")[-1]
    assert written < acquired.seq


def test_a_read_is_one_snapshot(ledger: Ledger) -> None:
    def twice(reader: Reader) -> list[int]:
        first = len(reader.many(Q.all))
        other = threading.Thread(target=lambda: ledger.do(cmd(), post, "p2"))
        other.start()
        other.join(10)
        return [first, len(reader.many(Q.all))]

    assert ledger.read(twice) == [0, 0]


def test_leases_follow_the_databases_clock(postgres: PostgresServer) -> None:
    # A host whose clock is wrong by decades still agrees with the others (K5).
    settings = postgres.settings(database_time=True)
    with Ledger.open(settings, [parcels.SLICE], clock=ManualClock(1)) as ledger:
        seen = ledger.do(cmd(), lambda tx: tx.now)
    with psycopg.connect(settings.dsn) as connection:
        row: Any = connection.execute("SELECT extract(epoch FROM now())").fetchone()
    assert abs(seen / 1_000_000 - float(row[0])) < 60


def test_a_server_that_is_not_there_is_unavailable(tmp_path: Any) -> None:
    nowhere = PostgresSettings(f"host={tmp_path} dbname=x password=hush-hush-7", wait_s=1)
    with pytest.raises(Unavailable) as error:
        Ledger.open(nowhere, [parcels.SLICE], clock=ManualClock())
    assert "hush" not in str(error.value)
    assert "hush" not in repr(nowhere)
