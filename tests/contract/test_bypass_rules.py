"""Each single rule of the guards is needed: without it alone, one of the bypasses comes through."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from stationmaster.clock import ManualClock
from stationmaster.ledger import migrate, sqlite_guards
from stationmaster.ledger.guards import Refusal
from stationmaster.ledger.ledger import Ledger
from stationmaster.ledger.slices import KERNEL
from stationmaster.ledger.sqlite_catalog import SqliteCatalog
from tests.contract import bypasses
from tests.contract.bypasses import Bypass
from tests.contract.test_bypass import SqlitePrompt, fill, words
from tests.ledger import parcels

Rule = tuple[str, str, str]

# A second rule refuses what they refuse; they stay, for the second one has reasons of its own that may go.
SECOND = {
    ("parcel", "INSERT", "unique: parcel(id)"),  # the journal holds that the id was born
    ("parcel", "INSERT", "unique: parcel_on_road"),  # no parcel is born on the road
    ("ref", "INSERT", "unique: ref(kind, value, seq)"),  # a row that is all key can only replace its equal
}

_whole_guard = sqlite_guards._guard


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    with Ledger.open(path, [parcels.SLICE], clock=ManualClock()) as ledger:
        fill(ledger)
    return path


def wanted(path: Path) -> dict[str, str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return SqliteCatalog(connection).wanted_guards(migrate.all_machines((KERNEL, parcels.SLICE)))


def rules(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Rule]:
    met: list[Rule] = []

    def noted(table: str, event: str, refusals: list[Refusal]) -> str:
        met.extend((table, event, refusal.sentence) for refusal in refusals)
        return _whole_guard(table, event, refusals)

    monkeypatch.setattr(sqlite_guards, "_guard", noted)
    wanted(path)
    return met


def without(path: Path, rule: Rule, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a copy of the database whose guards lack one rule."""

    def lacking(table: str, event: str, refusals: list[Refusal]) -> str:
        left = [refusal for refusal in refusals if (table, event, refusal.sentence) != rule]
        return _whole_guard(table, event, left or [Refusal("nothing", "FALSE")])

    monkeypatch.setattr(sqlite_guards, "_guard", lacking)
    name = f"guard_{rule[0]}_{rule[1].lower()}"
    text = wanted(path)[name]
    copy = path.with_name("lacking.db")
    shutil.copy(path, copy)
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        connection.execute(f"DROP TRIGGER {name}")
        connection.execute(text)
    return copy


def comes_through(prompt: SqlitePrompt) -> Iterator[Bypass]:
    for bypass in bypasses.ALL:
        if bypass.only == "postgres":
            continue
        prompt.execute("BEGIN")
        with contextlib.suppress(sqlite3.Error):
            for statement in bypass.statements:
                prompt.execute(statement.format(**words(prompt)))
            yield bypass
        with contextlib.suppress(sqlite3.OperationalError):
            prompt.execute("ROLLBACK")


def test_no_rule_can_go(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needless = set()
    every = rules(filled, monkeypatch)
    assert len(every) > 50
    for rule in every:
        prompt = SqlitePrompt(without(filled, rule, monkeypatch), pragmas=False)
        if next(comes_through(prompt), None) is None:
            needless.add(rule)
        prompt.close()
    assert needless == SECOND
