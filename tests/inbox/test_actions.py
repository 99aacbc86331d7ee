"""The inbox takes an outside event once, whoever brings it how often."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stationmaster.clock import ManualClock
from stationmaster.command import Cmd
from stationmaster.inbox import actions as inbox
from stationmaster.inbox.model import Taken
from stationmaster.ledger.ledger import Ledger, PostgresSettings
from tests.conftest import PostgresServer

CMD = Cmd("inbox.test", "system", "test")
BOTH = pytest.mark.parametrize("ledger", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def ledger(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Ledger]:
    database: Path | PostgresSettings = tmp_path / "ledger.db"
    if getattr(request, "param", "sqlite") == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        database = server.settings()
    with Ledger.open(database, [inbox.SLICE], clock=clock) as opened:
        yield opened


def take(ledger: Ledger, event_id: str = "e1", payload_hash: str = "h1", source: str = "gitea") -> Taken | None:
    return ledger.do(CMD, inbox.take, source=source, event_id=event_id, payload_hash=payload_hash, disposition="taken")


@BOTH
def test_a_repeat_gets_the_row_of_the_first_time(ledger: Ledger) -> None:
    assert take(ledger) is None
    again = take(ledger, payload_hash="h2")
    assert again is not None
    assert (again.payload_hash, again.disposition, again.event_id) == ("h1", "taken", "e1")
    assert ledger.read(inbox.find, "gitea", "e1") == again
    assert take(ledger, source="elsewhere") is None
    assert ledger.read(inbox.find, "gitea", "e2") is None


@BOTH
def test_at_the_same_moment_one_takes_it(ledger: Ledger) -> None:
    start = threading.Barrier(4, timeout=30)
    outcomes: list[Taken | None] = []

    def work() -> None:
        for number in range(10):
            start.wait()
            outcomes.append(take(ledger, f"e{number}"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(outcomes) == 40
    assert outcomes.count(None) == 10


def test_old_events_are_forgotten_oldest_first(ledger: Ledger, clock: ManualClock) -> None:
    for number in (1, 2, 3):
        take(ledger, f"e{number}")
        clock.advance(60)
    before = clock.now() - 90_000_000
    assert ledger.do(CMD, inbox.prune, before=before, limit=1) == 1
    assert ledger.read(inbox.find, "gitea", "e1") is None
    assert ledger.do(CMD, inbox.prune, before=before) == 1
    assert ledger.do(CMD, inbox.prune, before=before) == 0
    assert ledger.read(inbox.find, "gitea", "e3") is not None
    assert take(ledger, "e1") is None
