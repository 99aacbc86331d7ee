"""Brings a database to the schema of the code: installs, migrates forward, and refuses what it does not know.

One transaction a database: either all slices are at their newest version with the guards of this code, or nothing
changed. Seeds and data fixes are commands; only the shape of tables and the edges change here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Protocol

from stationmaster import canonical
from stationmaster.errors import Bug, Invalid
from stationmaster.ledger import schema
from stationmaster.ledger.queries import Dialect
from stationmaster.ledger.slices import Slice
from stationmaster.machine import Machine

_STEP = re.compile(r"(\d{4})_\w+\.sql")
_FIRST = 1


class Catalog(Protocol):
    """What a migration asks of one database, inside its transaction."""

    dialect: Dialect

    def execute(self, sql: str, params: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement; returns its rows."""
        ...

    def installed(self) -> bool:
        """Tells whether the database has our tables."""
        ...

    def present_guards(self) -> dict[str, str]:
        """Returns the guards that the database has, by name."""
        ...

    def wanted_guards(self, machines: Sequence[Machine]) -> dict[str, str]:
        """Returns the guards that the code wants for the tables as they are, by name."""
        ...

    def create_guards(self, machines: Sequence[Machine]) -> None:
        """Makes every guard."""
        ...

    def drop_guards(self) -> None:
        """Removes every guard."""
        ...

    def columns(self) -> dict[str, list[str]]:
        """Returns the columns of every table of ours."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """One numbered migration of a slice."""

    version: int
    text: str


def steps(part: Slice) -> list[Step]:
    """Returns the migrations of a slice in order; versions count on from 2, for `schema.sql` alone is version 1."""
    folder = files(part.package).joinpath("migrations")
    if not folder.is_dir():
        return []
    found: list[Step] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if not entry.name.endswith(".sql"):
            continue
        named = _STEP.fullmatch(entry.name)
        if named is None or int(named[1]) != _FIRST + 1 + len(found):
            raise Bug(f"BUG: {part.package}: migration {entry.name} is not numbered on from {_FIRST + 1:04}.")
        found.append(Step(int(named[1]), entry.read_text(encoding="utf-8")))
    return found


def newest(part: Slice) -> int:
    """Returns the version of a slice's `schema.sql`."""
    return _FIRST + len(steps(part))


def schema_text(part: Slice) -> str:
    """Returns the `schema.sql` of a slice; a slice without tables has none."""
    file = files(part.package).joinpath("schema.sql")
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def bring_up(catalog: Catalog, slices: Sequence[Slice], *, restore: bool = False) -> bool:
    """Installs or migrates; raises Invalid when the database is newer, was tampered with, or has other edges.

    `restore` puts the code's guards in place of whatever is there. Returns whether tables were changed.
    """
    machines = all_machines(slices)
    have = _versions(catalog)
    for part in slices:
        if have.get(part.name, (0, ""))[0] > newest(part):
            raise Invalid(
                f"The database is newer than this program: {part.name} is at version {have[part.name][0]},"
                f" known is {newest(part)}.",
                code="database_newer",
                hint="Start the newer program, or restore a backup made by this one.",
            )
    behind = [part for part in slices if have.get(part.name, (0, ""))[0] < newest(part)]
    kernel_print = have.get(slices[0].name, (0, ""))[1]
    if behind:
        # Guards know every column of their tables, so they go before a table changes and come back after.
        catalog.drop_guards()
        for part in behind:
            _change(catalog, part, have)
    wrong = edge_faults(catalog, machines)
    if wrong:
        raise Invalid(
            f"The database has other moves than this program: {wrong[0]}",
            code="edges_differ",
            hint="Add or remove edges in a migration of the slice, never by hand.",
        )
    missing = column_faults(catalog, slices)
    if missing:
        raise Invalid(
            f"The database was made by another build of this program: {missing[0]}",
            code="schema_differs",
            hint="Before the first release no build takes over the tables of another: begin with a new home.",
        )
    _guard(catalog, slices, machines, kernel_print, fresh=restore or bool(behind))
    return bool(behind)


def all_machines(slices: Sequence[Slice]) -> tuple[Machine, ...]:
    """Returns every machine; raises Bug when two slices claim one table."""
    machines = tuple(machine for part in slices for machine in part.machines)
    tables = [machine.table for machine in machines]
    if len(set(tables)) != len(tables):
        raise Bug("BUG: two machines share a table.")
    return machines


def faults(catalog: Catalog, slices: Sequence[Slice]) -> Iterator[str]:
    """Yields one sentence for each way in which the database differs from the code."""
    machines = all_machines(slices)
    have = _versions(catalog)
    for part in slices:
        version = have.get(part.name, (0, ""))[0]
        if version != newest(part):
            yield f"The slice {part.name} is at version {version}, not {newest(part)}; restart to migrate."
    yield from edge_faults(catalog, machines)
    yield from guard_faults(catalog.present_guards(), catalog.wanted_guards(machines))
    yield from column_faults(catalog, slices)
    for (seq,) in catalog.execute("SELECT seq FROM command WHERE sealed = 0 ORDER BY seq LIMIT 20"):
        yield f"The command {seq} was never sealed: somebody wrote past the program; look at its rows in the history."


def column_faults(catalog: Catalog, slices: Sequence[Slice]) -> list[str]:
    """Returns one sentence for each table or column that the code knows and the database lacks."""
    present = catalog.columns()
    found = []
    for part in slices:
        for table, names in schema.columns(schema_text(part)).items():
            if table not in present:
                found.append(f"The table {table} is missing; restore a backup.")
            found += [
                f"The table {table} has no column {name}."
                for name in names
                if table in present and name not in present[table]
            ]
    return found


def edge_faults(catalog: Catalog, machines: Sequence[Machine]) -> list[str]:
    """Returns one sentence for each edge that only the database or only the code has."""
    wanted = {(machine.table, *edge) for machine in machines for edge in machine.edges}
    present = set(catalog.execute("SELECT machine, from_state, verb, to_state FROM edge"))
    said = {"only the database has": present - wanted, "only the program has": wanted - present}
    return [
        f"{who} {table}: {origin or 'birth'} --{verb}--> {to}."
        for who, edges in said.items()
        for table, origin, verb, to in sorted(edges)
    ]


def guard_faults(present: dict[str, str], wanted: dict[str, str]) -> list[str]:
    """Returns one sentence for each guard that is missing, changed or unknown."""
    return (
        [
            f"The guard {name} is missing; nothing stops a write past the program."
            for name in wanted
            if name not in present
        ]
        + [f"The guard {name} was changed." for name, text in wanted.items() if present.get(name, text) != text]
        + [f"The trigger {name} is not ours." for name in present if name not in wanted]
    )


def _versions(catalog: Catalog) -> dict[str, tuple[int, str]]:
    if not catalog.installed():
        return {}
    rows = catalog.execute("SELECT slice, version, guards FROM schema_version")
    return {name: (version, guards) for name, version, guards in rows}


def _change(catalog: Catalog, part: Slice, have: dict[str, tuple[int, str]]) -> None:
    version = have.get(part.name, (0, ""))[0]
    if version == 0:
        for statement in schema.render(schema_text(part), catalog.dialect, part.machines):
            catalog.execute(statement)
        for machine in part.machines:
            for edge in machine.edges:
                catalog.execute(_values("edge", catalog.dialect, 4), (machine.table, *edge))
        catalog.execute(_values("schema_version", catalog.dialect, 3), (part.name, newest(part), ""))
        have[part.name] = (newest(part), "")
        return
    for step in steps(part):
        if step.version > version:
            for statement in schema.render(step.text, catalog.dialect, part.machines):
                catalog.execute(statement)
    catalog.execute(
        f"UPDATE schema_version SET version = {newest(part)} WHERE slice = {_mark(catalog.dialect)}", (part.name,)
    )


def _guard(
    catalog: Catalog, slices: Sequence[Slice], machines: Sequence[Machine], known_print: str, *, fresh: bool
) -> None:
    wanted = catalog.wanted_guards(machines)
    fingerprint = canonical.sha256(canonical.dump(wanted))
    present = catalog.present_guards()
    if present == wanted and known_print == fingerprint:
        return
    if not fresh and known_print == fingerprint:
        raise Invalid(
            f"The guards of the database were changed by hand: {guard_faults(present, wanted)[0]}",
            code="guards_changed",
            hint="Look at it with `stationmaster doctor`, then run `stationmaster restore-guards --reason …`.",
        )
    catalog.drop_guards()
    catalog.create_guards(machines)
    catalog.execute(
        f"UPDATE schema_version SET guards = '{fingerprint}' WHERE slice = {_mark(catalog.dialect)}",
        (slices[0].name,),
    )


def _mark(dialect: Dialect) -> str:
    return "?" if dialect == "sqlite" else "%s"


def _values(table: str, dialect: Dialect, count: int) -> str:
    return f"INSERT INTO {table} VALUES ({', '.join([_mark(dialect)] * count)})"
