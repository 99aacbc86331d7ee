"""K13 on SQLite: one writer, one commit a group, and nothing acknowledged that the disk does not have."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from stationmaster.errors import Bug, Illegal, Invalid, Stale, Unavailable
from stationmaster.ledger import history
from stationmaster.ledger.ledger import Ledger, Reader, Tx
from stationmaster.ledger.sqlite import MOST_JOBS, SqliteEngine
from tests.conftest import LedgerFactory
from tests.contract.test_commands import cmd, move, post, row
from tests.ledger import parcels
from tests.ledger.parcels import PARCEL, Q


@pytest.fixture
def ledger(ledger_factory: LedgerFactory) -> Ledger:
    return ledger_factory([parcels.SLICE])


class Held:
    """Keeps the writer busy in a command until it is let go, so that what follows becomes one group."""

    def __init__(self, ledger: Ledger) -> None:
        self._entered = threading.Event()
        self._go = threading.Event()
        self.future = ledger.submit(cmd("hold"), self._body)
        assert self._entered.wait(10)

    def _body(self, tx: Tx) -> None:
        self._entered.set()
        assert self._go.wait(10)

    def let_go(self) -> None:
        self._go.set()
        self.future.result(10)


@pytest.fixture
def commits(ledger: Ledger) -> Iterator[list[str]]:
    """Collects the transaction statements of the writer."""
    seen: list[str] = []
    engine = ledger._engine
    assert isinstance(engine, SqliteEngine)
    engine._writer.set_trace_callback(lambda sql: seen.append(sql) if sql in {"BEGIN IMMEDIATE", "COMMIT"} else None)
    yield seen
    engine._writer.set_trace_callback(None)


def outcome(future: Future[Any]) -> Any:
    error = future.exception(10)
    return future.result() if error is None else type(error)


def test_what_waits_is_one_group_with_one_commit(ledger: Ledger, commits: list[str]) -> None:
    held = Held(ledger)
    waiting = [ledger.submit(cmd(), post, f"p{n}", address=f"a{n}") for n in range(20)]
    held.let_go()
    assert [outcome(future) for future in waiting] == [f"p{n}" for n in range(20)]
    assert commits == ["BEGIN IMMEDIATE", "COMMIT"] * 2


def test_a_group_is_bounded(ledger: Ledger, commits: list[str]) -> None:
    held = Held(ledger)
    waiting = [ledger.submit(cmd(), post, f"p{n}", address=f"a{n}") for n in range(MOST_JOBS + 1)]
    held.let_go()
    for future in waiting:
        future.result(10)
    assert commits == ["BEGIN IMMEDIATE", "COMMIT"] * 3


def test_jobs_of_a_group_neither_see_nor_undo_one_another(ledger: Ledger) -> None:
    ledger.do(cmd(dedupe="old"), post, "p0", address="a0")

    def fails(tx: Tx) -> None:
        post(tx, "bad")
        raise Illegal("No.", code="no")

    held = Held(ledger)
    waiting: list[Future[Any]] = [
        ledger.submit(cmd(), post, "p1", address="a1"),
        ledger.submit(cmd(), fails),
        ledger.submit(cmd("x", "r1"), fails),
        ledger.submit(cmd(dedupe="old"), post, "p0", address="a0"),
        ledger.submit(cmd(dedupe="old"), post, "p0", address="other"),
        ledger.submit(cmd(), move, "p1", "collect", 0),
        ledger.submit(cmd(), move, "p1", "collect", 0),
        ledger.submit(cmd("x", "r1"), fails),
    ]
    held.let_go()
    assert [outcome(f) for f in waiting] == ["p1", Illegal, Illegal, "p0", Stale, "travelling", Stale, Illegal]
    assert ledger.read(row, "bad") is None
    assert [e.name for e in ledger.read(history.by_entity, "parcel", "p1")] == ["post", "collect"]
    assert len([e for e in ledger.read(history.page) if e.kind == "refusal"]) == 1


def test_equal_requests_at_once_run_once(ledger: Ledger) -> None:
    held = Held(ledger)
    waiting = [ledger.submit(cmd(dedupe="r1"), post, "p1") for _ in range(5)]
    held.let_go()
    assert [outcome(future) for future in waiting] == ["p1"] * 5
    assert len(ledger.read(history.by_entity, "parcel", "p1")) == 1


def fill_disk(ledger: Ledger) -> None:
    engine = ledger._engine
    assert isinstance(engine, SqliteEngine)
    pages = engine._writer.execute("PRAGMA page_count").fetchone()[0]
    engine._writer.execute(f"PRAGMA max_page_count = {pages}")


def free_disk(ledger: Ledger) -> None:
    engine = ledger._engine
    assert isinstance(engine, SqliteEngine)
    engine._writer.execute("PRAGMA max_page_count = 1000000")


def big(tx: Tx, parcel: str) -> None:
    for number in range(40):
        tx.run(Q.add_label, parcel=parcel, name=f"{number}-{'x' * 4000}")


def test_a_full_disk_fails_the_group_and_acknowledges_nothing(ledger: Ledger) -> None:
    ledger.do(cmd(dedupe="old"), post, "p0", address="a0")

    def refused(tx: Tx) -> None:
        raise Invalid("No.")

    held = Held(ledger)
    waiting: list[Future[Any]] = [
        ledger.submit(cmd(), post, "p1", address="a1"),
        ledger.submit(cmd(dedupe="old"), post, "p0", address="a0"),
        ledger.submit(cmd(), refused),
        ledger.submit(cmd(), big, "p0"),
        ledger.submit(cmd(), post, "p2", address="a2"),
    ]
    fill_disk(ledger)
    held.let_go()
    for future in waiting:
        error = future.exception(10)
        assert isinstance(error, Unavailable)
        assert error.code == "store_unavailable"
    assert ledger.read(row, "p1") is None
    assert ledger.read(row, "p2") is None
    free_disk(ledger)
    assert ledger.do(cmd(), post, "p1", address="a1") == "p1"
    assert ledger.verify() == []


def test_a_body_that_swallows_the_disks_error_writes_nothing_after_it(ledger: Ledger) -> None:
    def stubborn(tx: Tx) -> None:
        try:
            big(tx, "p0")
        except Unavailable:
            tx.run(Q.add_label, parcel="p0", name="after")

    fill_disk(ledger)
    with pytest.raises(Unavailable):
        ledger.do(cmd(), stubborn)
    free_disk(ledger)
    assert ledger.read(lambda reader: reader.many(Q.labels, parcel="p0")) == []


def test_a_cancelled_future_is_skipped(ledger: Ledger) -> None:
    held = Held(ledger)
    waiting = ledger.submit(cmd(), post, "p1")
    assert waiting.cancel()
    held.let_go()
    ledger.do(cmd(), post, "p2")
    assert ledger.read(row, "p1") is None


def test_a_read_is_one_snapshot(ledger: Ledger) -> None:
    ledger.do(cmd(), post, "p1")

    def twice(reader: Reader) -> list[int]:
        first = reader.many(Q.all)
        other = threading.Thread(target=lambda: ledger.do(cmd(), post, "p2", address="away"))
        other.start()
        other.join(10)
        return [len(first), len(reader.many(Q.all))]

    assert ledger.read(twice) == [1, 1]
    assert len(ledger.read(lambda reader: reader.many(Q.all))) == 2


def test_a_reader_cannot_write_even_by_mistake(ledger: Ledger) -> None:
    def write(reader: Reader) -> None:
        reader._session.run(Q.add_note, {"parcel": "p1", "n": 1, "words": "x"})

    with pytest.raises((Unavailable, Bug)):
        ledger.read(write)
    assert ledger.read(lambda reader: reader.many(Q.notes, parcel="p1")) == []


def test_a_read_inside_a_command_is_a_bug(ledger: Ledger) -> None:
    with pytest.raises(Bug):
        ledger.do(cmd(), lambda tx: ledger.read(row, "p1"))


def test_a_closed_ledger_says_so_and_finishes_what_waits(ledger_factory: LedgerFactory) -> None:
    ledger = ledger_factory([parcels.SLICE])
    waiting = [ledger.submit(cmd(), post, f"p{n}", address=f"a{n}") for n in range(5)]
    ledger.close()
    assert [outcome(future) for future in waiting] == [f"p{n}" for n in range(5)]
    with pytest.raises(Unavailable):
        ledger.do(cmd(), post, "p9")
    with pytest.raises(Unavailable):
        ledger.read(row, "p1")


def test_durable_before_acknowledged(ledger: Ledger, tmp_path: Path) -> None:
    ledger.do(cmd(), post, "p1")
    other = sqlite3.connect(tmp_path / "ledger.db")
    try:
        assert other.execute("SELECT id FROM parcel").fetchall() == [("p1",)]
        assert ledger._engine._writer.execute("PRAGMA synchronous").fetchone() == (2,)  # type: ignore[attr-defined]
        assert ledger._engine._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)  # type: ignore[attr-defined]
    finally:
        other.close()


def test_the_file_is_the_owners_alone(ledger: Ledger, tmp_path: Path) -> None:
    ledger.do(cmd(), post, "p1")
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0, name


def test_a_birth_of_an_unknown_machine_is_a_bug(ledger_factory: LedgerFactory) -> None:
    bare = ledger_factory([], name="bare")
    with pytest.raises(Bug):
        bare.do(cmd(), lambda tx: tx.born(PARCEL, "p1", "post"))


def test_a_folder_that_is_not_there_is_unavailable(tmp_path: Path, ledger_factory: LedgerFactory) -> None:
    with pytest.raises(Unavailable):
        ledger_factory([], name="missing/folder")
    (tmp_path / "junk.db").write_bytes(b"not a database, surely" * 100)
    with pytest.raises(Unavailable):
        ledger_factory([], name="junk")
