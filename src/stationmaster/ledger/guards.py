"""What the database itself refuses (K2, K9): the rules, made from the machines, in SQL that both databases speak.

A rule names a table, an event and what must not be true of the row. `sqlite_guards` and `postgres_guards` turn the
rules into triggers; each says how its database recognises an open command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from stationmaster.errors import Bug
from stationmaster.ledger.schema import GUARDED_COLUMNS
from stationmaster.machine import Machine

HISTORY = frozenset({"edge", "command", "journal", "event", "ref"})

# The tables that number their rows from the one sequence of the history.
NUMBERED = ("command", "journal", "event")


class Refusal(NamedTuple):
    """One sentence, and the condition under which it is said."""

    sentence: str
    condition: str


Rules = dict[tuple[str, str], list[Refusal]]


def rules(machines: Sequence[Machine], columns: Mapping[str, Sequence[str]], open_command: str) -> Rules:
    """Returns the refusals by (table, event); `open_command` has a place `{command}` for a command's seq."""
    made: Rules = {}
    for machine in machines:
        made |= _machine(machine, columns, open_command)
    made |= _history(machines, columns, open_command)
    made |= _beside(columns, open_command)
    return made


def fixed(machine: Machine, columns: Iterable[str]) -> list[str]:
    """Returns the columns that never change after birth."""
    moving = machine.moved | set(GUARDED_COLUMNS) - {"id"}
    return [column for column in columns if column not in moving]


def changed(columns: Iterable[str]) -> str:
    """Returns the condition that an update changes one of `columns`."""
    return " OR ".join(f"NEW.{column} IS DISTINCT FROM OLD.{column}" for column in columns)


def _never(table: str, *events: str) -> Rules:
    return {(table, event): [Refusal(f"{event.lower()} is never allowed", "TRUE")] for event in events}


def _closed(open_command: str, command: str) -> str:
    return f"NOT {open_command.format(command=command)}"


def _machine(machine: Machine, columns: Mapping[str, Sequence[str]], open_command: str) -> Rules:
    table = machine.table
    if table not in columns:
        raise Bug(f"BUG: the machine {table} has no table of that name.")
    lost = (set(GUARDED_COLUMNS) | machine.moved) - set(columns[table])
    if lost:
        raise Bug(f"BUG: the table {table} lacks the columns {sorted(lost)}.")
    edge = (
        f"NOT EXISTS (SELECT 1 FROM edge WHERE machine = '{table}' AND from_state = {{origin}}"
        " AND verb = NEW.verb AND to_state = NEW.state)"
    )
    closed = _closed(open_command, "NEW.command")
    return _never(table, "DELETE") | {
        (table, "INSERT"): [
            Refusal("birth outside an open command", closed),
            Refusal("birth with a rev other than 0", "NEW.rev IS DISTINCT FROM 0"),
            Refusal("no such birth", edge.format(origin="''")),
        ],
        (table, "UPDATE"): [
            Refusal("move outside an open command", closed),
            Refusal("a move adds 1 to rev", "NEW.rev IS DISTINCT FROM OLD.rev + 1"),
            Refusal("no such move", edge.format(origin="OLD.state")),
            Refusal("a column fixed at birth was changed", changed(fixed(machine, columns[table]))),
        ],
    }


def _history(machines: Sequence[Machine], columns: Mapping[str, Sequence[str]], open_command: str) -> Rules:
    # A journal row must tell what the entity's own row shows and what is not yet told: only the trigger of the move
    # comes in time for that, so the open command need not be asked for again.
    held = " ".join(
        f"WHEN '{machine.table}' THEN EXISTS (SELECT 1 FROM {machine.table} WHERE id = NEW.entity AND rev = NEW.rev"
        " AND state = NEW.to_state AND verb = NEW.verb AND command = NEW.command)"
        for machine in machines
    )
    told = "EXISTS (SELECT 1 FROM journal WHERE machine = NEW.machine AND entity = NEW.entity AND rev = NEW.rev)"
    intent = "EXISTS (SELECT 1 FROM event WHERE seq = NEW.intent_seq AND kind = 'intent')"
    final = "EXISTS (SELECT 1 FROM event WHERE intent_seq = NEW.intent_seq AND outcome <> 'unknown')"
    kept = [column for column in columns["command"] if column != "sealed"]
    return (
        _never("edge", "INSERT", "UPDATE", "DELETE")
        | _never("command", "DELETE")
        | _never("journal", "UPDATE", "DELETE")
        | _never("event", "UPDATE", "DELETE")
        | _never("ref", "UPDATE", "DELETE")
        | {
            ("command", "INSERT"): [Refusal("a command is born open", "NEW.sealed IS DISTINCT FROM 0")],
            ("command", "UPDATE"): [
                Refusal(
                    "only an open command is sealed",
                    f"OLD.sealed IS DISTINCT FROM 0 OR NEW.sealed IS DISTINCT FROM 1 OR {changed(kept)}",
                )
            ],
            ("journal", "INSERT"): [
                Refusal("row without its move", f"NOT CASE NEW.machine {held} ELSE FALSE END" if held else "TRUE"),
                Refusal("the move is already told", told),
            ],
            ("event", "INSERT"): [
                Refusal("row outside an open command", _closed(open_command, "NEW.command")),
                Refusal("result without its intent", f"NEW.intent_seq IS NOT NULL AND NOT {intent}"),
                Refusal("the intent has its final result", f"NEW.intent_seq IS NOT NULL AND {final}"),
            ],
            ("ref", "INSERT"): [
                Refusal(
                    "row outside an open command",
                    _closed(open_command, "coalesce((SELECT command FROM event WHERE seq = NEW.seq), NEW.seq)"),
                )
            ],
        }
    )


def _beside(columns: Mapping[str, Sequence[str]], open_command: str) -> Rules:
    intent = (
        "EXISTS (SELECT 1 FROM event WHERE seq = NEW.seq AND kind = 'intent' AND action = NEW.action || '.intent'"
        " AND command = NEW.command)"
    )
    kept = [column for column in columns["receipt"] if column not in {"status", "result", "finished"}]
    taker = "NEW.lease_id IS NOT NULL AND NEW.lease_id IS DISTINCT FROM OLD.lease_id"
    same_holder = "NEW.lease_id IS NOT DISTINCT FROM OLD.lease_id"
    return (
        _never("open_intent", "UPDATE")
        | _never("receipt", "DELETE")
        | _never("lease", "DELETE")
        | {
            ("open_intent", "INSERT"): [
                Refusal("row without its intent", f"NOT {intent} OR {_closed(open_command, 'NEW.command')}")
            ],
            ("open_intent", "DELETE"): [
                Refusal("the intent has no result", "NOT EXISTS (SELECT 1 FROM event WHERE intent_seq = OLD.seq)")
            ],
            ("receipt", "INSERT"): [Refusal("row outside an open command", _closed(open_command, "NEW.command"))],
            ("receipt", "UPDATE"): [
                Refusal(
                    "only a pending receipt is finished",
                    f"OLD.status IS DISTINCT FROM 'pending' OR NEW.status = 'pending' OR {changed(kept)}",
                ),
                Refusal("finished outside an open command", _closed(open_command, "NEW.finished")),
            ],
            ("lease", "INSERT"): [Refusal("the first term is 1", "NEW.term IS DISTINCT FROM 1")],
            ("lease", "UPDATE"): [
                Refusal("a lease keeps its kind and key", changed(["kind", "key"])),
                Refusal(
                    "a new holder takes the next term",
                    f"NEW.term IS DISTINCT FROM OLD.term + CASE WHEN {taker} THEN 1 ELSE 0 END",
                ),
                Refusal(
                    "a holder does not change",
                    f"{same_holder} AND ({changed(['owner', 'incarnation', 'subject'])})",
                ),
            ],
        }
    )
