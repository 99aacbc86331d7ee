from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from stationmaster.clock import SystemClock
from stationmaster.ledger import history
from stationmaster.ledger.ledger import Ledger
from stationmaster.ops import wiring
from tests.ops.conftest import Daemon

Run = Callable[..., CompletedProcess[str]]


def remove_a_guard(home: Path) -> str:
    connection = sqlite3.connect(home / "stationmaster.db")
    [name] = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' LIMIT 1").fetchone()
    connection.execute(f'DROP TRIGGER "{name}"')
    connection.commit()
    connection.close()
    return str(name)


def prepared(home: Path) -> Path:
    database = home / "stationmaster.db"
    Ledger.open(database, wiring.SLICES, clock=SystemClock()).close()
    return database


def test_a_removed_guard_stops_the_start_until_an_operator_puts_it_back(run: Run, home: Path) -> None:
    database = prepared(home)
    name = remove_a_guard(home)
    refused = run("operator", "list")
    assert refused.returncode == 2
    assert "stationmaster restore-guards" in refused.stderr
    done = run("restore-guards", "--reason", "an upgrade gone wrong", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    fault = f"The guard {name} is missing; nothing stops a write past the program."
    assert json.loads(done.stdout) == {"restored": True, "faults": [fault]}
    assert run("operator", "list").returncode == 0
    with Ledger.open(database, wiring.SLICES, clock=SystemClock()) as ledger:
        assert ledger.verify() == []
        [event] = ledger.read(history.by_action, "guards.restored")
    assert event.data == {"reason": "an upgrade gone wrong", "faults": [fault]}
    assert event.actor.startswith("admin:")


def test_sound_guards_are_left_and_a_reason_is_needed(run: Run, home: Path) -> None:
    prepared(home)
    assert run("restore-guards", "--reason", "to be sure").stdout == "The guards are those of this program; 0 faults.\n"
    assert run("restore-guards").returncode == 2


def test_without_a_database_there_is_nothing_to_restore(run: Run) -> None:
    assert run("restore-guards", "--reason", "x").stderr.startswith("stationmaster: There is no database yet.")


def test_it_does_not_work_under_a_running_daemon(run: Run, start: Callable[..., Daemon]) -> None:
    start()
    refused = run("restore-guards", "--reason", "x")
    assert refused.returncode == 7
    assert "is in use by process" in refused.stderr
