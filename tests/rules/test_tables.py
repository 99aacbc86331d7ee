"""Each table has one writing slice; guarded ones are written by `born` and `move` only; SQL lives in .sql files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.rules.tree import PACKAGE, calls, nodes, short, sources
from tools.machines import machines

CREATE = re.compile(r"CREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?\"?(\w+)", re.IGNORECASE)
# Not FOR UPDATE (a row lock), not DO UPDATE SET (the arm of an upsert).
WRITE = re.compile(
    r"\b(?:INSERT\s+(?:OR\s+\w+\s+)?INTO|REPLACE\s+INTO|(?<!FOR\s)(?<!DO\s)UPDATE|DELETE\s+FROM)\s+\"?(?!SET\b)(\w+)",
    re.IGNORECASE,
)
STATEMENT = re.compile(r"^\s*(?:SELECT\s.+\sFROM\s|INSERT\s+INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s)", re.DOTALL)
# The kernel makes and checks the schema; the stand-ins and the bench have databases of their own.
KERNEL = {PACKAGE / "ledger", PACKAGE / "standins", PACKAGE / "ops" / "bench"}
HISTORY = {"command", "journal", "event", "ref", "edge"}


def _without_comments(path: Path) -> str:
    return re.sub(r"--[^\n]*", "", path.read_text(encoding="utf-8"))


def _owners() -> dict[str, Path]:
    owners: dict[str, Path] = {}
    for schema in sorted(PACKAGE.rglob("schema.sql")):
        for table in CREATE.findall(_without_comments(schema)):
            assert owners.setdefault(table, schema.parent) == schema.parent, f"{table} is made by two slices"
    return owners


def _writes() -> list[tuple[Path, str]]:
    stores = sorted(PACKAGE.rglob("*.sql"))
    return [
        (store, table)
        for store in stores
        if store.name != "schema.sql" and "migrations" not in store.parts
        for table in WRITE.findall(_without_comments(store))
    ]


def test_the_patterns_see_what_they_must() -> None:
    upsert, lock = "INSERT INTO a VALUES (1) ON CONFLICT DO UPDATE SET x = 1", "SELECT 1 FROM b FOR UPDATE SKIP LOCKED"
    text = f"{upsert}; {lock}; UPDATE c SET x = 1"
    assert WRITE.findall(text) == ["a", "c"]
    assert WRITE.findall("INSERT OR REPLACE INTO d VALUES (1); delete\nfrom e") == ["d", "e"]


def test_each_table_is_written_by_its_own_slice_only() -> None:
    owners = _owners()
    foreign = [f"{short(store)} writes {table}" for store, table in _writes() if owners.get(table) != store.parent]
    assert not foreign


def test_guarded_tables_and_history_are_written_by_the_kernel_only() -> None:
    guarded = {machine.table for machine in machines()} | HISTORY
    direct = [
        f"{short(store)} writes {table}"
        for store, table in _writes()
        if table in guarded and PACKAGE / "ledger" not in store.parents
    ]
    assert not direct, "use tx.born and tx.move"


def test_every_machine_has_its_table() -> None:
    missing = {machine.table for machine in machines()} - set(_owners())
    assert not missing


def test_machines_are_made_in_machine_files() -> None:
    elsewhere = [
        f"{short(path)}:{node.lineno}"
        for path in sources(PACKAGE)
        if path.name != "machine.py"
        for node in nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Machine"
    ]
    assert not elsewhere


def test_statements_live_in_sql_files() -> None:
    inline = [
        f"{short(path)}:{node.lineno}"
        for path in sources(PACKAGE)
        if not KERNEL & set(path.parents)
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.match(node.value)
    ]
    assert not inline, "give the query a name in store.sql"


def test_a_slice_alone_loads_its_queries() -> None:
    foreign = []
    for path in sources(PACKAGE):
        own = ".".join(path.parent.relative_to(PACKAGE.parent).parts)
        for call in calls(path, "queries.load"):
            package = call.args[0]
            assert isinstance(package, ast.Constant), f"{short(path)}:{call.lineno}: name the package"
            if package.value != own:
                foreign.append(f"{short(path)} loads the queries of {package.value!r}")
    assert not foreign
