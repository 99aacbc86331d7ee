"""Payloads go when their days are over; what a task was, did and proved stays (K9)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stationmaster.clock import ManualClock
from stationmaster.control import audit
from stationmaster.control.dispatch import Dispatch
from stationmaster.control.proof import Proof
from stationmaster.errors import Busy
from stationmaster.gitea import actions, retention, store
from stationmaster.gitea.duty import Duty
from stationmaster.gitea.machine import COMMENT
from stationmaster.gitea.retention import Keep, Retention
from stationmaster.jobs import actions as jobs
from stationmaster.jobs.model import RunEvent
from stationmaster.ledger import history
from stationmaster.ledger.tx import Tx
from tests.gitea.rig import Rig, database, told

_DAY = 86_400
THREAD = "019a0000-0000-7000-8000-0000000000{:02}"


@dataclass
class House:
    """A ledger, the duty, and the folders of its worker."""

    rig: Rig
    retention: Retention
    folder: Path

    def done(self, number: int, events: int = 3) -> tuple[str, str]:
        """Lets a task be asked, run and answered; returns it and its run."""
        rig, run_id = self.rig, f"run_{number}"
        task_id = rig.ask(number, repo=(100 + number, "acme", f"parcel{number}"))
        lease = rig.claimed(task_id)
        rig.do(actions.open_turn, task_id, lease, run_id, "home", kind="normal", head=None)
        rig.advance(task_id, "start", lease)
        rig.do(actions.bind_thread, rig.task(task_id), THREAD.format(number), "tools", why=None)
        chunk = [RunEvent(seq, rig.clock.now(), "agent_message", '{"text":"hm"}') for seq in range(1, events + 1)]
        rig.ledger.hot(jobs.append, run_id, chunk)
        key = actions.final_key(task_id, run_id)
        rig.do(actions.intend_comment, rig.task(task_id), key, "mcp_final", "Fixed.", run_id=run_id)
        rig.do(_confirm, key)
        rig.do(actions.end_turn, rig.task(task_id), run_id, "complete", None, "Fixed it.")
        rig.advance(task_id, "verify", lease)
        rig.leave(task_id, "confirm", lease)
        for name in ("codex.log", "nested/lib/.git/HEAD", "work/left.txt"):
            path = self.folder / "runs" / run_id / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x" * 100)
        self.rollout(task_id, THREAD.format(number))
        return task_id, run_id

    def rollout(self, task_id: str, thread: str) -> Path:
        """Leaves a conversation on disk, as old as the clock says."""
        home = self.folder / "codex" / "repos" / self.rig.task(task_id).repository_id
        path = home / "sessions/2027/01/15" / f"rollout-2027-01-15T08-00-00-{thread}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n")
        now = self.rig.clock.now() / 1_000_000
        os.utime(path, (now, now))
        return path

    async def all(self) -> None:
        """Ticks until nothing is left to do."""
        while await self.retention.tick(0):
            pass

    def rollouts(self) -> set[str]:
        """Returns the conversations on disk."""
        return {path.stem[-36:] for path in self.folder.rglob("rollout-*")}


def _chain(rig: Rig, task_id: str) -> list[tuple[str, str, str]]:
    """Returns the proof chain that `audit --task` prints: from history alone."""
    told_by_now = Proof()
    events, following = rig.ledger.read(audit.page, audit._Filter(audit.Query(task_id=task_id)), 0, 1000)
    assert following is None
    for event in events:
        told_by_now.add(event)
    return told_by_now.lines()


def _confirm(tx: Tx, key: str) -> None:
    row = store.comment(tx, key)
    assert row is not None
    tx.move(COMMENT, key, "confirm", rev=row.rev, native_id=77, updated_at=tx.now)


@pytest.fixture
async def house(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[House]:
    """On SQLite, but for the test that asks for PostgreSQL as well."""
    rig = Rig.on(database(request, getattr(request, "param", "sqlite")), clock)
    port = Dispatch(rig.ledger, threads=1)
    folders = {"runs": tmp_path / "runs", "codex_homes": tmp_path / "codex/repos", "scratch": tmp_path / "scratch"}
    yield House(rig, retention.made(port, Keep(), **folders), tmp_path)
    port.close()
    rig.close()


async def test_only_what_is_past_its_time_and_ended_is_forgotten(house: House) -> None:  # GW-R-027
    rig = house.rig
    ended, under_way = rig.ask(1), rig.ask(2)
    rig.take(told(body="no word to anybody"), "ignored")
    rig.step(ended, "cancel")
    assert await house.retention.tick(0) == 0
    rig.clock.advance(29 * _DAY)
    rig.ask(3, delivery="young")
    rig.clock.advance(_DAY + 1)
    await house.all()
    assert sorted(rig.rows("SELECT task_id FROM gitea_delivery")) == sorted(
        [(under_way,), *rig.rows("SELECT id FROM gitea_task WHERE delivery_id = 'young'")]
    )
    assert (rig.count("gitea_task"), rig.count("gitea_trigger")) == (3, 3)
    assert rig.rows("SELECT event_id FROM inbox") == [("default:young",)]


async def test_many_are_forgotten_in_small_commands(house: House) -> None:  # GW-R-027, K1
    rig = house.rig
    for number in range(130):
        rig.take(told(body="no word to anybody"), f"d{number}")
    rig.clock.advance(31 * _DAY)
    await house.all()
    assert (rig.count("gitea_delivery"), rig.count("inbox")) == (0, 0)
    named = [entry for entry in rig.ledger.read(history.page, limit=5000) if entry.name == "retention.deliveries"]
    assert len(named) == 3  # a look that finds nothing leaves nothing
    assert await house.retention.tick(0) == 0


@pytest.mark.parametrize("house", ["sqlite", "postgres"], indirect=True)
async def test_each_kind_goes_at_its_own_time_and_the_proof_stays(house: House) -> None:
    # K9, GW-R-229
    rig = house.rig
    task_id, run_id = house.done(1, events=400)
    waiting = rig.waiting(2, repo=(102, "acme", "parcel2"))
    kept = house.rollout(waiting, THREAD.format(99))
    rig.do(actions.bind_thread, rig.task(waiting), THREAD.format(99), "tools", why=None)
    unknown = house.folder / "runs" / "run_of_nobody" / "codex.log"
    unknown.parent.mkdir()
    unknown.write_text("whose?")
    left = house.folder / "scratch" / "probe"
    left.mkdir(parents=True)
    now = rig.clock.now() / 1_000_000
    os.utime(left, (now, now))
    before = _chain(rig, task_id)
    assert {name for name, _, _ in before} >= {"delivery", "task", "session", "turn ref", "comment"}

    rig.clock.advance(2 * _DAY)
    await house.all()
    run = house.folder / "runs" / run_id
    assert not (run / "work").exists()
    assert not left.exists()
    assert (run / "nested/lib/.git/HEAD").exists()
    assert rig.count("run_event") == 400
    rig.clock.advance(29 * _DAY)
    await house.all()
    assert rig.count("run_event") == 0
    assert rig.ledger.read(store.instruction, task_id) != ""
    rig.clock.advance(60 * _DAY)
    await house.all()
    assert not run.exists()
    assert THREAD.format(1) in house.rollouts()
    rig.clock.advance(90 * _DAY)
    await house.all()
    assert rig.rows("SELECT task_id FROM gitea_instruction") == [(waiting,)]
    assert (rig.count("gitea_final_text"), rig.count("gitea_comment_body")) == (0, 0)
    assert house.rollouts() == {THREAD.format(99)}  # an open task's conversation can always be resumed
    assert kept.exists()
    assert unknown.exists()
    assert _chain(rig, task_id) == before
    assert rig.state(task_id) == "succeeded"
    assert rig.count("gitea_trigger") == 2
    assert [fault for fault in rig.ledger.verify() if "owns the tables" not in fault] == []


async def test_a_follow_up_stays_as_a_row_without_its_words(house: House) -> None:  # K9
    rig = house.rig
    task_id = rig.waiting(4)
    rig.take(told(number=4, comment_id=900_001, body="@codebot yes, do it"))
    rig.step(task_id, "cancel")
    rig.clock.advance(181 * _DAY)
    await house.all()
    assert rig.rows("SELECT body, comment_id FROM gitea_follow_up") == [("", 900_001)]
    assert rig.ledger.read(store.instruction, task_id) == ""


async def test_a_dry_run_tells_and_changes_nothing(house: House) -> None:
    rig = house.rig
    task_id, run_id = house.done(1)
    rig.clock.advance(181 * _DAY)
    last = rig.rows("SELECT max(seq) FROM command")
    told_of = await house.retention.everything(dry_run=True)
    assert told_of == {"deliveries": 2, "events": 3, "payloads": 3, "files": 2, "fileBytes": 303}
    assert rig.rows("SELECT max(seq) FROM command") == last
    assert (house.folder / "runs" / run_id).exists()
    done = await house.retention.everything(dry_run=False)
    assert done == {"deliveries": 2, "events": 3, "payloads": 3, "files": 2}
    assert sum((await house.retention.everything(dry_run=True)).values()) == 0
    assert rig.state(task_id) == "succeeded"


async def test_one_at_a_time_has_the_duty(house: House) -> None:
    rig = house.rig
    house.done(1)
    rig.clock.advance(31 * _DAY)
    first = Duty(house.retention.port, "retention", owner="one", incarnation="one_1", ttl_s=60)
    assert await first.on()
    other = Retention(house.retention.port, house.retention.keep)
    assert await other.tick(0) == 0
    with pytest.raises(Busy):
        await other.everything(dry_run=False)
    await first.leave()
    await other.everything(dry_run=False)
    assert rig.count("run_event") == 0


async def test_what_cannot_be_removed_is_left_without_a_rush(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = house.rig
    _, run_id = house.done(1)
    run = house.folder / "runs" / run_id
    rig.clock.advance(91 * _DAY)
    monkeypatch.setattr("stationmaster.gitea.retention_disk._remove", lambda path: False)
    await house.all()
    assert run.exists()
    assert await house.retention.tick(0) == 0
