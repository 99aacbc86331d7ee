"""K5: leases, the same on every database."""

from __future__ import annotations

import pytest

from stationmaster.clock import ManualClock
from stationmaster.command import Cmd
from stationmaster.errors import Stale
from stationmaster.ledger import history, lease
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.ledger import Ledger, Tx
from tests.conftest import LedgerFactory
from tests.ledger import parcels

CMD = Cmd("lease.test", "system", "test", refs={"task": "t1"})


@pytest.fixture
def ledger(ledger_factory: LedgerFactory) -> Ledger:
    return ledger_factory([parcels.SLICE])


def take(ledger: Ledger, owner: str = "w1", incarnation: str = "i1", ttl_s: float = 10) -> Lease | None:
    return ledger.do(
        CMD, lease.acquire, kind="road", key="r1", owner=owner, incarnation=incarnation, subject="t1", ttl_s=ttl_s
    )


def taken(ledger: Ledger, owner: str = "w1", incarnation: str = "i1") -> Lease:
    got = take(ledger, owner, incarnation)
    assert got is not None
    return got


def told(ledger: Ledger) -> list[str]:
    return [entry.name for entry in ledger.read(history.by_ref, "road", "r1") if entry.kind == "observation"]


def test_one_holder_at_a_time_and_a_new_term_each_time(ledger: Ledger) -> None:
    # GW-R-045
    first = taken(ledger)
    assert first.term == 1
    assert take(ledger, "w2") is None
    assert take(ledger, "w1") is None  # not even the same worker twice
    assert ledger.do(CMD, lease.release, first) is True
    second = taken(ledger, "w2")
    assert second.term == 2
    assert ledger.read(lease.term, "road", "r1") == 2
    assert ledger.do(CMD, lease.release, first) is False
    assert ledger.read(lease.current, "road", "r1") == second
    assert told(ledger) == ["lease.acquire", "lease.release", "lease.acquire"]


def test_now_at_the_expiry_is_expired(ledger: Ledger, clock: ManualClock) -> None:
    first = taken(ledger)
    clock.advance(10)
    with pytest.raises(Stale) as lost:
        ledger.read(lease.held, first)
    assert lost.value.code == "lease_lost"
    with pytest.raises(Stale):  # an expired lease is never revived, even if nobody took it
        ledger.hot(lease.heartbeat, first, 10)
    assert ledger.read(lease.current, "road", "r1") is None
    second = taken(ledger, "w2")
    assert (second.term, told(ledger)) == (2, ["lease.acquire", "lease.expire", "lease.acquire"])


def test_a_heartbeat_extends_and_writes_no_history(ledger: Ledger, clock: ManualClock) -> None:
    first = taken(ledger)
    before = ledger.read(history.horizon)
    clock.advance(8)
    longer = ledger.hot(lease.heartbeat, first, 10)
    clock.advance(8)
    ledger.read(lease.held, longer)
    assert take(ledger, "w2") is None
    assert ledger.read(history.horizon) == before


def test_a_heartbeat_never_shortens(ledger: Ledger, clock: ManualClock) -> None:
    first = taken(ledger)
    assert ledger.hot(lease.heartbeat, first, 1).expires_at == first.expires_at
    clock.advance(5)
    ledger.read(lease.held, first)


def test_a_newer_incarnation_frees_the_older_ones_leases_at_once(ledger: Ledger) -> None:
    ledger.hot(lease.register_worker, "w1", "i1")
    first = taken(ledger, "w1", "i1")
    ledger.hot(lease.register_worker, "w1", "i2")
    with pytest.raises(Stale):
        ledger.read(lease.held, first)
    with pytest.raises(Stale):
        ledger.hot(lease.heartbeat, first, 10)
    with pytest.raises(Stale) as superseded:
        take(ledger, "w1", "i1")
    assert superseded.value.code == "worker_superseded"
    with pytest.raises(Stale):
        ledger.hot(lease.seen_worker, "w1", "i1")
    ledger.hot(lease.seen_worker, "w1", "i2")
    assert taken(ledger, "w2").term == 2
    assert [worker.incarnation for worker in ledger.read(lease.workers)] == ["i2"]


def test_another_workers_restart_frees_nothing(ledger: Ledger) -> None:
    first = taken(ledger, "w1", "i1")
    ledger.hot(lease.register_worker, "w2", "i9")
    ledger.read(lease.held, first)
    assert take(ledger, "w2", "i9") is None


def test_expire_releases_what_lapsed_and_says_so(ledger: Ledger, clock: ManualClock) -> None:
    first = taken(ledger)
    assert ledger.do(CMD, lease.expire, "road") == []
    clock.advance(11)
    assert [gone.lease_id for gone in ledger.do(CMD, lease.expire, "road")] == [first.lease_id]
    assert ledger.do(CMD, lease.expire, "road") == []
    assert told(ledger) == ["lease.acquire", "lease.expire"]
    assert taken(ledger, "w2").term == 2


def test_expire_also_releases_dead_incarnations(ledger: Ledger) -> None:
    ledger.hot(lease.register_worker, "w1", "i1")
    taken(ledger, "w1", "i1")
    ledger.hot(lease.register_worker, "w1", "i2")
    assert len(ledger.do(CMD, lease.expire, "road")) == 1
    reasons = [entry.data["reason"] for entry in ledger.read(history.by_action, "lease.expire") if entry.data]
    assert reasons == ["incarnation_dead"]


def test_a_lost_lease_fences_a_command(ledger: Ledger, clock: ManualClock) -> None:
    first = taken(ledger)
    clock.advance(11)
    taken(ledger, "w2")

    def late(tx: Tx) -> None:
        lease.held(tx, first)
        tx.event("late")

    with pytest.raises(Stale):
        ledger.do(CMD, late)
    assert ledger.read(history.by_action, "late") == []
