"""Each fault is made in a real database, past the ledger, as somebody with a prompt would make it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pytest

from stationmaster.clock import SystemClock
from stationmaster.command import Cmd
from stationmaster.gitea import actions
from stationmaster.ledger.ledger import Ledger, PostgresSettings
from stationmaster.ledger.tx import Tx
from stationmaster.ops import wiring
from stationmaster.ops.doctor import database
from tests.conftest import PostgresServer
from tests.gitea import conftest as gitea
from tests.gitea.world import World
from tests.ops.patient import Patient, look, one, patient

world = gitea.world

# Twenty minutes ago nothing is "just now" any more.
_PAST_S = -1200


@pytest.fixture
def here(tmp_path: Path) -> Patient:
    """A home with the ledger of this program."""
    made = patient(tmp_path / "home")
    Ledger.open(made.home.database, wiring.SLICES, clock=SystemClock()).close()
    return made


def change(here: Patient, *statements: str) -> None:
    connection = sqlite3.connect(here.home.database)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def trigger(here: Patient, table: str, event: str) -> tuple[str, str]:
    connection = sqlite3.connect(here.home.database)
    row = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? AND sql LIKE ?",
        (table, f"%{event}%"),
    ).fetchone()
    connection.close()
    return str(row[0]), str(row[1])


def every(here: Patient) -> list[str]:
    """All lines about the ledger."""
    checks = (database.opens, database.integrity, database.guards, database.waiting)
    return [line for check in checks for line in look(check(here.home, here.config))]


def test_a_sound_ledger_is_fine_and_left_as_it_is(here: Patient) -> None:
    before = here.home.database.read_bytes()
    assert every(here) == [
        "ok    database: It opens, and its schema is this program's.",
        "ok    integrity: SQLite finds the file whole.",
        "ok    guards: Tables, moves and guards are those of this program.",
        (
            "ok    waiting: Nothing waits for an operator: 0 leases held, 0 effects under way,"
            " 0 tasks wait for an answer in their thread."
        ),
    ]
    assert here.home.database.read_bytes() == before


def test_it_is_fine_beside_an_open_ledger(here: Patient) -> None:
    with Ledger.open(here.home.database, wiring.SLICES, clock=SystemClock()):
        assert all(line.startswith("ok") for line in every(here))


def test_no_database_is_no_fault_and_none_is_made(tmp_path: Path) -> None:
    new = patient(tmp_path / "home")
    assert every(new) == ["ok    database: There is no database yet; the first start makes it."]
    assert not new.home.database.exists()


def test_an_empty_file_is_said(tmp_path: Path) -> None:
    new = patient(tmp_path / "home")
    new.home.database.touch()
    assert look(database.opens(new.home, new.config)) == [
        "warn  database: The database is empty. Start Stationmaster once: it puts its tables there."
    ]


def test_what_is_no_database_is_said_by_each_check_for_itself(tmp_path: Path) -> None:
    new = patient(tmp_path / "home")
    new.home.database.write_text("no database " * 1000)
    lines = every(new)
    assert len(lines) == 4
    assert all(line.startswith(f"fail  check: The database {new.home.database} cannot be read: file") for line in lines)


def test_a_removed_guard_is_named(here: Patient) -> None:
    name, _ = trigger(here, "gitea_task", "BEFORE UPDATE")
    change(here, f'DROP TRIGGER "{name}"')
    line = one(database.guards(here.home, here.config))
    assert line.startswith(f"fail  guards: The guard {name} is missing; nothing stops a write past the program.")
    assert "stationmaster restore-guards" in line


def test_a_weakened_guard_is_named(here: Patient) -> None:
    name, text = trigger(here, "gitea_task", "BEFORE DELETE")
    change(here, f'DROP TRIGGER "{name}"', text.replace("BEFORE DELETE", "AFTER DELETE"))
    assert f"fail  guards: The guard {name} was changed." in one(database.guards(here.home, here.config))


def test_a_move_that_the_program_does_not_know_is_named(here: Patient) -> None:
    name, text = trigger(here, "edge", "BEFORE INSERT")
    added = "INSERT INTO edge VALUES ('gitea_task', 'failed', 'revive', 'succeeded')"
    change(here, f'DROP TRIGGER "{name}"', added, text)
    line = one(database.guards(here.home, here.config))
    assert line.startswith("fail  guards: only the database has gitea_task: failed --revive--> succeeded.")


def test_a_lost_table_is_named(here: Patient) -> None:
    change(here, "DROP TABLE gitea_refused_author")
    lines = look(database.guards(here.home, here.config))
    assert any("The table gitea_refused_author is missing" in line for line in lines)


def test_a_newer_and_an_older_schema_are_told_apart(here: Patient) -> None:
    change(here, "UPDATE schema_version SET version = 99 WHERE slice = 'gitea'")
    line = one(database.opens(here.home, here.config))
    assert line.startswith("fail  database: The database is newer than this program (gitea).")
    change(here, "UPDATE schema_version SET version = 0 WHERE slice = 'gitea'")
    line = one(database.opens(here.home, here.config))
    assert line == "warn  database: The database is older than this program (gitea). The next start migrates it."
    assert look(database.guards(here.home, here.config)) == [], "its guards are those of another version"


def test_a_damaged_file_is_said(here: Patient) -> None:
    content = bytearray(here.home.database.read_bytes())
    for start in range(40_960, len(content), 4096):
        content[start : start + 64] = b"\xff" * 64
    here.home.database.write_bytes(content)
    [line] = look(database.integrity(here.home, here.config))
    assert line.startswith("fail  ")
    assert "restore a backup" in line


def test_a_clock_behind_the_ledger_is_said(here: Patient) -> None:
    ahead = SystemClock()
    ahead.not_before(ahead.now() + 3_600_000_000)

    def told(tx: Tx) -> None:
        tx.event("test.told")

    with Ledger.open(here.home.database, wiring.SLICES, clock=ahead) as ledger:
        ledger.do(Cmd("test.tell", "test", "test"), told)
    line = look(database.opens(here.home, here.config))[1]
    assert line.startswith("warn  database clock: The newest record is 35")
    assert "s ahead of this machine's clock. Set the clock right" in line


# --- what waits for an operator ---


@pytest.fixture
def at_work(world: World, tmp_path: Path) -> Patient:
    """A home whose ledger is that of a world that began twenty minutes ago."""
    world.clock.advance(_PAST_S)
    made = patient(tmp_path / "operator")
    made.home.database.symlink_to(tmp_path / "ledger.db")
    return made


def attention(here: Patient) -> dict[str, str]:
    return {line.split()[1].rstrip(":"): line for line in look(database.waiting(here.home, here.config))}


async def test_a_running_task_waits_for_nobody(world: World, at_work: Patient) -> None:
    world.clock.advance(-_PAST_S)
    hold = await world.claim(await world.mention())
    await world.turn(hold)
    assert "1 leases held" in attention(at_work)["waiting"]


async def test_what_nobody_finishes_is_shown(world: World, at_work: Patient) -> None:
    # A lease that ran out, an effect without a result, one that stayed unknown, an alert, a comment not posted.
    hold = await world.claim(await world.mention())
    task = hold.task
    run_id = await world.turn(hold)

    def told(tx: Tx) -> None:
        tx.intent("comment.post", subject=task.id)
        tx.result(tx.intent("branch.push", subject=task.id), "unknown")
        tx.event("alert.question_unknown")
        actions.intend_comment(tx, task, actions.final_key(task.id, run_id), "mcp_final", "words", run_id=run_id)

    await world.do("test.tell", task, told)
    found = attention(at_work)
    assert found["leases"].startswith("warn  leases: 1 of 1 leases are past their end. A running daemon takes")
    assert found["intents"].startswith("warn  intents: 1 effects began more than 10 minutes ago and have no result.")
    assert "1 effects of the last day stayed unknown: branch.push." in found["outcomes"]
    assert found["alerts"].startswith("warn  alerts: 1 alerts were raised in the last day: alert.question_unknown.")
    assert found["comments"].startswith("warn  comments: 1 comments are older than 10 minutes and not proven.")
    assert "waiting" not in found


async def test_blocked_work_is_shown(world: World, at_work: Patient) -> None:
    hold = await world.claim(await world.mention())
    await world.advance(hold, "block", error_code="workspace_dirty")
    assert attention(at_work)["tasks"].startswith("warn  tasks: 1 tasks are blocked by their workspace. `stationmaster")


async def test_an_unknown_outcome_that_became_known_is_not_shown(world: World, at_work: Patient) -> None:
    hold = await world.claim(await world.mention())

    def told(tx: Tx) -> None:
        intent = tx.intent("branch.push", subject=hold.task.id)
        tx.result(intent, "unknown")
        tx.result(intent, "done")

    await world.do("test.tell", hold.task, told)
    assert "outcomes" not in attention(at_work)


async def test_known_repositories_are_told(world: World, at_work: Patient) -> None:
    assert database.repositories(at_work.home, at_work.config) == []
    await world.mention()
    [known] = database.repositories(at_work.home, at_work.config)
    assert known == database.Known("active", "acme", "widgets", world.repo["id"])


def test_a_ledger_on_postgres_is_looked_at_too(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SM_DATABASE", postgres.dsn)
    here = patient(tmp_path / "home", '[database]\nurl = "env:SM_DATABASE"')
    assert one(database.opens(here.home, here.config)).startswith("warn  database: The database is empty.")
    Ledger.open(PostgresSettings(postgres.dsn, postgres.owner_dsn), wiring.SLICES, clock=SystemClock()).close()
    lines = every(here)
    assert [line.split(":")[0] for line in lines] == ["ok    database", "ok    guards", "ok    waiting"]
    assert postgres.dsn not in "".join(lines)
    with psycopg.connect(postgres.owner_dsn, options="-c search_path=stationmaster") as connection:
        connection.execute("ALTER TABLE gitea_task DISABLE TRIGGER USER")
    assert "gitea_task" in look(database.guards(here.home, here.config))[0]
    monkeypatch.setenv("SM_DATABASE", f"host={tmp_path} dbname=none password=seeded-secret-4711")
    line = one(database.opens(here.home, here.config))
    assert line.startswith("fail  check: The PostgreSQL server cannot be reached (OperationalError).")
    assert "4711" not in line
