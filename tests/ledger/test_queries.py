from __future__ import annotations

import pytest

from stationmaster.errors import Bug
from stationmaster.ledger import queries

TEXT = """
-- What the file is about.

-- name: by_id :one
-- A description; with a semicolon.
SELECT a, 'a :word and 50%' AS b FROM thing
-- a comment between
WHERE id = :id AND c = :c_2;

-- name: by_id :one [postgres]
SELECT a::text FROM thing WHERE id = :id AND c = :c_2 FOR UPDATE;

-- name: put :run
INSERT INTO thing (id) VALUES (:id) ON CONFLICT (id) DO UPDATE SET a = :id;

-- name: take :one
DELETE FROM thing WHERE id = :id RETURNING id;
"""


def test_blocks_become_queries_in_both_dialects() -> None:
    found = queries.parse(TEXT, "x")
    assert [q.name for q in found] == ["by_id", "put", "take"]
    assert found.by_id.params == ("id", "c_2")
    assert found.by_id.sql("sqlite").startswith("SELECT a, 'a :word and 50%' AS b FROM thing\nWHERE id = :id")
    assert found.by_id.sql("postgres") == "SELECT a::text FROM thing WHERE id = %(id)s AND c = %(c_2)s FOR UPDATE"
    assert found.put.sql("postgres").endswith("DO UPDATE SET a = %(id)s")


def test_a_plain_block_serves_postgres_with_its_percent_signs_doubled() -> None:
    found = queries.parse("-- name: q :many\nSELECT '50%' AS a FROM thing WHERE b % 2 = :n;\n", "x")
    assert found.q.sql("postgres") == "SELECT '50%%' AS a FROM thing WHERE b %% 2 = %(n)s"


def test_a_query_knows_the_table_it_writes() -> None:
    found = queries.parse(TEXT, "x")
    assert (found.by_id.table, found.put.table, found.take.table) == (None, "thing", "thing")
    other = queries.parse("-- name: r :run\nUPDATE OR REPLACE Thing SET a = 'DELETE FROM x';\n", "x")
    assert other.r.table == "thing"


def test_an_unknown_name_raises() -> None:
    with pytest.raises(AttributeError, match="no query 'nothing'"):
        _ = queries.parse(TEXT, "x").nothing


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1;\n-- name: a :one\nSELECT 1;\n",
        "-- name: a :one\nSELECT 1;\n-- name: a :one\nSELECT 2;\n",
        "-- name: a :one [postgres]\nSELECT 1;\n",
        "-- name: a :one\nSELECT 1;\n-- name: a :many [postgres]\nSELECT 1;\n",
        "-- name: a :run\nWITH x AS (DELETE FROM one RETURNING id) INSERT INTO two SELECT id FROM x;\n",
        "-- name: a :run\nSELECT 1;\n",
        "-- name: a :one\nSELECT :id;\n-- name: a :one [postgres]\nSELECT :other;\n",
        "-- name: a :one\nSELECT 1; SELECT 2;\n",
    ],
)
def test_a_file_that_breaks_the_form_is_a_bug(text: str) -> None:
    with pytest.raises(Bug):
        queries.parse(text, "x")


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        ("o.state IN ('a',\n  'b', 'it''s')", "(o.state = 'a' OR o.state = 'b' OR o.state = 'it''s')"),
        ("state IN ('a', 'b')", "state IN ('a', 'b')"),
        ("state NOT IN ('a', 'b', 'c')", "state NOT IN ('a', 'b', 'c')"),
        ("n IN (1, 2, 3)", "n IN (1, 2, 3)"),
    ],
)
def test_a_long_list_of_texts_is_spelled_out_for_sqlite(given: str, spelled: str) -> None:
    found = queries.parse(f"-- name: q :many\nSELECT 1 FROM thing WHERE {given};\n", "x").q
    assert found.sqlite == f"SELECT 1 FROM thing WHERE {spelled}"
    assert found.postgres == f"SELECT 1 FROM thing WHERE {given}"
