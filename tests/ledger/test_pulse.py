from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from stationmaster.clock import ManualClock
from stationmaster.command import Cmd
from stationmaster.errors import Unavailable
from stationmaster.ledger.ledger import Ledger, Tx
from tests.conftest import LedgerFactory, PostgresServer
from tests.ledger import parcels

Make = Callable[[], Ledger]


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, ledger_factory: LedgerFactory) -> Iterator[Ledger]:
    if request.param == "sqlite":
        yield ledger_factory((parcels.SLICE,))
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with closing(Ledger.open(server.settings(), (parcels.SLICE,), clock=ManualClock())) as opened:
        yield opened


def _tell(tx: Tx) -> None:
    tx.event("said")


def test_every_commit_is_counted_with_what_shared_it(ledger: Ledger) -> None:
    done = [ledger.submit(Cmd("say", "system", "test"), _tell) for _ in range(20)]
    for future in done:
        future.result()
    commits, groups = ledger.pulse.commit_s.taken(), ledger.pulse.group.taken()
    assert sum(commits.counts) == sum(groups.counts) <= 20
    assert groups.total == 20
    assert commits.total > 0
    assert (ledger.pulse.writable, ledger.pulse.failed) == (True, 0)


def test_a_refusal_is_no_failure_of_the_ledger(ledger: Ledger) -> None:
    def refuse(tx: Tx) -> None:
        raise Unavailable("The forge is away.", code="forge_unreachable")

    with pytest.raises(Unavailable):
        ledger.do(Cmd("say", "system", "test"), refuse)
    assert ledger.pulse.writable


def test_a_failed_commit_is_told_until_one_is_kept(ledger_factory: LedgerFactory) -> None:
    ledger = ledger_factory((parcels.SLICE,))
    # A database that may grow no further stands in for a full disk.
    ledger._engine._writer.execute("PRAGMA max_page_count = 1")  # type: ignore[attr-defined]

    def much(tx: Tx) -> None:
        for number in range(190):
            tx.event("said", words="x" * 4000, number=number)

    with pytest.raises(Unavailable):
        ledger.do(Cmd("say", "system", "test"), much)
    assert (ledger.pulse.writable, ledger.pulse.failed) == (False, 1)
    ledger._engine._writer.execute("PRAGMA max_page_count = 1000000")  # type: ignore[attr-defined]
    ledger.do(Cmd("say", "system", "test"), _tell)
    assert (ledger.pulse.writable, ledger.pulse.failed) == (True, 1)
