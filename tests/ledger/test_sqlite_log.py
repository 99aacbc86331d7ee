"""The write-ahead log beside readers that never rest: nobody waits in vain, and the log does not grow for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stationmaster.clock import ManualClock
from stationmaster.jobs import actions as jobs
from stationmaster.jobs.model import RunEvent
from stationmaster.ledger import sqlite
from stationmaster.ledger.ledger import Ledger, Reader
from tests.support import eventually

_LIMIT = 300_000


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    monkeypatch.setattr(sqlite, "LOG_BYTES", _LIMIT)
    monkeypatch.setattr(sqlite, "_LOG_PAUSE_S", 0.0)
    with Ledger.open(tmp_path / "ledger.db", (jobs.SLICE,), clock=ManualClock()) as made:
        yield made


def _stream(ledger: Ledger, run_id: str, chunks: int, failures: list[BaseException]) -> None:
    try:
        for chunk in range(chunks):
            events = [RunEvent(chunk * 64 + n, 1, "agent_message", f'{{"text":"{"x" * 200}"}}') for n in range(64)]
            ledger.hot(jobs.append, run_id, events)
    except BaseException as error:  # noqa: BLE001 - shown by the assertion of the test
        failures.append(error)


def _twenty_streams(ledger: Ledger, chunks: int = 3) -> list[BaseException]:
    failures: list[BaseException] = []
    runs = [f"run_{number}" for number in range(20)]
    threads = [threading.Thread(target=_stream, args=(ledger, run, chunks, failures)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return failures


def test_bug_9_twenty_runs_stream_beside_a_long_reader_and_the_log_shrinks_once_it_is_over(
    ledger: Ledger, tmp_path: Path
) -> None:
    # bug 9
    log = tmp_path / "ledger.db-wal"
    reading, over = threading.Event(), threading.Event()
    seen: list[int] = []

    def look(reader: Reader) -> None:
        seen.append(jobs.kept_events(reader, "run_1"))
        reading.set()
        over.wait(60)
        seen.append(jobs.kept_events(reader, "run_1"))

    long_reader = threading.Thread(target=ledger.read, args=(look,))
    long_reader.start()
    assert reading.wait(20)
    assert _twenty_streams(ledger) == []
    grown = log.stat().st_size
    assert grown > _LIMIT  # what a reader still needs cannot go
    over.set()
    long_reader.join(20)
    assert seen == [0, 0]  # one snapshot to its end
    _stream(ledger, "run_after", 1, [])
    eventually(lambda: log.stat().st_size < _LIMIT)
    assert ledger.read(jobs.kept_events, "run_19") == 3 * 64


def test_bug_9_readers_that_follow_one_another_without_a_gap_do_not_keep_the_log_growing(
    ledger: Ledger, tmp_path: Path
) -> None:
    # bug 9: SQLite alone never finds a moment without a reader
    log = tmp_path / "ledger.db-wal"
    stop, sizes = threading.Event(), []

    def look(reader: Reader) -> None:
        jobs.kept_events(reader, "run_1")
        sizes.append(log.stat().st_size)

    def readers() -> None:
        while not stop.is_set():
            ledger.read(look)

    pool = [threading.Thread(target=readers) for _ in range(2)]
    for thread in pool:
        thread.start()
    failures = _twenty_streams(ledger, chunks=3)
    stop.set()
    for thread in pool:
        thread.join(20)
    assert failures == []
    # One group more than the limit may be under way: 20 streams of 64 events are some 400 kB.
    assert max(sizes) < 4 * _LIMIT
