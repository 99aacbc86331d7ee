"""Turns the one `schema.sql` of a slice into the statements of one database, and describes tables for the guards.

It knows the schema conventions (TEXT, INT64, BLOB; STRICT; states checked from the machine) and runs nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from stationmaster.errors import Bug
from stationmaster.ledger.queries import Dialect, spelled_out
from stationmaster.machine import Machine

_TYPES: Mapping[Dialect, tuple[tuple[re.Pattern[str], str], ...]] = {
    "sqlite": ((re.compile(r"\bINT64\b"), "INTEGER"),),
    "postgres": ((re.compile(r"\bINT64\b"), "BIGINT"), (re.compile(r"\bBLOB\b"), "BYTEA")),
}
_COLUMN = re.compile(r"^  ([a-z][a-z0-9_]*) (?:TEXT|INT64|BLOB)\b", re.ASCII | re.MULTILINE)
_TABLE = re.compile(r"CREATE TABLE (\w+) \(", re.ASCII)
_COMPOSITE_KEY = re.compile(r"\bPRIMARY KEY \(\w+\s*,")
_STATE = re.compile(r"^(\s*state TEXT NOT NULL)\b", re.MULTILINE)
_SPLIT = re.compile(r"'(?:[^']|'')*'|--[^\n]*|;")
_WORD = re.compile(r"'(?:[^']|'')*'|\w+")

GUARDED_COLUMNS = ("id", "state", "rev", "verb", "command")


@dataclass(frozen=True, slots=True)
class Unique:
    """A unique index: its columns and, for a partial one, the condition of its rows."""

    name: str
    columns: tuple[str, ...]
    condition: str | None = None

    def mentions(self, columns: frozenset[str]) -> bool:
        """Tells whether a change of `columns` can make a row enter or change place in the index."""
        words = set(_WORD.findall(self.condition or ""))
        return bool(columns & (words | set(self.columns)))

    def condition_of(self, row: str, columns: tuple[str, ...]) -> str:
        """Returns the condition with each column read from `row` (NEW)."""

        def swap(word: re.Match[str]) -> str:
            return f"{row}.{word[0]}" if word[0] in columns else word[0]

        return _WORD.sub(swap, self.condition or "1")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a guard must know of a table."""

    table: str
    columns: tuple[str, ...]
    uniques: tuple[Unique, ...]
    rowid: bool


def split(text: str) -> list[str]:
    """Splits a schema into statements, without comments."""
    statements: list[str] = []
    current: list[str] = []
    last = 0
    for token in _SPLIT.finditer(text):
        current.append(text[last : token.start()])
        last = token.end()
        if token[0] == ";":
            statements.append("".join(current).strip())
            current = []
        elif token[0].startswith("'"):
            current.append(token[0])
    current.append(text[last:])
    if "".join(current).strip():
        raise Bug("BUG: a schema must end with a semicolon.")
    return [statement for statement in statements if statement]


def render(text: str, dialect: Dialect, machines: tuple[Machine, ...]) -> list[str]:
    """Returns the statements of a schema or migration for one database."""
    guarded = {machine.table: machine for machine in machines}
    return [_render(statement, dialect, guarded) for statement in split(text)]


def columns(text: str) -> dict[str, list[str]]:
    """Returns the columns of each table that a schema makes; a column begins a line of its own."""
    return {
        found[1]: _COLUMN.findall(statement)
        for statement in split(text)
        if (found := _TABLE.match(statement)) is not None
    }


def _render(statement: str, dialect: Dialect, guarded: Mapping[str, Machine]) -> str:
    head = _TABLE.match(statement)
    if head is None:
        return _typed(statement, dialect)
    machine = guarded.get(head[1])
    if machine is not None:
        states = ", ".join(f"'{state}'" for state in sorted(machine.states))
        statement, count = _STATE.subn(rf"\1 CHECK (state IN ({states}))", statement)
        if count != 1:
            raise Bug(f"BUG: {head[1]} needs one line that begins 'state TEXT NOT NULL'.")
    statement = _typed(statement, dialect)
    if dialect == "postgres":
        return statement
    # A composite key is the table itself: one tree instead of two, and no hidden rowid to replace rows through.
    return statement + (" STRICT, WITHOUT ROWID" if _COMPOSITE_KEY.search(statement) else " STRICT")


def _typed(statement: str, dialect: Dialect) -> str:
    for pattern, name in _TYPES[dialect]:
        statement = pattern.sub(name, statement)
    return spelled_out(statement) if dialect == "sqlite" else statement
