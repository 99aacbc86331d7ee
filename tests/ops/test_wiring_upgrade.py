"""A ledger that an earlier release made is brought up to date, guarded, recovered, and worked on further."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stationmaster.clock import MICROS, ManualClock
from stationmaster.control.dispatch import Dispatch
from stationmaster.gitea import actions, store
from stationmaster.gitea.gear import Gear
from stationmaster.gitea.recovery import Recovery
from stationmaster.gitea.settings import Station
from stationmaster.ledger import history
from stationmaster.ledger import lease as leases
from stationmaster.ledger.ledger import Ledger
from stationmaster.ops.wiring import SLICES
from tests.gitea.rig import SETTINGS, Database, Rig, told
from tests.gitea.world import gear_for

_DATA = Path(__file__).parents[1] / "data" / "ledger_v1"
# An hour after the ledgers were made.
_LATER = 1_800_003_600 * MICROS
_TABLES = ("gitea_task", "gitea_trigger", "gitea_comment", "command", "journal", "event", "ref", "receipt")


def _text(name: str) -> str:
    return gzip.decompress((_DATA / f"{name}.sql.gz").read_bytes()).decode()


def _counts(where: Database) -> dict[str, int]:
    connection: Any = (
        sqlite3.connect(where)
        if isinstance(where, Path)
        else psycopg.connect(where.owner_dsn or where.dsn, options=f"-c search_path={where.schema}")
    )
    with closing(connection):
        return {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in _TABLES}


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A ledger of schema version 1, as its release left it."""
    if request.param == "sqlite":
        path = tmp_path / "ledger.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(_text("sqlite"))
        yield path
        return
    settings = request.getfixturevalue("postgres").settings(schema="stationmaster")
    with psycopg.connect(settings.owner_dsn, autocommit=True) as connection:
        # Another test of this server may have left the schema that the product uses by default.
        connection.execute("DROP SCHEMA IF EXISTS stationmaster CASCADE")
        connection.execute(_text("postgres").encode())
    yield settings
    with psycopg.connect(settings.owner_dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA stationmaster CASCADE")


@pytest.fixture
async def upgraded(old: Database, tmp_path: Path) -> AsyncIterator[tuple[Rig, Gear]]:
    """The ledger as today's program opens it, and the gear of its worker's next start; its forge cannot be reached."""
    before = _counts(old)
    ledger = Ledger.open(old, SLICES, clock=ManualClock(_LATER))
    assert _counts(old) == before  # a migration loses nothing
    rig = Rig(ledger, old, ManualClock(_LATER))
    port = Dispatch(ledger, threads=2)
    settings = replace(SETTINGS, base_url="http://127.0.0.1:1", forge_timeout_s=0.2, settle_s=0.0, retry_delay_s=0.0)
    gear = gear_for(port, settings, tmp_path / "home", "home")
    yield rig, gear
    await gear.forge.close()
    port.close()
    rig.close()


def _by_state(rig: Rig) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for task_id, state in rig.rows("SELECT id, state FROM gitea_task ORDER BY created_at"):
        found.setdefault(state, []).append(task_id)
    return found


async def test_it_is_guarded_and_without_fault(upgraded: tuple[Rig, Gear]) -> None:
    rig, _ = upgraded
    assert rig.ledger.verify() == []
    task_id = _by_state(rig)["queued"][0]
    update = f"UPDATE gitea_task SET state = 'succeeded' WHERE id = '{task_id}'"
    with pytest.raises((sqlite3.DatabaseError, psycopg.Error), match="outside an open command"):
        rig.rows(update)
    with pytest.raises((sqlite3.DatabaseError, psycopg.Error)):
        rig.rows("DELETE FROM journal")


def _shape(path: Path) -> tuple[set[tuple[Any, ...]], set[tuple[str, str]]]:
    """Returns the columns of every table with their types and defaults, and every index."""
    with closing(sqlite3.connect(path)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {
            (name, *row[1:])
            for name in names
            for row in connection.execute("SELECT * FROM pragma_table_info(?)", [name])
        }
        indexes = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
        return columns, {(name, " ".join(sql.split())) for name, sql in indexes}


def test_it_has_the_tables_of_one_that_is_made_today(tmp_path: Path) -> None:
    # The shape stands in schema.sql and, step by step, in the migrations.
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    with closing(sqlite3.connect(old)) as connection:
        connection.executescript(_text("sqlite"))
    for path in (old, new):
        Ledger.open(path, SLICES, clock=ManualClock(_LATER)).close()
    upgraded, made = _shape(old), _shape(new)
    assert upgraded[0] == made[0]
    assert upgraded[1] == made[1]


async def test_its_tasks_recover_and_go_on(upgraded: tuple[Rig, Gear]) -> None:
    # GW-R-183, GW-R-184, GW-R-190
    rig, gear = upgraded
    before = {state: ids[0] for state, ids in _by_state(rig).items()}
    await gear.port.hot(leases.register_worker, "home", gear.station.incarnation)
    recovery = Recovery(gear)
    await recovery.tick(0)
    await recovery.tick(0)
    now = {state: rig.state(task_id) for state, task_id in before.items()}
    assert now == {
        "queued": "queued",
        "preparing": "retry_wait",
        "running": "retry_wait",
        "waiting_user": "waiting_user",
        "verifying_reply": "retry_wait",
        "retry_wait": "retry_wait",
        "blocked_workspace": "blocked_workspace",
        "aborting": "aborted",
        "cancelled": "cancelled",
        "succeeded": "succeeded",
        "failed": "failed",
    }
    assert [each for each in rig.ledger.read(history.open_intents) if each.action.startswith("git.")] == []
    # What was asked once is known, and who waited is continued.
    assert rig.do(_trigger_of, before["queued"]) == 1
    _goes_on(rig, before["queued"], gear.station)
    _goes_on(rig, before["running"], gear.station)
    reply = rig.take(told(number=4, comment_id=900_001, repo=(104, "acme", "parcel4"), may="write"))
    assert (reply.status, reply.task_id) == (202, before["waiting_user"])
    _goes_on(rig, before["waiting_user"], gear.station)
    assert rig.ledger.verify() == []


def _trigger_of(reader: Any, task_id: str) -> int:
    task = store.task(reader, task_id)
    known = reader.one(store.Q.trigger, instance_id="default", origin="comment", native_id=task.comment_id, version=0)
    return int(known is not None and known["task_id"] == task_id)


def _goes_on(rig: Rig, task_id: str, station: Station) -> None:
    lease = rig.claimed(task_id, station)
    run_id = actions.new_run_id()
    rig.do(actions.open_turn, task_id, lease, run_id, station.worker_id, kind="normal", head=None)
    rig.advance(task_id, "start", lease, error_code=None, next_retry_at=None, retry_purpose=None)
    rig.do(actions.end_turn, rig.task(task_id), run_id, "complete", None, "Done.")
    rig.advance(task_id, "verify", lease)
    assert rig.leave(task_id, "confirm", lease).state == "succeeded"
