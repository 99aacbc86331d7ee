"""Where a PostgreSQL ledger is; a SQLite ledger is just a path."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class PostgresSettings:
    """Where the database is; `dsn` may hold a password and is never shown.

    `owner_dsn` is the role that owns and migrates; without it `dsn` does both, which doctor reports. `database_time`
    off makes leases follow the ledger's clock (for tests).
    """

    dsn: str
    owner_dsn: str | None = None
    schema: str = "stationmaster"
    writers: int = 8
    readers: int = 8
    wait_s: float = 10.0
    database_time: bool = True

    def __repr__(self) -> str:
        return f"PostgresSettings(schema={self.schema!r})"
