"""Every query of every slice is understood by both databases, under the rights of the role that runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

import stationmaster
from stationmaster.clock import ManualClock
from stationmaster.inbox import actions as inbox
from stationmaster.ledger import queries
from stationmaster.ledger.ledger import Ledger, Slice
from stationmaster.ledger.queries import Queries
from stationmaster.ops.wiring import SLICES
from tests.conftest import PostgresServer
from tests.ledger import parcels

ROOT = Path(stationmaster.__file__).parent


def slices() -> Sequence[Slice]:
    found = {part.name: part for part in (*SLICES, inbox.SLICE, parcels.SLICE)}
    return tuple(found.values())


def every() -> Iterator[Queries]:
    for file in sorted(ROOT.rglob("*.sql")):
        if "-- name: " in file.read_text() and "standins" not in file.parts:
            package = ".".join(("stationmaster", *file.parent.relative_to(ROOT).parts))
            yield queries.load(package, file.name)
    yield parcels.Q


def test_there_is_something_to_explain() -> None:
    assert sum(1 for one in every() for _ in one) > 30


def test_sqlite_understands_every_query(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "ledger.db", slices(), clock=ManualClock()).close()
    connection = sqlite3.connect(tmp_path / "ledger.db")
    failed = {}
    for query in (query for one in every() for query in one):
        try:
            connection.execute(f"EXPLAIN {query.sqlite}", dict.fromkeys(query.params))
        except sqlite3.Error as error:
            failed[query.name] = str(error)
    connection.close()
    assert failed == {}


def test_postgres_understands_every_query(postgres: PostgresServer) -> None:
    settings = postgres.settings()
    Ledger.open(settings, slices(), clock=ManualClock()).close()
    failed = {}
    with psycopg.connect(settings.dsn, autocommit=True, options=f"-c search_path={settings.schema}") as connection:
        for query in (query for one in every() for query in one):
            try:
                connection.execute(f"EXPLAIN {query.postgres}".encode(), dict.fromkeys(query.params))
            except psycopg.Error as error:
                failed[query.name] = str(error)
    # The tests' own proof that guarded rows are not free to write is the one query without the right to run.
    assert set(failed) - {"force_state"} == set(), failed


@pytest.mark.parametrize("name", ["by_ref", "by_entity", "by_command", "by_action", "by_seq", "results", "refs"])
def test_the_history_is_read_by_index(tmp_path: Path, name: str) -> None:
    Ledger.open(tmp_path / "ledger.db", slices(), clock=ManualClock()).close()
    connection = sqlite3.connect(tmp_path / "ledger.db")
    query = getattr(queries.load("stationmaster.ledger", "history.sql"), name)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {query.sqlite}", dict.fromkeys(query.params)).fetchall()
    connection.close()
    assert [step[3] for step in plan if step[3].startswith("SCAN")] == []
