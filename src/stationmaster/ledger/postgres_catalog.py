"""The tables, guards and rights of a PostgreSQL schema, as migrations need to know them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from stationmaster.ledger import postgres_guards
from stationmaster.ledger.queries import Dialect
from stationmaster.machine import Machine

# What the running role may do to the kernel's own tables; it owns none, and the journal and the edges it only reads.
_RIGHTS = {
    "command": "SELECT, INSERT, UPDATE (sealed)",
    "edge": "SELECT",
    "event": "SELECT, INSERT",
    "journal": "SELECT",
    "lease": "SELECT, INSERT, UPDATE",
    "open_intent": "SELECT, INSERT, DELETE",
    "receipt": "SELECT, INSERT, UPDATE (status, result, finished)",
    "ref": "SELECT, INSERT",
    "schema_version": "SELECT",
}


class PostgresCatalog:
    """Reads and changes one schema over a connection inside a transaction of the caller."""

    dialect: Dialect = "postgres"

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self._schema = schema

    def execute(self, text: str, params: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement; returns its rows."""
        cursor = self._connection.execute(text.encode(), params or None)
        return cursor.fetchall() if cursor.description else []

    def installed(self) -> bool:
        """Tells whether the schema has our tables."""
        return bool(self._rows("SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'schema_version'"))

    def prepare(self) -> None:
        """Makes the schema and the number of the history; for the owner, before the first installation."""
        if not self._rows("SELECT 1 FROM pg_namespace WHERE nspname = %s"):
            self._connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self._schema)))
        self.execute("CREATE SEQUENCE IF NOT EXISTS history_seq")

    def present_guards(self) -> dict[str, str]:
        """Returns a description of every trigger and trigger function by name."""
        functions = self._rows(
            "SELECT p.proname, p.prosrc, p.prosecdef, array_to_string(p.proconfig, ';') FROM pg_proc p"
            " JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s AND p.prorettype = 'trigger'::regtype"
        )
        triggers = self._rows(
            "SELECT t.tgname, pg_get_triggerdef(t.oid), t.tgenabled FROM pg_trigger t"
            " JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND NOT t.tgisinternal"
        )
        found = {f"function {name}": _function(body, owner, path) for name, body, owner, path in functions}
        for name, text, enabled in triggers:
            fires = text.replace(f"{self._schema}.", "").removeprefix(f"CREATE TRIGGER {name} ")
            found[f"trigger {name}"] = fires if enabled in {"O", b"O"} else f"{fires} [{enabled}]"
        return found

    def wanted_guards(self, machines: Sequence[Machine]) -> dict[str, str]:
        """Returns the same descriptions for what the code wants."""
        made = postgres_guards.make(machines, self.columns())
        found = {
            f"function {name}": _function(function.body, function.as_owner, f"search_path={self._schema}, pg_temp")
            for name, function in made.functions.items()
        }
        for name, (_, fires, function) in made.triggers.items():
            found[f"trigger {name}"] = f"{fires} EXECUTE FUNCTION {function}()"
        return found

    def create_guards(self, machines: Sequence[Machine]) -> None:
        """Makes every function and trigger."""
        made = postgres_guards.make(machines, self.columns())
        for name, function in made.functions.items():
            rights = "SECURITY DEFINER" if function.as_owner else "SECURITY INVOKER"
            self.execute(
                f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql {rights}"
                f" SET search_path = {self._schema}, pg_temp AS $guard${function.body}$guard$"
            )
        for name, (_, fires, called) in made.triggers.items():
            self.execute(f"CREATE TRIGGER {name} {fires} EXECUTE FUNCTION {called}()")

    def drop_guards(self) -> None:
        """Removes every trigger function of the schema, and with it every trigger."""
        for name in self.present_guards():
            kind, _, called = name.partition(" ")
            if kind == "function":
                self.execute(f"DROP FUNCTION {called}() CASCADE")

    def columns(self) -> dict[str, list[str]]:
        """Returns the columns of every table of the schema."""
        found: dict[str, list[str]] = {}
        for table, column in self._rows(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s"
            " ORDER BY table_name, ordinal_position"
        ):
            found.setdefault(table, []).append(column)
        return found

    def grant(self, role: str, machines: Sequence[Machine]) -> None:
        """Gives the running role what it needs and no more (it never owns a table)."""
        moved = {machine.table: machine.moved for machine in machines}
        words = {"role": sql.Identifier(role), "schema": sql.Identifier(self._schema)}
        self._connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {schema} TO {role}").format(**words))
        self._connection.execute(sql.SQL("GRANT USAGE, SELECT ON SEQUENCE history_seq TO {role}").format(**words))
        for table in self.columns():
            rights = _RIGHTS.get(table, "SELECT, INSERT, UPDATE, DELETE")
            if table in moved:
                changing = ", ".join(sorted(moved[table] | {"state", "rev", "verb", "command"}))
                rights = f"SELECT, INSERT, UPDATE ({changing})"
            name = sql.Identifier(table)
            self._connection.execute(sql.SQL("REVOKE ALL ON {} FROM {role}").format(name, **words))
            self._connection.execute(sql.SQL(f"GRANT {rights} ON {{}} TO {{role}}").format(name, **words))

    def owned_by(self, role: str) -> list[str]:
        """Returns the tables that `role` owns; the running role should own none."""
        rows = self._connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tableowner = %s", (self._schema, role)
        )
        return [row[0] for row in rows]

    def _rows(self, text: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(text.encode(), (self._schema,)).fetchall()


def _function(body: str, as_owner: bool, path: str | None) -> str:
    return f"{'owner' if as_owner else 'caller'} {path}: {body}"
