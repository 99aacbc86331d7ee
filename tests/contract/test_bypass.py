"""K2 and K9: what is not a move inside an open command is refused by the database itself, at any prompt."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stationmaster.ledger import history, lease, receipts
from stationmaster.ledger.ledger import Ledger, Tx
from stationmaster.ledger.sqlite_guards import NEXT
from tests.conftest import LedgerFactory
from tests.contract import bypasses
from tests.contract.bypasses import Bypass
from tests.contract.test_commands import cmd, move, post
from tests.ledger import parcels


def fill(ledger: Ledger) -> None:
    """Puts in a row of everything that can be attacked."""

    def intents(tx: Tx) -> None:
        tx.intent("road.send", subject="p1", refs={"parcel": "p1"})
        tx.result(tx.intent("road.send", subject="p2"), "done")

    def accept(tx: Tx) -> bool:
        receipts.pending(tx)
        return True

    def holding(tx: Tx, key: str) -> Any:
        return lease.acquire(tx, kind="road", key=key, owner="w", incarnation="i1", subject="p1", ttl_s=60)

    ledger.do(cmd(task="t1"), post, "p1", berth="b1")
    ledger.do(cmd(task="t2"), post, "p2", address="away", berth="b2")
    ledger.do(cmd(task="t3"), post, "p3", address="away")
    ledger.do(cmd("parcel.collect", "r1"), move, "p2", "collect", 0)
    ledger.do(cmd("parcel.abort", "r2"), accept)
    ledger.do(cmd("intents"), intents)
    ledger.do(cmd("lease"), lease.release, ledger.do(cmd("lease"), holding, "1"))
    ledger.do(cmd("lease"), holding, "1")


def dump(connection: sqlite3.Connection) -> dict[str, list[Any]]:
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in names}


def attempt(connection: sqlite3.Connection, bypass: Bypass) -> None:
    """Tries a bypass in one transaction and commits it; the caller expects an error."""
    words = {"next": NEXT, "sealed": "(SELECT min(seq) FROM command)", "open": "(SELECT max(seq) FROM command)"}
    connection.execute("BEGIN")
    try:
        for statement in bypass.statements:
            connection.execute(statement.format(**words))
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@pytest.fixture
def database(ledger_factory: LedgerFactory, tmp_path: Path) -> Path:
    ledger = ledger_factory([parcels.SLICE])
    fill(ledger)
    ledger.close()
    return tmp_path / "ledger.db"


@pytest.fixture(params=["product", "prompt"])
def connection(request: pytest.FixtureRequest, database: Path) -> Iterator[sqlite3.Connection]:
    """Opens the file with the product's pragmas, and as a plain prompt would."""
    made = sqlite3.connect(database, isolation_level=None)
    on = "ON" if request.param == "product" else "OFF"
    made.execute(f"PRAGMA foreign_keys = {on}")
    made.execute(f"PRAGMA recursive_triggers = {on}")
    yield made
    made.close()


@pytest.mark.parametrize("bypass", bypasses.ALL, ids=str)
def test_a_bypass_is_refused(connection: sqlite3.Connection, bypass: Bypass) -> None:
    before = dump(connection)
    with pytest.raises(sqlite3.IntegrityError):
        attempt(connection, bypass)
    assert dump(connection) == before


@pytest.mark.parametrize("bypass", [bypass for bypass in bypasses.ALL if not bypass.doubly], ids=str)
def test_without_the_guards_the_same_bypass_succeeds(database: Path, bypass: Bypass) -> None:
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        attempt(connection, bypass)
    finally:
        connection.close()


def test_checks_off_opens_no_way(database: Path) -> None:
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("UPDATE parcel SET state = 'nowhere' WHERE id = 'p1'")
    finally:
        connection.close()


def test_a_legal_move_at_a_prompt_leaves_its_trace(ledger_factory: LedgerFactory, database: Path) -> None:
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        attempt(connection, Bypass("", (bypasses.OPEN, f"UPDATE parcel SET {bypasses.COLLECT} WHERE id = 'p1'")))
    finally:
        connection.close()
    ledger = ledger_factory([parcels.SLICE])
    assert [(e.actor, e.name) for e in ledger.read(history.by_entity, "parcel", "p1")][-1] == ("me", "collect")
    # Guards do not authenticate; doctor shows a command that the product would have sealed.
    assert any("never sealed" in line for line in ledger.verify())
