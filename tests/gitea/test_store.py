"""What is asked at every delivery and claim is answered by an index, however many rows there are (section 5, §12)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from stationmaster.clock import ManualClock
from stationmaster.ledger import queries
from stationmaster.ledger.ledger import Ledger, PostgresSettings
from stationmaster.ledger.queries import Query
from tests.conftest import PostgresServer
from tests.gitea.rig import SLICES

# Lists of everything, by their nature; each is bounded or read by people only.
WHOLE = {"repositories"}
EVERY = [
    query
    for package in ("gitea", "jobs", "inbox")
    for query in queries.load(f"stationmaster.{package}")
    if query.name not in WHOLE and not query.sqlite.upper().startswith("INSERT")
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "ledger.db"
    Ledger.open(path, SLICES, clock=ManualClock()).close()
    return path


@pytest.fixture(scope="module")
def server(postgres: PostgresServer) -> Iterator[psycopg.Connection[tuple[str]]]:
    settings: PostgresSettings = postgres.settings()
    Ledger.open(settings, SLICES, clock=ManualClock()).close()
    with psycopg.connect(settings.dsn, autocommit=True, options=f"-c search_path={settings.schema}") as connection:
        # Empty tables are read whole whatever indexes they have; without that choice the plan shows what is possible.
        connection.execute("SET enable_seqscan = off")
        yield connection


def test_there_is_something_to_plan() -> None:
    assert len(EVERY) > 40
    names = {query.name for query in EVERY}
    assert {"candidate", "ready_repositories", "of_subject", "by_id"} <= names


@pytest.mark.parametrize("query", EVERY, ids=lambda query: query.name)
def test_sqlite_finds_it_by_an_index(file: Path, query: Query) -> None:
    connection = sqlite3.connect(file)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {query.sqlite}", dict.fromkeys(query.params)).fetchall()
    connection.close()
    assert [step[3] for step in plan if step[3].startswith("SCAN") and " USING " not in step[3]] == []


@pytest.mark.parametrize("query", EVERY, ids=lambda query: query.name)
def test_postgres_finds_it_by_an_index(server: psycopg.Connection[tuple[str]], query: Query) -> None:
    plan = server.execute(f"EXPLAIN {query.postgres}".encode(), dict.fromkeys(query.params, "1")).fetchall()
    assert [row[0] for row in plan if "Seq Scan" in row[0]] == []
