"""K2 and the schema conventions over time: install, migrate forward, refuse what is newer or was changed by hand."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stationmaster.clock import Clock, ManualClock, SystemClock
from stationmaster.command import Cmd
from stationmaster.errors import Bug, Invalid, Unavailable
from stationmaster.ledger import history, migrate
from stationmaster.ledger.ledger import Ledger, PostgresSettings, Slice, Tx, restore_guards
from stationmaster.ledger.queries import parse
from stationmaster.machine import Machine
from tests.conftest import PostgresServer
from tests.contract.test_bypass import PostgresPrompt, SqlitePrompt

FIRST = """
CREATE TABLE crate (
  id TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  rev INT64 NOT NULL,
  verb TEXT NOT NULL,
  command INT64 NOT NULL REFERENCES command (seq)
);
"""
SECOND = FIRST.replace("(seq)\n", "(seq),\n  weight INT64 NOT NULL DEFAULT 0\n")
STEP = """
-- Crates are weighed.
ALTER TABLE crate ADD COLUMN weight INT64 NOT NULL DEFAULT 0;
INSERT INTO edge VALUES ('crate', 'closed', 'weigh', 'closed');
"""
REBUILT_STATE = "state TEXT NOT NULL CHECK (state IN ('burnt', 'closed', 'rotten'))"
REBUILD = """
INSERT INTO crate_2 SELECT id, state, rev, verb, command FROM crate;
DROP TABLE crate;
ALTER TABLE crate_2 RENAME TO crate;
INSERT INTO edge VALUES ('crate', 'closed', 'forget', 'rotten');
"""
CRATE_1 = Machine("crate", (("", "make", "closed"), ("closed", "burn", "burnt")), terminal=frozenset({"burnt"}))
CRATE_2 = Machine(
    "crate",
    (*CRATE_1.edges, ("closed", "weigh", "closed")),
    terminal=CRATE_1.terminal,
    moved=frozenset({"weight"}),
)
Q = parse("-- name: crates :many\nSELECT id, state, rev, weight FROM crate ORDER BY id;\n", "crates")


class Crates:
    """A slice whose package is written to disk, so that its versions can be told apart."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def version(self, number: int, schema: str, machine: Machine, steps: dict[str, str] | None = None) -> Slice:
        package = self._folder / f"crates_v{number}"
        (package / "migrations").mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "schema.sql").write_text(schema)
        for name, text in (steps or {}).items():
            (package / "migrations" / name).write_text(text)
        return Slice("crates", package.name, machines=(machine,))


@pytest.fixture
def crates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crates]:
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield Crates(folder)
    for name in [name for name in sys.modules if name.startswith("crates_v")]:
        del sys.modules[name]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path | PostgresSettings:
    if request.param == "sqlite":
        return tmp_path / "ledger.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.settings()


def opened(database: Path | PostgresSettings, *slices: Slice, clock: Clock | None = None) -> Ledger:
    return Ledger.open(database, slices, clock=clock or ManualClock())


def at_a_prompt(database: Path | PostgresSettings, *statements: str) -> None:
    prompt: Any
    if isinstance(database, Path):
        prompt = SqlitePrompt(database, pragmas=False)
    else:
        prompt = PostgresPrompt(database.owner_dsn or "", database.schema)
    for statement in statements:
        prompt.execute(statement)
    prompt.close()


def make(tx: Tx, crate: str) -> None:
    tx.born(CRATE_1, crate, "make")


def weigh(tx: Tx, crate: str) -> None:
    tx.move(CRATE_2, crate, "weigh", rev=0, weight=7)


CMD = Cmd("crate.test", "system", "test")


def test_a_migration_keeps_rows_and_brings_edges(crates: Crates, database: Path | PostgresSettings) -> None:
    with opened(database, crates.version(1, FIRST, CRATE_1)) as ledger:
        ledger.do(CMD, make, "c1")
    with opened(database, crates.version(2, SECOND, CRATE_2, {"0002_weigh.sql": STEP})) as ledger:
        ledger.do(CMD, weigh, "c1")
        assert ledger.read(lambda reader: reader.many(Q.crates)) == [
            {"id": "c1", "state": "closed", "rev": 1, "weight": 7}
        ]
        assert [e.name for e in ledger.read(history.by_entity, "crate", "c1")] == ["make", "weigh"]
        assert ledger.verify() == []


def test_a_fresh_database_equals_a_migrated_one(crates: Crates, tmp_path: Path) -> None:
    new = crates.version(2, SECOND, CRATE_2, {"0002_weigh.sql": STEP})
    opened(tmp_path / "old.db", crates.version(1, FIRST, CRATE_1)).close()
    opened(tmp_path / "old.db", new).close()
    opened(tmp_path / "new.db", new).close()
    shapes = []
    for name in ("old.db", "new.db"):
        prompt = SqlitePrompt(tmp_path / name, pragmas=False)
        shapes.append((prompt.execute("PRAGMA table_info(crate)"), prompt.execute("SELECT * FROM edge ORDER BY 1,2,3")))
        prompt.close()
    assert shapes[0] == shapes[1]


def test_a_new_state_rebuilds_the_table(crates: Crates, tmp_path: Path) -> None:
    rotten = Machine(
        "crate",
        (*CRATE_1.edges, ("closed", "forget", "rotten")),
        terminal=frozenset({"burnt", "rotten"}),
    )
    step = FIRST.replace("TABLE crate", "TABLE crate_2").replace("state TEXT NOT NULL", REBUILT_STATE) + REBUILD
    with opened(tmp_path / "ledger.db", crates.version(1, FIRST, CRATE_1)) as ledger:
        ledger.do(CMD, make, "c1")
    with opened(tmp_path / "ledger.db", crates.version(2, FIRST, rotten, {"0002_rot.sql": step})) as ledger:
        assert ledger.do(CMD, lambda tx: tx.move(rotten, "c1", "forget", rev=0)) == "rotten"
        assert ledger.verify() == []


def test_guards_hold_during_and_after_a_migration(crates: Crates, tmp_path: Path) -> None:
    opened(tmp_path / "ledger.db", crates.version(1, FIRST, CRATE_1)).close()
    broken = crates.version(2, SECOND, CRATE_2, {"0002_weigh.sql": STEP + "CREATE TABLE oops (;"})
    with pytest.raises(Unavailable):
        opened(tmp_path / "ledger.db", broken)
    with opened(tmp_path / "ledger.db", crates.version(3, FIRST, CRATE_1)) as ledger:
        assert ledger.verify() == []


def test_a_newer_database_is_refused_with_a_sentence(crates: Crates, database: Path | PostgresSettings) -> None:
    opened(database, crates.version(2, SECOND, CRATE_2, {"0002_weigh.sql": STEP})).close()
    with pytest.raises(Invalid, match="newer than this program: crates is at version 2") as refused:
        opened(database, crates.version(1, FIRST, CRATE_1))
    assert refused.value.code == "database_newer"


def test_edges_that_no_migration_brought_are_refused(crates: Crates, database: Path | PostgresSettings) -> None:
    opened(database, crates.version(1, FIRST, CRATE_1)).close()
    with pytest.raises(Invalid, match="only the program has crate: closed --weigh--> closed") as refused:
        opened(database, crates.version(2, FIRST.replace("(seq)", "(seq), weight INT64"), CRATE_2))
    assert refused.value.code == "edges_differ"


def test_tables_of_another_build_are_refused(crates: Crates, database: Path | PostgresSettings) -> None:
    opened(database, crates.version(1, FIRST, CRATE_1)).close()
    other = FIRST.replace("(seq)\n", "(seq),\n  weight INT64\n")
    with pytest.raises(Invalid, match="another build of this program: The table crate has no column weight") as refused:
        opened(database, crates.version(2, other, CRATE_1))
    assert refused.value.code == "schema_differs"


def test_guards_changed_by_hand_are_refused_and_can_be_restored(
    crates: Crates, database: Path | PostgresSettings
) -> None:
    part = crates.version(1, FIRST, CRATE_1)
    opened(database, part).close()
    name = "TRIGGER guard_crate_update" if isinstance(database, Path) else "FUNCTION guard_crate_update CASCADE"
    at_a_prompt(database, f"DROP {name}")
    with pytest.raises(Invalid, match="guard_crate_update") as refused:
        opened(database, part)
    assert refused.value.code == "guards_changed"
    restore_guards(database, [part])
    with opened(database, part) as ledger:
        assert ledger.verify() == []


def test_doctor_names_what_differs(crates: Crates, database: Path | PostgresSettings) -> None:
    with opened(database, crates.version(1, FIRST, CRATE_1)) as ledger:
        if isinstance(database, Path):
            at_a_prompt(
                database,
                "DROP TRIGGER guard_edge_insert",
                "CREATE TRIGGER extra AFTER INSERT ON ref BEGIN SELECT 1; END",
            )
        else:
            at_a_prompt(database, "ALTER TABLE edge DISABLE TRIGGER guard_edge_insert")
        at_a_prompt(database, "INSERT INTO edge VALUES ('crate', 'burnt', 'raise', 'closed')")
        found = "\n".join(ledger.verify())
    assert "only the database has crate: burnt --raise--> closed" in found
    assert "guard_edge_insert" in found
    assert ("extra is not ours" in found) == isinstance(database, Path)


def test_new_guards_of_a_newer_program_replace_the_old_ones(
    crates: Crates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = crates.version(1, FIRST, CRATE_1)
    opened(tmp_path / "ledger.db", part).close()
    monkeypatch.setattr("stationmaster.ledger.sqlite_guards._UNIQUE", "unique key: ")
    with opened(tmp_path / "ledger.db", part) as ledger:
        assert ledger.verify() == []


def test_the_running_role_owns_nothing(crates: Crates, postgres: PostgresServer) -> None:
    settings = postgres.settings()
    part = crates.version(1, FIRST, CRATE_1)
    opened(settings, part).close()
    # A second host knows only the running role, and needs no more.
    alone = PostgresSettings(settings.dsn, schema=settings.schema)
    with opened(alone, part) as ledger:
        ledger.do(CMD, make, "c1")
        assert ledger.verify() == []
    with pytest.raises(Unavailable, match="cannot be prepared"):
        opened(alone, crates.version(2, SECOND, CRATE_2, {"0002_weigh.sql": STEP}))
    with (
        psycopg.connect(settings.dsn, options=f"-c search_path={settings.schema}") as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("DROP TABLE crate")


def test_one_role_for_everything_is_reported(crates: Crates, postgres: PostgresServer) -> None:
    settings = postgres.settings()
    one = PostgresSettings(settings.owner_dsn or "", schema=settings.schema)
    with opened(one, crates.version(1, FIRST, CRATE_1)) as ledger:
        assert [line for line in ledger.verify() if "owns the tables it writes" in line]


@pytest.mark.parametrize("name", ["0003_gap.sql", "2_short.sql"])
def test_migrations_are_numbered_without_gaps(crates: Crates, name: str) -> None:
    with pytest.raises(Bug):
        migrate.steps(crates.version(1, FIRST, CRATE_1, {name: STEP}))


def test_two_machines_of_one_table_are_a_bug(crates: Crates, tmp_path: Path) -> None:
    part = crates.version(1, FIRST, CRATE_1)
    with pytest.raises(Bug):
        opened(tmp_path / "ledger.db", part, Slice("other", part.package, machines=(CRATE_1,)))


def test_a_machine_without_its_columns_is_a_bug(crates: Crates, tmp_path: Path) -> None:
    with pytest.raises(Bug, match="weight"):
        opened(tmp_path / "ledger.db", crates.version(1, FIRST, CRATE_2))


def test_the_clock_never_goes_behind_the_history(crates: Crates, database: Path | PostgresSettings) -> None:
    part = crates.version(1, FIRST, CRATE_1)
    ahead = ManualClock(4_000_000_000_000_000)
    with opened(database, part, clock=ahead) as ledger:
        ledger.do(CMD, make, "c1")
    clock = SystemClock()
    opened(database, part, clock=clock).close()
    assert clock.now() > ahead.now()
