"""A look from outside, on both databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from stationmaster.clock import ManualClock
from stationmaster.errors import Bug, Unavailable
from stationmaster.ledger import checkup, queries
from stationmaster.ledger.ledger import Ledger, PostgresSettings
from stationmaster.ledger.tx import Reader
from tests.conftest import PostgresServer
from tests.ledger import parcels

SLICES = (parcels.SLICE,)
_Q = queries.parse("-- name: count :one\nSELECT count(*) AS commands FROM command;\n", "test")
_WRITE = queries.parse("-- name: add :run\nINSERT INTO worker VALUES ('w', 'i', 1, 1);\n", "test")


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path | PostgresSettings:
    """A database that a ledger has prepared."""
    made: Path | PostgresSettings = tmp_path / "ledger.db"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        made = server.settings()
    Ledger.open(made, SLICES, clock=ManualClock()).close()
    return made


def test_a_database_of_this_code_has_no_faults(database: Path | PostgresSettings) -> None:
    with checkup.opened(database, SLICES, ManualClock()) as found:
        assert found.installed()
        assert found.versions() == {"ledger": (1, 1), "parcels": (1, 1)}
        assert found.faults() == []
        assert found.damage() == []
        assert found.read(lambda reader: reader.one(_Q.count)) == {"commands": 0}


def test_it_reads_beside_an_open_ledger(database: Path | PostgresSettings) -> None:
    with (
        Ledger.open(database, SLICES, clock=ManualClock()),
        checkup.opened(database, SLICES, ManualClock()) as found,
    ):
        assert found.faults() == []


def test_it_lets_nothing_be_written(database: Path | PostgresSettings) -> None:
    def write(reader: Reader) -> None:
        reader.many(_WRITE.add)

    with checkup.opened(database, SLICES, ManualClock()) as found, pytest.raises(Bug):
        found.read(write)


def test_a_slice_that_the_database_lacks_has_version_zero(database: Path | PostgresSettings) -> None:
    with checkup.opened(database, (), ManualClock()) as found:
        assert found.versions() == {"ledger": (1, 1)}
        assert found.faults(), "the moves of a slice that the code does not know"


def test_an_empty_database_has_none_of_our_tables(tmp_path: Path, postgres: PostgresServer) -> None:
    empty = tmp_path / "empty.db"
    empty.touch()
    for database in (empty, postgres.settings()):
        with checkup.opened(database, SLICES, ManualClock()) as found:
            assert not found.installed()
    assert empty.stat().st_size == 0


def test_what_is_no_database_is_said(tmp_path: Path) -> None:
    for name in ("missing.db", "text.db"):
        path = tmp_path / name
        if name == "text.db":
            path.write_text("This is no database at all.\n" * 400)
        with pytest.raises(Unavailable), checkup.opened(path, SLICES, ManualClock()) as found:
            found.installed()
    assert not (tmp_path / "missing.db").exists()


def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    nowhere = PostgresSettings(f"host={tmp_path} dbname=none password=seeded-secret-4711", wait_s=1)
    with pytest.raises(Unavailable) as caught, checkup.opened(nowhere, SLICES, ManualClock()):
        pass
    assert "4711" not in str(caught.value)


def test_a_running_role_that_owns_the_tables_is_told(postgres: PostgresServer) -> None:
    two = postgres.settings()
    one = PostgresSettings(postgres.owner_dsn, schema=two.schema, writers=1, readers=1)
    Ledger.open(two, SLICES, clock=ManualClock()).close()
    for settings, owner in ((two, None), (one, "owner")):
        with checkup.opened(settings, SLICES, ManualClock()) as found:
            assert found.owner() == owner
