"""The same life on PostgreSQL: the ledger is another database, nothing else changes."""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from tests.conftest import PostgresServer
from tests.journeys.rig import Rig


def test_a_mention_is_proven_and_a_kill_survived_on_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    with Rig.made(tmp_path) as rig:
        address = rig.product.home / "database"
        # A database of its own: other tests spoil the default schema of the shared one on purpose.
        with psycopg.connect(postgres.owner_dsn, autocommit=True) as connection:
            connection.execute("CREATE DATABASE journey")
        address.write_text(make_conninfo(postgres.owner_dsn, dbname="journey"))
        rig.configure(sections={"database": {"url": f"file:{address}"}})
        rig.start()
        rig.proves(rig.rests(rig.accepted(rig.mention())))
        rig.restart("outbox.delivered:2")
        comment = rig.mention("what did you change?")
        rig.dies()
        rig.start()
        found = rig.rests(rig.accepted(comment))
        rig.proves(found)
        assert len(rig.said()) == 4
        assert not (rig.product.home / "stationmaster.db").exists()
