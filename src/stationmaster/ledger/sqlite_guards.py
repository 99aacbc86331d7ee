"""The guards as SQLite triggers; they trust no pragma, for a plain prompt has foreign keys and recursive triggers off.

`OR REPLACE` deletes the rows in its way without a delete trigger, and inside triggers too; so whatever could push
another row out (by key, by a unique index, by row number) is refused before it happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stationmaster.ledger import guards
from stationmaster.ledger.guards import Refusal, Rules
from stationmaster.ledger.schema import GUARDED_COLUMNS, Shape
from stationmaster.machine import Machine

# Both run for every row of the history, so they are written for speed: the last row of a tree is one step away, an
# aggregate over it is a dozen.
_NEWEST = "coalesce((SELECT seq FROM {table} ORDER BY seq DESC LIMIT 1), 0)"
NEXT = f"max({', '.join(_NEWEST.format(table=table) for table in guards.NUMBERED)}) + 1"
# Open means: not sealed, and the newest, so that a command left open by hand serves nobody later.
OPEN = "coalesce({command} = (SELECT CASE sealed WHEN 0 THEN seq END FROM command ORDER BY seq DESC LIMIT 1), 0)"
_UNIQUE = "unique: "


def triggers(machines: Sequence[Machine], shapes: Mapping[str, Shape]) -> dict[str, str]:
    """Returns every trigger by name for these machines over tables of these shapes."""
    ordered = sorted(machines, key=lambda machine: machine.table)
    made = guards.rules(ordered, {table: shape.columns for table, shape in shapes.items()}, OPEN)
    # Not the journal: what its own rules let through was written by a teller, which takes the next number.
    for table in ("command", "event"):
        made[table, "INSERT"].insert(0, Refusal("seq out of order", f"NEW.seq IS DISTINCT FROM {NEXT}"))
    for table in sorted({table for table, _ in made} - {"edge", *guards.NUMBERED}):
        made[table, "INSERT"] += _pushed_out(shapes[table])
    for machine in ordered:
        _hold_place(made, machine, shapes[machine.table])
    found = {f"guard_{table}_{event.lower()}": _guard(table, event, made[table, event]) for table, event in made}
    for machine in ordered:
        found |= _tellers(machine.table)
    return found


def is_unique_refusal(message: str) -> bool:
    """Tells whether a guard refused a row because another one holds its unique key."""
    return _UNIQUE in message


def _hold_place(made: Rules, machine: Machine, shape: Shape) -> None:
    moving = frozenset(shape.columns) - frozenset(guards.fixed(machine, shape.columns))
    made[machine.table, "UPDATE"] += _pushed_out(shape, among=moving)
    if shape.rowid:
        made[machine.table, "UPDATE"].append(
            Refusal("the row number was changed", "NEW.rowid IS DISTINCT FROM OLD.rowid")
        )


def _pushed_out(shape: Shape, among: frozenset[str] | None = None) -> Iterator[Refusal]:
    """Yields a refusal for each way to take another row's place; `among` are the columns that an update can change."""
    for unique in shape.uniques:
        if among is not None and not unique.mentions(among):
            continue
        equal = " AND ".join(f"{column} = NEW.{column}" for column in unique.columns)
        mine, theirs = "", ""
        if unique.condition is not None:
            mine = f"({unique.condition_of('NEW', shape.columns)}) AND "
            theirs = f" AND ({unique.condition})"
        other = "" if among is None else f" AND {GUARDED_COLUMNS[0]} <> OLD.{GUARDED_COLUMNS[0]}"
        yield Refusal(
            f"{_UNIQUE}{unique.name}", f"{mine}EXISTS (SELECT 1 FROM {shape.table} WHERE {equal}{theirs}{other})"
        )
    if shape.rowid and among is None:
        yield Refusal("the row number is taken", f"EXISTS (SELECT 1 FROM {shape.table} WHERE rowid = NEW.rowid)")


def _guard(table: str, event: str, refusals: Sequence[Refusal]) -> str:
    cases = " ".join(f"WHEN {condition} THEN RAISE(ABORT, '{table}: {sentence}')" for sentence, condition in refusals)
    name = f"guard_{table}_{event.lower()}"
    return f"CREATE TRIGGER {name} BEFORE {event} ON {table} BEGIN SELECT CASE {cases} END; END"


def _tellers(table: str) -> dict[str, str]:
    made = {}
    for name, event, origin in (("born", "INSERT", "''"), ("moved", "UPDATE", "OLD.state")):
        made[f"journal_{table}_{name}"] = (
            f"CREATE TRIGGER journal_{table}_{name} AFTER {event} ON {table} BEGIN"
            " INSERT INTO journal (seq, machine, entity, rev, from_state, verb, to_state, command)"
            f" VALUES ({NEXT}, '{table}', NEW.id, NEW.rev, {origin}, NEW.verb, NEW.state, NEW.command); END"
        )
    return made
