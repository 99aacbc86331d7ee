"""The guards of a SQLite database, made from the machines (K2): the last fence, and the one that holds at a prompt.

A guard never trusts a pragma: foreign keys and recursive triggers may be off, and `OR REPLACE` then deletes rows
without a delete trigger, so every insert and update that could push another row out is refused beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stationmaster.errors import Bug
from stationmaster.ledger.schema import GUARDED_COLUMNS, Shape, Unique
from stationmaster.machine import Machine

HISTORY = frozenset({"edge", "command", "journal", "event", "ref"})
KERNEL_GUARDED = HISTORY | {"open_intent", "receipt", "lease"}

NEXT = (
    "max(coalesce((SELECT max(seq) FROM command), 0), coalesce((SELECT max(seq) FROM journal), 0),"
    " coalesce((SELECT max(seq) FROM event), 0)) + 1"
)
# Open means: not sealed, and the newest, so that a command left open by hand serves nobody later.
_OPEN = "EXISTS (SELECT 1 FROM command WHERE seq = {command} AND sealed = 0 AND seq = (SELECT max(seq) FROM command))"
_UNIQUE = "unique: "


def guards(machines: Iterable[Machine], shapes: Mapping[str, Shape]) -> dict[str, str]:
    """Returns every trigger by name for these machines over tables of these shapes."""
    ordered = sorted(machines, key=lambda machine: machine.table)
    made: dict[str, str] = {}
    for machine in ordered:
        made |= _machine(machine, _shape(machine, shapes))
    made |= _journal(ordered)
    made |= _history(shapes)
    made |= _beside(shapes)
    return made


def is_unique_refusal(message: str) -> bool:
    """Tells whether a guard refused a row because another one holds its unique key."""
    return _UNIQUE in message


def _trigger(table: str, when: str, refusals: Iterable[tuple[str, str]]) -> dict[str, str]:
    name = f"guard_{table}_{when.rsplit(maxsplit=1)[-1].lower()}"
    cases = " ".join(f"WHEN {condition} THEN RAISE(ABORT, '{table}: {sentence}')" for sentence, condition in refusals)
    return {name: f"CREATE TRIGGER {name} {when} ON {table} BEGIN SELECT CASE {cases} END; END"}


def _never(table: str, *verbs: str) -> dict[str, str]:
    made: dict[str, str] = {}
    for verb in verbs:
        made |= _trigger(table, f"BEFORE {verb}", [(f"{verb.lower()} is never allowed", "1")])
    return made


def _pushed_out(shape: Shape, uniques: Iterable[Unique], other: str = "") -> Iterable[tuple[str, str]]:
    """Refuses a row whose unique key another row holds: only OR REPLACE could go on, by deleting that row."""
    for unique in uniques:
        equal = " AND ".join(f"{column} = NEW.{column}" for column in unique.columns)
        mine, theirs = "", ""
        if unique.condition is not None:
            mine = f"({unique.condition_of('NEW', shape.columns)}) AND "
            theirs = f" AND ({unique.condition})"
        yield (
            f"{_UNIQUE}{unique.name}",
            f"{mine}EXISTS (SELECT 1 FROM {shape.table} WHERE {equal}{theirs}{other})",
        )
    if shape.rowid and not other:
        yield "the row number is taken", f"EXISTS (SELECT 1 FROM {shape.table} WHERE rowid = NEW.rowid)"


def _shape(machine: Machine, shapes: Mapping[str, Shape]) -> Shape:
    try:
        shape = shapes[machine.table]
    except KeyError:
        raise Bug(f"BUG: the machine {machine.table} has no table of that name.") from None
    lost = (set(GUARDED_COLUMNS) | machine.moved) - set(shape.columns)
    if lost:
        raise Bug(f"BUG: the table {machine.table} lacks the columns {sorted(lost)}.")
    return shape


def _machine(machine: Machine, shape: Shape) -> dict[str, str]:
    table = machine.table
    closed = f"NOT {_OPEN.format(command='NEW.command')}"
    edge = (
        f"NOT EXISTS (SELECT 1 FROM edge WHERE machine = '{table}' AND from_state = {{origin}}"
        " AND verb = NEW.verb AND to_state = NEW.state)"
    )
    free = machine.moved | set(GUARDED_COLUMNS) - {"id"}
    fixed = [column for column in shape.columns if column not in free]
    changed = " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in fixed)
    if shape.rowid:
        changed += " OR NEW.rowid IS NOT OLD.rowid"
    movable = [unique for unique in shape.uniques if unique.mentions(frozenset(free))]
    made = _trigger(
        table,
        "BEFORE INSERT",
        [
            ("birth outside an open command", closed),
            ("birth with a rev other than 0", "NEW.rev IS NOT 0"),
            ("no such birth", edge.format(origin="''")),
            *_pushed_out(shape, shape.uniques),
        ],
    )
    made |= _trigger(
        table,
        "BEFORE UPDATE",
        [
            ("move outside an open command", closed),
            ("a move adds 1 to rev", "NEW.rev IS NOT OLD.rev + 1"),
            ("no such move", edge.format(origin="OLD.state")),
            ("a column fixed at birth was changed", changed),
            *_pushed_out(shape, movable, " AND id IS NOT OLD.id"),
        ],
    )
    made |= _never(table, "DELETE")
    for name, event, origin in (("born", "INSERT", "''"), ("moved", "UPDATE", "OLD.state")):
        made[f"journal_{table}_{name}"] = (
            f"CREATE TRIGGER journal_{table}_{name} AFTER {event} ON {table} BEGIN"
            " INSERT INTO journal (seq, machine, entity, rev, from_state, verb, to_state, command)"
            f" VALUES ({NEXT}, '{table}', NEW.id, NEW.rev, {origin}, NEW.verb, NEW.state, NEW.command); END"
        )
    return made


def _journal(machines: Iterable[Machine]) -> dict[str, str]:
    # A row must tell a move that the entity's own row shows: what a hand could write here is only the truth.
    held = " ".join(
        f"WHEN '{machine.table}' THEN EXISTS (SELECT 1 FROM {machine.table} WHERE id = NEW.entity AND rev = NEW.rev"
        " AND state = NEW.to_state AND verb = NEW.verb AND command = NEW.command)"
        for machine in machines
    )
    true = f"CASE NEW.machine {held} ELSE 0 END" if held else "0"
    doubled = "EXISTS (SELECT 1 FROM journal WHERE machine = NEW.machine AND entity = NEW.entity AND rev = NEW.rev)"
    return _trigger(
        "journal",
        "BEFORE INSERT",
        [
            ("seq out of order", f"NEW.seq IS NOT {NEXT}"),
            # A true row that is not yet told was told by the trigger of its move, under an open command.
            ("row without its move", f"NOT {true}"),
            ("the move is already told", doubled),
        ],
    ) | _never("journal", "UPDATE", "DELETE")


def _history(shapes: Mapping[str, Shape]) -> dict[str, str]:
    made = _never("edge", "INSERT", "UPDATE", "DELETE")
    made |= _trigger(
        "command",
        "BEFORE INSERT",
        [("seq out of order", f"NEW.seq IS NOT {NEXT}"), ("a command is born open", "NEW.sealed IS NOT 0")],
    )
    kept = [column for column in shapes["command"].columns if column != "sealed"]
    rewritten = " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in kept)
    made |= _trigger(
        "command",
        "BEFORE UPDATE",
        [("only an open command is sealed", f"OLD.sealed IS NOT 0 OR NEW.sealed IS NOT 1 OR {rewritten}")],
    )
    made |= _never("command", "DELETE")
    intent = "EXISTS (SELECT 1 FROM event WHERE seq = NEW.intent_seq AND kind = 'intent')"
    final = "EXISTS (SELECT 1 FROM event WHERE intent_seq = NEW.intent_seq AND outcome <> 'unknown')"
    made |= _trigger(
        "event",
        "BEFORE INSERT",
        [
            ("seq out of order", f"NEW.seq IS NOT {NEXT}"),
            ("row outside an open command", f"NOT {_OPEN.format(command='NEW.command')}"),
            ("result without its intent", f"NEW.intent_seq IS NOT NULL AND NOT {intent}"),
            ("the intent has its final result", f"NEW.intent_seq IS NOT NULL AND {final}"),
        ],
    )
    made |= _never("event", "UPDATE", "DELETE")
    owner = "coalesce((SELECT command FROM event WHERE seq = NEW.seq), NEW.seq)"
    made |= _trigger(
        "ref",
        "BEFORE INSERT",
        [
            ("row outside an open command", f"NOT {_OPEN.format(command=owner)}"),
            (
                "the row exists",
                "EXISTS (SELECT 1 FROM ref WHERE kind = NEW.kind AND value = NEW.value AND seq = NEW.seq)",
            ),
        ],
    )
    return made | _never("ref", "UPDATE", "DELETE")


def _beside(shapes: Mapping[str, Shape]) -> dict[str, str]:
    intent = (
        "EXISTS (SELECT 1 FROM event WHERE seq = NEW.seq AND kind = 'intent' AND action = NEW.action || '.intent'"
        " AND command = NEW.command)"
    )
    made = _trigger(
        "open_intent",
        "BEFORE INSERT",
        [
            ("row without its intent", f"NOT {intent} OR NOT {_OPEN.format(command='NEW.command')}"),
            ("the row exists", "EXISTS (SELECT 1 FROM open_intent WHERE seq = NEW.seq)"),
        ],
    )
    made |= _never("open_intent", "UPDATE")
    made |= _trigger(
        "open_intent",
        "BEFORE DELETE",
        [("the intent has no result", "NOT EXISTS (SELECT 1 FROM event WHERE intent_seq = OLD.seq)")],
    )
    made |= _trigger(
        "receipt",
        "BEFORE INSERT",
        [
            ("row outside an open command", f"NOT {_OPEN.format(command='NEW.command')}"),
            ("the row exists", "EXISTS (SELECT 1 FROM receipt WHERE name = NEW.name AND dedupe = NEW.dedupe)"),
        ],
    )
    kept = [column for column in shapes["receipt"].columns if column not in {"status", "result", "finished"}]
    rewritten = " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in kept)
    made |= _trigger(
        "receipt",
        "BEFORE UPDATE",
        [
            (
                "only a pending receipt is finished",
                f"OLD.status IS NOT 'pending' OR NEW.status IS 'pending' OR {rewritten}",
            ),
            ("finished outside an open command", f"NOT {_OPEN.format(command='NEW.finished')}"),
        ],
    )
    made |= _never("receipt", "DELETE")
    made |= _trigger(
        "lease",
        "BEFORE INSERT",
        [
            ("the first term is 1", "NEW.term IS NOT 1"),
            ("the row exists", "EXISTS (SELECT 1 FROM lease WHERE kind = NEW.kind AND key = NEW.key)"),
        ],
    )
    holder = "NEW.lease_id IS NOT NULL AND NEW.lease_id IS NOT OLD.lease_id"
    same = " AND ".join(f"NEW.{column} IS OLD.{column}" for column in ("owner", "incarnation", "subject"))
    made |= _trigger(
        "lease",
        "BEFORE UPDATE",
        [
            ("a lease keeps its kind and key", "NEW.kind IS NOT OLD.kind OR NEW.key IS NOT OLD.key"),
            ("a new holder takes the next term", f"NEW.term IS NOT OLD.term + ({holder})"),
            ("a holder does not change", f"NEW.lease_id IS OLD.lease_id AND NOT ({same})"),
        ],
    )
    return made | _never("lease", "DELETE")
