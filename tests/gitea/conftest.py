from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stationmaster.control.dispatch import Dispatch
from stationmaster.ledger.ledger import Ledger
from stationmaster.ops.wiring import SLICES
from stationmaster.standins.forge import Forge as StandIn
from stationmaster.standins.forge import ForgeAdmin
from tests.gitea.rig import database
from tests.gitea.world import ASKER, BOT, MovableClock, World, gear_for, settings_for


@pytest.fixture
async def world(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A forge and a worker on SQLite, or with `--postgres` on PostgreSQL; see `tests.gitea.world`."""
    where = database(request, "postgres" if request.config.getoption("--postgres") else "sqlite")
    clock = MovableClock()
    with (
        StandIn(tmp_path / "forge") as standin,
        ForgeAdmin(standin.url) as admin,
        Ledger.open(where, SLICES, clock=clock) as ledger,
    ):
        admin.org("acme")
        asker_id = admin.user(ASKER)
        bot_id = admin.bot(BOT)
        files = {"README.md": "# Widgets\n", "src/app.py": "print('a')\n"}
        repo = admin.repo("acme", "widgets", files, private=True, collaborators={ASKER: "admin", BOT: "write"})
        issue = admin.issue("acme/widgets", ASKER, "It is broken", "Nothing works.")
        port = Dispatch(ledger, threads=4)
        gear = gear_for(port, settings_for(standin.url, admin.token(BOT)), tmp_path / "home")
        try:
            yield World(standin, admin, ledger, port, gear, clock, repo, asker_id, bot_id, issue)
        finally:
            await gear.forge.close()
            port.close()
