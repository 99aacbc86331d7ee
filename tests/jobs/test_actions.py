"""Runs and their events: opened before the agent knows, ended once, heard in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stationmaster.clock import ManualClock
from stationmaster.command import Cmd
from stationmaster.errors import Bug, Stale
from stationmaster.jobs import actions as jobs
from stationmaster.jobs.machine import RUN
from stationmaster.jobs.model import End, Run, RunEvent
from stationmaster.ledger import history
from stationmaster.ledger.ledger import Ledger, PostgresSettings
from tests.conftest import PostgresServer

CMD = Cmd("run.test", "system", "test")
BOTH = pytest.mark.parametrize("ledger", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def ledger(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Ledger]:
    database: Path | PostgresSettings = tmp_path / "ledger.db"
    if getattr(request, "param", "sqlite") == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        database = server.settings()
    with Ledger.open(database, [jobs.SLICE], clock=clock) as opened:
        yield opened


def opened(ledger: Ledger, run_id: str = "run-1", *, subject: str = "task-1", worker: str = "w1") -> Run:
    ledger.do(CMD, jobs.open_run, run_id, agent="codex_app", subject=subject, worker_id=worker)
    run = ledger.read(jobs.find, run_id)
    assert run is not None
    return run


@BOTH
def test_a_run_lives_once(ledger: Ledger) -> None:  # GW-R-040
    run = opened(ledger)
    assert (run.state, run.external_id, run.thread_id, run.ended_at, run.error_code) == (
        "started",
        None,
        None,
        None,
        None,
    )
    ledger.do(CMD, jobs.bind, run, external_id="turn-1", thread_id="thread-1")
    assert ledger.do(CMD, jobs.end, run.id, "fail", error_code="turn_failed") is True
    ended = ledger.read(jobs.find, run.id)
    assert ended is not None
    assert (ended.state, ended.external_id, ended.thread_id, ended.error_code) == (
        "failed",
        "turn-1",
        "thread-1",
        "turn_failed",
    )
    assert ended.ended_at is not None
    assert ended.ended_at > ended.started_at
    assert ledger.do(CMD, jobs.end, run.id, "complete") is False
    assert ledger.do(CMD, jobs.end, "nobody", "complete") is False
    assert [entry.name for entry in ledger.read(history.by_entity, "run", run.id)] == ["open", "bind", "fail"]


@pytest.mark.parametrize(
    ("verb", "state"),
    [("complete", "completed"), ("interrupt", "interrupted"), ("fail", "failed"), ("cancel", "cancelled")],
)
def test_each_end_has_its_state_and_no_way_out(ledger: Ledger, verb: End, state: str) -> None:  # GW-R-040
    opened(ledger)
    ledger.do(CMD, jobs.end, "run-1", verb)
    run = ledger.read(jobs.find, "run-1")
    assert run is not None
    assert run.state == state
    assert state in RUN.terminal


def test_binding_needs_what_was_read(ledger: Ledger) -> None:
    run = opened(ledger)
    ledger.do(CMD, jobs.end, run.id, "cancel")
    with pytest.raises(Stale):
        ledger.do(CMD, jobs.bind, run, external_id="late", thread_id="t")
    with pytest.raises(Stale):
        opened(ledger)


def test_runs_are_found_by_subject_and_by_worker(ledger: Ledger) -> None:
    for number in (1, 2, 3):
        opened(ledger, f"run-{number}", subject="task-1" if number < 3 else "task-2", worker=f"w{number % 2}")
    assert [run.id for run in ledger.read(jobs.of_subject, "task-1")] == ["run-1", "run-2"]
    assert [run.id for run in ledger.read(jobs.open_of_worker, "w1")] == ["run-1", "run-3"]
    ledger.do(CMD, jobs.end, "run-1", "complete")
    assert [run.id for run in ledger.read(jobs.open_of_worker, "w1")] == ["run-3"]


@BOTH
def test_events_are_kept_in_order_and_once(ledger: Ledger) -> None:  # GW-R-149
    opened(ledger)
    said = [RunEvent(seq, 10 * seq, "item", f'{{"n":{seq}}}') for seq in (1, 2, 3)]
    ledger.hot(jobs.append, "run-1", said[:2])
    ledger.hot(jobs.append, "run-1", [RunEvent(2, 99, "item", "{}"), said[2]])  # a sequence number heard before
    assert ledger.read(jobs.events, "run-1") == said
    assert ledger.read(jobs.events, "run-1", after=1, limit=1) == [said[1]]
    assert (ledger.read(jobs.last_event, "run-1"), ledger.read(jobs.last_event, "run-2")) == (3, 0)
    assert [entry.name for entry in ledger.read(history.page, limit=100)] == ["run.test", "open"]


def test_a_run_is_no_hot_row(ledger: Ledger) -> None:
    opened(ledger)
    with pytest.raises((Bug, AttributeError)):
        ledger.hot(jobs.end, "run-1", "complete")  # type: ignore[arg-type]
    run = ledger.read(jobs.find, "run-1")
    assert run is not None
    assert run.state == "started"
