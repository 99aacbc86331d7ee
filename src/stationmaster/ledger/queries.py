"""Named SQL: `-- name: NAME :one|:many|:run [postgres]` blocks of a slice's `store.sql`, with `:param` parameters.

A `[postgres]` block replaces the plain block of the same name on PostgreSQL only. Nothing else writes SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Literal, cast

from stationmaster.errors import Bug

Kind = Literal["one", "many", "run"]
Dialect = Literal["sqlite", "postgres"]

_HEAD = re.compile(r"^-- name: (\w+) :(one|many|run)(?: \[(postgres)\])?[ \t]*\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_TOKEN = re.compile(r"'(?:[^']|'')*'|(?<![:\w]):([a-z]\w*)|%")
_PYFORMAT = re.compile(r"%\((\w+)\)s")
_TEXT = re.compile(r"'(?:[^']|'')*'")
_LIST = re.compile(r"(?<![\w.])(?!NOT\b)([\w.]+)\s+IN\s+\(\s*('(?:[^']|'')*'(?:\s*,\s*'(?:[^']|'')*'){2,})\s*\)")
_NOT_A_WRITE = re.compile(r"'(?:[^']|'')*'|\bDO\s+UPDATE\b|\bFOR\s+(?:NO\s+KEY\s+)?UPDATE\b", re.IGNORECASE)
_WRITE = re.compile(
    r"\b(?:(?:INSERT(?:\s+OR\s+\w+)?|REPLACE)\s+INTO|UPDATE(?:\s+OR\s+\w+)?|DELETE\s+FROM)\s+(\w+)", re.IGNORECASE
)


def spelled_out(sql: str) -> str:
    """Returns the text with each list of three or more texts as equalities.

    SQLite builds a tree for such a list each time a statement meets it, a dozen for one new task; from equalities it
    builds none, and still finds the index. A partial index is used by a query that is spelled the same.
    """

    def equalities(found: re.Match[str]) -> str:
        return "(" + " OR ".join(f"{found[1]} = {text}" for text in _TEXT.findall(found[2])) + ")"

    return _LIST.sub(equalities, sql)


class Query:
    """One named statement in both dialects; `table` is the table it writes, None for a read."""

    __slots__ = ("kind", "name", "names", "params", "postgres", "sqlite", "table")

    def __init__(self, name: str, kind: Kind, sqlite: str, postgres: str | None = None) -> None:
        self.name = name
        self.kind = kind
        self.sqlite = spelled_out(sqlite)
        self.postgres = _percent(postgres or sqlite)
        self.params = tuple(dict.fromkeys(found for found in _TOKEN.findall(sqlite) if found))
        self.names = frozenset(self.params)
        self.table = _table(name, sqlite)
        self._check()

    def sql(self, dialect: Dialect) -> str:
        """Returns the text for one database, in its own parameter style."""
        return self.sqlite if dialect == "sqlite" else self.postgres

    def __repr__(self) -> str:
        return f"Query({self.name})"

    def _check(self) -> None:
        if self.kind == "run" and self.table is None:
            raise Bug(f"BUG: query {self.name} is :run and writes nothing.")
        if set(_PYFORMAT.findall(self.postgres)) != self.names:
            raise Bug(f"BUG: query {self.name} takes other parameters on PostgreSQL.")
        if ";" in _TEXT.sub("", self.sqlite) or ";" in _TEXT.sub("", self.postgres):
            raise Bug(f"BUG: query {self.name} is more than one statement.")


class Queries:
    """The queries of one file; an attribute for each, and iteration for the tests that EXPLAIN them."""

    def __init__(self, source: str, found: dict[str, Query]) -> None:
        self._source = source
        self._found = found

    def __getattr__(self, name: str) -> Query:
        """Returns the query called `name`; raises AttributeError when the file has none."""
        try:
            return self._found[name]
        except KeyError:
            raise AttributeError(f"{self._source} has no query {name!r}") from None

    def __iter__(self) -> Iterator[Query]:
        return iter(self._found.values())


def load(package: str, file: str = "store.sql") -> Queries:
    """Reads the named queries of `package`; raises Bug when the file breaks the form."""
    return parse(files(package).joinpath(file).read_text(encoding="utf-8"), f"{package}/{file}")


def parse(text: str, source: str) -> Queries:
    """Reads named queries from `text`."""
    head, *parts = _HEAD.split(text)
    if _COMMENT.sub("", head).strip():
        raise Bug(f"BUG: {source}: SQL before the first name.")
    plain: dict[str, tuple[Kind, str]] = {}
    override: dict[str, tuple[Kind, str]] = {}
    for name, kind, only, body in zip(*[iter(parts)] * 4, strict=True):
        blocks = override if only else plain
        if name in blocks:
            raise Bug(f"BUG: {source}: {name} is defined twice.")
        blocks[name] = (cast("Kind", kind), _COMMENT.sub("", body).strip().rstrip(";"))
    strangers = [name for name in override if name not in plain or plain[name][0] != override[name][0]]
    if strangers:
        raise Bug(f"BUG: {source}: [postgres] blocks without a plain block of their kind: {strangers}.")
    return Queries(
        source,
        {name: Query(name, kind, sql, override.get(name, (kind, None))[1]) for name, (kind, sql) in plain.items()},
    )


def _table(name: str, sql: str) -> str | None:
    written = {found.lower() for found in _WRITE.findall(_NOT_A_WRITE.sub(" ", sql))}
    if len(written) > 1:
        raise Bug(f"BUG: query {name} writes more than one table: {sorted(written)}.")
    return next(iter(written), None)


def _percent(sql: str) -> str:
    def swap(token: re.Match[str]) -> str:
        if token[1]:
            return f"%({token[1]})s"
        return token[0].replace("%", "%%")

    return _TOKEN.sub(swap, sql)
