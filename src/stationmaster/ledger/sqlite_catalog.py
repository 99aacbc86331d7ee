"""The tables, indexes and guards of a SQLite database, as migrations and guards need to know them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from typing import Any

from stationmaster.errors import Bug
from stationmaster.ledger import sqlite_guards
from stationmaster.ledger.queries import Dialect
from stationmaster.ledger.schema import Shape, Unique
from stationmaster.machine import Machine

_CONDITION = re.compile(r"\)\s*WHERE\s+(.*)\Z", re.DOTALL | re.IGNORECASE)


class SqliteCatalog:
    """Reads and changes the schema over the writing connection, inside a transaction of the caller."""

    dialect: Dialect = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, params: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement; returns its rows."""
        return self._connection.execute(sql, params).fetchall()

    def installed(self) -> bool:
        """Tells whether the database has our tables."""
        return bool(self.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_version'"))

    def present_guards(self) -> dict[str, str]:
        """Returns every trigger by name."""
        rows = self.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        return {str(name): str(sql) for name, sql in rows}

    def wanted_guards(self, machines: Sequence[Machine]) -> dict[str, str]:
        """Returns the triggers that the code wants for the tables as they are."""
        return sqlite_guards.triggers(machines, {table: self._shape(table) for table in self._tables()})

    def create_guards(self, machines: Sequence[Machine]) -> None:
        """Makes every trigger."""
        for text in self.wanted_guards(machines).values():
            self.execute(text)

    def drop_guards(self) -> None:
        """Removes every trigger."""
        for name in self.present_guards():
            self.execute(f'DROP TRIGGER "{name}"')

    def columns(self) -> dict[str, list[str]]:
        """Returns the columns of every table."""
        return {table: self._columns(table) for table in self._tables()}

    def _shape(self, table: str) -> Shape:
        uniques = []
        for _, name, unique, _, partial in self.execute(f"PRAGMA index_list({table})"):
            if not unique:
                continue
            keys = [row[2] for row in self.execute(f"PRAGMA index_xinfo({name})") if row[5]]
            if None in keys:
                raise Bug(f"BUG: the unique index {name} is on an expression; no guard can watch it.")
            uniques.append(
                Unique(self._name(table, name, keys), tuple(keys), self._condition(name) if partial else None)
            )
        rowid = not self.execute(
            "SELECT 1 FROM pragma_table_list WHERE schema = 'main' AND name = ? AND wr = 1", (table,)
        )
        ordered = sorted(uniques, key=lambda unique: unique.name)
        return Shape(table, tuple(self._columns(table)), tuple(ordered), rowid)

    def _name(self, table: str, name: str, keys: list[str]) -> str:
        return f"{table}({', '.join(keys)})" if name.startswith("sqlite_autoindex_") else name

    def _condition(self, index: str) -> str:
        sql = self.execute("SELECT sql FROM sqlite_master WHERE type = 'index' AND name = ?", (index,))[0][0]
        found = _CONDITION.search(sql)
        if found is None:
            raise Bug(f"BUG: the condition of the index {index} cannot be read.")
        return " ".join(found[1].split())

    def _tables(self) -> list[str]:
        rows = self.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
        )
        return [row[0] for row in rows]

    def _columns(self, table: str) -> list[str]:
        return [row[1] for row in self.execute(f"PRAGMA table_info({table})")]
