from __future__ import annotations

import pytest

from stationmaster.errors import Bug
from stationmaster.ledger import schema
from stationmaster.machine import Machine

THING = Machine("thing", (("", "make", "made"), ("made", "break", "broken")), terminal=frozenset({"broken"}))
TEXT = """
-- A thing; guarded.
CREATE TABLE thing (
  id TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  body BLOB,
  n INT64 NOT NULL CHECK (n IN (0, 1)) -- a flag; no more
);
CREATE TABLE pair (a TEXT NOT NULL, b TEXT NOT NULL DEFAULT 'x;y', PRIMARY KEY (a, b));
CREATE INDEX thing_n ON thing (n) WHERE n = 1;
"""


def test_sqlite_is_strict_and_composite_keys_are_the_table() -> None:
    thing, pair, index = schema.render(TEXT, "sqlite", (THING,))
    assert "state TEXT NOT NULL CHECK (state IN ('broken', 'made'))" in thing
    assert "n INTEGER NOT NULL" in thing
    assert thing.endswith(") STRICT")
    assert "'x;y'" in pair
    assert pair.endswith(") STRICT, WITHOUT ROWID")
    assert index == "CREATE INDEX thing_n ON thing (n) WHERE n = 1"


def test_postgres_has_its_own_types() -> None:
    thing = schema.render(TEXT, "postgres", (THING,))[0]
    assert "n BIGINT NOT NULL" in thing
    assert "body BYTEA" in thing
    assert thing.endswith(")")


def test_a_guarded_table_without_its_state_column_is_a_bug() -> None:
    with pytest.raises(Bug):
        schema.render("CREATE TABLE thing (id TEXT PRIMARY KEY);", "sqlite", (THING,))


def test_a_schema_ends_with_a_semicolon() -> None:
    with pytest.raises(Bug):
        schema.split("CREATE TABLE a (b TEXT); CREATE TABLE c (d TEXT)")


def test_the_condition_of_a_unique_index_is_read_from_the_new_row() -> None:
    unique = schema.Unique("u", ("a",), "state IN ('a', 'state') AND b IS NULL")
    assert unique.condition_of("NEW", ("a", "b", "state")) == "NEW.state IN ('a', 'state') AND NEW.b IS NULL"
    assert unique.mentions(frozenset({"state"}))
    assert not unique.mentions(frozenset({"c"}))
