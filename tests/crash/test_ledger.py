"""K10 and K13: killed before the commit or just after it, the ledger keeps whatever it acknowledged, once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stationmaster.clock import SystemClock
from stationmaster.ledger import history
from stationmaster.ledger.ledger import Ledger, PostgresSettings
from tests.conftest import PostgresServer
from tests.contract.test_commands import cmd, post
from tests.crash.places import COUNT, word
from tests.ledger import parcels

ALL = 2 * COUNT


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path | PostgresSettings:
    if request.param == "sqlite":
        return tmp_path / "ledger.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.settings()


def killed(database: Path | PostgresSettings, point: str, nth: int) -> list[int]:
    """Runs the writer until it dies; returns what it was told is durable."""
    command = [sys.executable, "-m", "tests.crash.ledger_writer", word(database), point, str(nth)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return [int(line) for line in done.stdout.split()]


def kept(ledger: Ledger) -> list[int]:
    moves = [entry for entry in ledger.read(history.page) if entry.kind == "move"]
    return sorted(int(str(entry.entity).removeprefix("p")) for entry in moves)


@pytest.mark.parametrize("nth", [1, COUNT, COUNT + 1])
@pytest.mark.parametrize("point", ["ledger.before_commit", "ledger.after_commit"])
def test_what_was_acknowledged_is_there_and_is_done_once(
    database: Path | PostgresSettings, point: str, nth: int
) -> None:
    told = killed(database, point, nth)
    with Ledger.open(database, [parcels.SLICE], clock=SystemClock()) as ledger:
        found = kept(ledger)
        assert set(told) <= set(found)
        if nth <= COUNT:
            # One by one: the last of them was written or not, and either way nobody was told.
            assert told == list(range(nth - 1))
            assert found == list(range(nth if point == "ledger.after_commit" else nth - 1))
        # Whoever was not answered asks again with the same request id.
        for number in range(ALL):
            ledger.do(cmd(dedupe=f"r{number}"), post, f"p{number}", address=f"a{number}")
        assert kept(ledger) == list(range(ALL))
        commands = [entry for entry in ledger.read(history.page) if entry.kind == "command"]
        assert len(commands) == ALL
        assert ledger.verify() == []
