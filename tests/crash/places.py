"""Names a database in one word of a command line."""

from __future__ import annotations

import json
from pathlib import Path

from stationmaster.ledger.ledger import PostgresSettings

# How many commands the writer does one by one, and then again at once.
COUNT = 4


def word(database: Path | PostgresSettings) -> str:
    if isinstance(database, Path):
        return str(database)
    return json.dumps([database.dsn, database.owner_dsn, database.schema])


def place(where: str) -> Path | PostgresSettings:
    if not where.startswith("["):
        return Path(where)
    dsn, owner, schema = json.loads(where)
    return PostgresSettings(dsn, owner, schema=schema, writers=2, readers=1)
