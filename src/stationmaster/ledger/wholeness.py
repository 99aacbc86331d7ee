"""Whether a ledger tells one story: every guarded row is what its journal ends with, and nothing is left out.

Reads only. Guards make all of this so; a copy, a restored database or a file that somebody edited is asked to prove it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stationmaster.ledger.migrate import Catalog
from stationmaster.machine import Machine


def counts(catalog: Catalog) -> dict[str, int]:
    """Returns how many rows every table has."""
    return {table: _number(catalog, f"SELECT count(*) FROM {table}") for table in sorted(catalog.columns())}


def newest(catalog: Catalog) -> int:
    """Returns the last number of the history; 0 when nothing ever happened."""
    return _number(
        catalog,
        "SELECT max(n) FROM (SELECT coalesce(max(seq), 0) AS n FROM command UNION ALL"
        " SELECT coalesce(max(seq), 0) FROM journal UNION ALL SELECT coalesce(max(seq), 0) FROM event) AS ends",
    )


def broken(catalog: Catalog, machines: Sequence[Machine]) -> list[str]:
    """Returns one sentence for each way in which rows and history contradict one another."""
    return [*_numbers(catalog), *_journal(catalog), *_rows(catalog, machines), *_loose_ends(catalog)]


def _numbers(catalog: Catalog) -> Iterator[str]:
    numbers = "(SELECT seq FROM command UNION ALL SELECT seq FROM journal UNION ALL SELECT seq FROM event) AS all_rows"
    total = _number(catalog, f"SELECT count(*) FROM {numbers}")
    if total != _number(catalog, f"SELECT count(DISTINCT seq) FROM {numbers}"):
        yield "The history has two rows of one number."
    # A sequence of PostgreSQL skips what was rolled back; SQLite's numbers are counted on without a gap.
    last = newest(catalog)
    if catalog.dialect == "sqlite" and total != last:
        yield f"The history has {total} rows but counts to {last}: rows are missing."


def _journal(catalog: Catalog) -> Iterator[str]:
    gaps = _number(
        catalog,
        "SELECT count(*) FROM (SELECT machine, entity FROM journal GROUP BY machine, entity"
        " HAVING count(*) <> max(rev) + 1 OR min(rev) <> 0) AS gaps",
    )
    if gaps:
        yield f"The journal of {gaps} things has a gap."
    breaks = _number(
        catalog,
        "SELECT count(*) FROM journal a JOIN journal b ON b.machine = a.machine AND b.entity = a.entity"
        " AND b.rev = a.rev + 1 WHERE b.from_state <> a.to_state",
    )
    if breaks:
        yield f"{breaks} moves in the journal begin elsewhere than the move before them ended."


def _rows(catalog: Catalog, machines: Sequence[Machine]) -> Iterator[str]:
    for machine in machines:
        table = machine.table
        apart = _number(
            catalog,
            f"SELECT count(*) FROM {table} t LEFT JOIN journal j ON j.machine = '{table}' AND j.entity = t.id"
            " AND j.rev = t.rev WHERE j.seq IS NULL OR j.to_state <> t.state OR j.verb <> t.verb"
            " OR j.command <> t.command",
        )
        if apart:
            yield f"{apart} rows of {table} are not where their journal ends."
        lost = _number(
            catalog,
            f"SELECT count(*) FROM journal j LEFT JOIN {table} t ON t.id = j.entity"
            f" WHERE j.machine = '{table}' AND (t.id IS NULL OR j.rev > t.rev)",
        )
        if lost:
            yield f"{lost} moves of {table} have no row that made them."


def _loose_ends(catalog: Catalog) -> Iterator[str]:
    for table in ("journal", "event"):
        loose = _number(
            catalog, f"SELECT count(*) FROM {table} r LEFT JOIN command c ON c.seq = r.command WHERE c.seq IS NULL"
        )
        if loose:
            yield f"{loose} rows of {table} belong to no command."


def _number(catalog: Catalog, sql: str) -> int:
    return int(catalog.execute(sql)[0][0])
