"""The forge's durable state: one SQLite file and one connection behind one lock.

What was committed survives SIGKILL (WAL); nothing is answered before it is committed.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

Row = dict[str, Any]

FIRST_IDS = {"account": 0, "repo": 100, "issue": 5000, "pull": 700, "comment": 90000, "review": 300, "hook": 40}
"""Where the sequences start, apart from one another so that a mixed-up id never happens to fit."""


class Store:
    """Rows in, rows out; every write is one transaction."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.lock = threading.RLock()
        self._depth = 0
        self._db = sqlite3.connect(
            folder / "forge.sqlite3", check_same_thread=False, isolation_level=None, cached_statements=256
        )
        self._db.row_factory = lambda cursor, row: {
            column[0]: value for column, value in zip(cursor.description, row, strict=True)
        }
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(resources.files(__package__).joinpath("schema.sql").read_text())
        for table, first in FIRST_IDS.items():
            if not self.one("SELECT 1 FROM sqlite_sequence WHERE name=?", table):
                self._db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, first))

    @contextmanager
    def tx(self) -> Iterator[None]:
        """Opens one transaction; inside another one it simply takes part in it."""
        with self.lock:
            if self._depth == 0:
                self._db.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
            except BaseException:
                self._depth -= 1
                if self._depth == 0:
                    self._db.execute("ROLLBACK")
                raise
            self._depth -= 1
            if self._depth == 0:
                self._db.execute("COMMIT")

    def one(self, sql: str, *params: object) -> Row | None:
        """Returns the first row or None."""
        with self.lock:
            row: Row | None = self._db.execute(sql, params).fetchone()
            return row

    def many(self, sql: str, *params: object) -> list[Row]:
        """Returns all rows."""
        with self.lock:
            return self._db.execute(sql, params).fetchall()

    def run(self, sql: str, *params: object) -> int:
        """Runs one writing statement and returns how many rows it touched."""
        with self.tx():
            return self._db.execute(sql, params).rowcount

    def insert(self, table: str, **columns: object) -> int:
        """Inserts one row and returns its id."""
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        with self.tx():
            cursor = self._db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(columns.values()))
            return int(cursor.lastrowid or 0)

    def update(self, table: str, row_id: int, **columns: object) -> None:
        """Changes columns of one row by its id."""
        sets = ", ".join(f"{name}=?" for name in columns)
        self.run(f"UPDATE {table} SET {sets} WHERE id=?", *columns.values(), row_id)

    def get(self, table: str, row_id: int) -> Row:
        """Returns the row with that id, which must exist."""
        row = self.one(f"SELECT * FROM {table} WHERE id=?", row_id)
        if row is None:
            raise LookupError(f"{table} {row_id} does not exist")
        return row

    def setting(self, key: str, default: str = "") -> str:
        """Returns a stored setting of the server."""
        row = self.one("SELECT value FROM meta WHERE key=?", key)
        return str(row["value"]) if row else default

    def set_setting(self, key: str, value: str) -> None:
        """Stores a setting of the server."""
        self.run(
            "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value=excluded.value", key, value
        )

    def close(self) -> None:
        """Closes the file; later calls fail."""
        with self.lock:
            self._db.close()


def now() -> int:
    """Returns the wall clock in whole seconds, the only precision Gitea shows."""
    return int(time.time())
