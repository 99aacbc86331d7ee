"""The guards as PostgreSQL triggers; the functions look only into our schema, whatever a session's search path says.

The functions that write the journal run as its owner: the role that runs the product cannot write it by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stationmaster.ledger import guards
from stationmaster.ledger.guards import Refusal
from stationmaster.machine import Machine

# Class SM is ours; the sentence of a guard names tables and columns, never values.
REFUSED = "SM001"

# Open means: not sealed, and opened by this very transaction.
OPEN = (
    "EXISTS (SELECT 1 FROM command WHERE seq = {command} AND sealed = 0"
    " AND tx = CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT))"
)
# The number and the transaction of a row are never the writer's choice. The transaction takes its id before its first
# number: so all its numbers are higher than those given before the id, which is what `horizon` rests on.
_NUMBER = "NEW.seq := nextval('history_seq');"
_PROLOGUE = {
    ("command", "INSERT"): (
        "NEW.tx := CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT);"
        f" {_NUMBER} NEW.base := least(coalesce(NEW.base, 0), NEW.seq - 1);"
    ),
    ("journal", "INSERT"): _NUMBER,
    ("event", "INSERT"): _NUMBER,
}


class Function(NamedTuple):
    """A trigger function: its body, and whether it runs as its owner."""

    body: str
    as_owner: bool


class Made(NamedTuple):
    """Every function and trigger by name; a trigger is its table, when it fires, and its function."""

    functions: dict[str, Function]
    triggers: dict[str, tuple[str, str, str]]


def make(machines: Sequence[Machine], columns: Mapping[str, Sequence[str]]) -> Made:
    """Returns the guards for these machines over tables with these columns."""
    ordered = sorted(machines, key=lambda machine: machine.table)
    rules = guards.rules(ordered, columns, OPEN)
    made = Made({}, {})
    for (table, event), refusals in rules.items():
        name = f"guard_{table}_{event.lower()}"
        made.functions[name] = Function(_body(table, event, refusals), as_owner=False)
        made.triggers[name] = (table, f"BEFORE {event} ON {table} FOR EACH ROW", name)
    made.functions["guard_truncate"] = Function(
        f" BEGIN RAISE EXCEPTION '%: truncate is never allowed', TG_TABLE_NAME USING ERRCODE = '{REFUSED}'; END ",
        as_owner=False,
    )
    for table in sorted({table for table, _ in rules}):
        made.triggers[f"guard_{table}_truncate"] = (
            table,
            f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT",
            "guard_truncate",
        )
    for name, event, origin in (("born", "INSERT", "''"), ("moved", "UPDATE", "OLD.state")):
        made.functions[f"journal_{name}"] = Function(
            " BEGIN INSERT INTO journal (machine, entity, rev, from_state, verb, to_state, command)"
            f" VALUES (TG_TABLE_NAME, NEW.id, NEW.rev, {origin}, NEW.verb, NEW.state, NEW.command); RETURN NULL; END ",
            as_owner=True,
        )
        for machine in ordered:
            made.triggers[f"journal_{machine.table}_{name}"] = (
                machine.table,
                f"AFTER {event} ON {machine.table} FOR EACH ROW",
                f"journal_{name}",
            )
    return made


def _body(table: str, event: str, refusals: Sequence[Refusal]) -> str:
    checks = " ".join(
        f"IF ({condition}) THEN RAISE EXCEPTION '{table}: {sentence}' USING ERRCODE = '{REFUSED}'; END IF;"
        for sentence, condition in refusals
    )
    row = "OLD" if event == "DELETE" else "NEW"
    return f" BEGIN {_PROLOGUE.get((table, event), '')} {checks} RETURN {row}; END "
