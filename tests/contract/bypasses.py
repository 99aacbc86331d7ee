"""Ways past the ledger that a tired person at a prompt, or a wrong statement, could try; every one must be refused.

`{next}` is the next history number, `{open}` a command that the same transaction opened by hand, `{sealed}` an old one.
"""

from __future__ import annotations

from dataclasses import dataclass

_ROW = "(id, state, rev, verb, command, address, tracking, attempts)"
OPEN = (
    "INSERT INTO command (seq, name, actor, cause, args_hash, at, sealed)"
    " VALUES ({next}, 'by hand', 'me', 'prompt', 'none', 1, 0)"
)


@dataclass(frozen=True)
class Bypass:
    """Statements of one transaction; the last one is what must be refused."""

    name: str
    statements: tuple[str, ...]
    only: str | None = None
    # Without the guards it fails as well, for another reason (a unique index, a right, the guard itself is the way).
    doubly: bool = False
    # PostgreSQL: who owns the tables may do it, which is why the product runs as another role.
    owner_may: bool = False

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def _plain(name: str, sql: str, *, doubly: bool = False) -> Bypass:
    return Bypass(name, (sql,), doubly=doubly)


def _opened(name: str, *sql: str, doubly: bool = False) -> Bypass:
    return Bypass(name, (OPEN, *sql), doubly=doubly)


def _sqlite(name: str, *sql: str, opened: bool = False, doubly: bool = False) -> Bypass:
    return Bypass(name, (OPEN, *sql) if opened else sql, only="sqlite", doubly=doubly)


def _birth(parcel: str, state: str, rev: str, verb: str, command: str, insert: str = "INSERT") -> str:
    row = f"'{parcel}', '{state}', {rev}, '{verb}', {command}, 'far', 't-{parcel}', 0"
    return f"{insert} INTO parcel {_ROW} VALUES ({row})"


COLLECT = "state = 'travelling', rev = 1, verb = 'collect', command = {open}"

GUARDED = (
    _plain("state alone", "UPDATE parcel SET state = 'delivered' WHERE id = 'p1'"),
    _plain("state and rev", "UPDATE parcel SET state = 'travelling', rev = 1 WHERE id = 'p1'"),
    _plain(
        "a move under a sealed command",
        "UPDATE parcel SET state = 'travelling', rev = 1, verb = 'collect' WHERE id = 'p1'",
    ),
    _plain("rev alone", "UPDATE parcel SET rev = 1 WHERE id = 'p1'"),
    _plain("verb alone", "UPDATE parcel SET verb = 'collect' WHERE id = 'p1'"),
    _plain("an update that changes nothing", "UPDATE parcel SET state = state WHERE id = 'p1'"),
    _plain("a moved column without a move", "UPDATE parcel SET carrier = 'bike' WHERE id = 'p1'"),
    _plain("delete", "DELETE FROM parcel WHERE id = 'p1'"),
    _plain("delete all", "DELETE FROM parcel"),
    _plain("re-key", "UPDATE parcel SET id = 'p9' WHERE id = 'p1'"),
    _plain("birth under a sealed command", _birth("p8", "posted", "0", "post", "{sealed}")),
    _plain("birth under no command", _birth("p8", "posted", "0", "post", "99999")),
    _plain("birth in a late state", _birth("p8", "delivered", "0", "post", "{sealed}")),
    _opened("birth in a late state, open command", _birth("p8", "delivered", "0", "deliver", "{open}")),
    _opened("birth by a later verb", _birth("p8", "posted", "0", "lose", "{open}")),
    _opened("birth at a later rev", _birth("p8", "posted", "4", "post", "{open}")),
    _opened("command alone", "UPDATE parcel SET command = {open} WHERE id = 'p1'"),
    _opened(
        "off the table",
        "UPDATE parcel SET state = 'delivered', rev = 1, verb = 'deliver', command = {open} WHERE id = 'p1'",
    ),
    _opened(
        "a legal verb to another state",
        "UPDATE parcel SET state = 'recalled', rev = 1, verb = 'collect', command = {open} WHERE id = 'p1'",
    ),
    _opened(
        "rev jumps",
        "UPDATE parcel SET state = 'travelling', rev = 2, verb = 'collect', command = {open} WHERE id = 'p1'",
    ),
    _opened(
        "rev stays",
        "UPDATE parcel SET state = 'travelling', rev = 0, verb = 'collect', command = {open} WHERE id = 'p1'",
    ),
    _opened("a fixed column in a move", f"UPDATE parcel SET {COLLECT}, address = 'x' WHERE id = 'p1'"),
    _opened("re-key in a move", f"UPDATE parcel SET {COLLECT}, id = 'p9' WHERE id = 'p1'"),
    _opened("delete inside an open command", "DELETE FROM parcel WHERE id = 'p1'"),
    Bypass(
        "a command left open by hand",
        (
            OPEN,
            OPEN,
            "UPDATE parcel SET state = 'travelling', rev = 1, verb = 'collect', command = {open} - 1 WHERE id = 'p1'",
        ),
    ),
)

_TOLD = "(seq, machine, entity, rev, from_state, verb, to_state, command)"
_TOLD_ONCE = "machine, entity, rev, from_state, verb, to_state"
_COLLECTED = "{next}, 'parcel', 'p1', 1, 'posted', 'collect', 'travelling'"
_EVENT = "(seq, action, kind, intent_seq, outcome, data, at, command)"
_INTENT = "(SELECT min(seq) FROM event WHERE kind = 'intent')"
_CLOSED = "(SELECT min(intent_seq) FROM event WHERE kind = 'result')"

HISTORY = (
    _plain(
        "a journal row by hand",
        f"INSERT INTO journal {_TOLD} VALUES ({_COLLECTED}, {{sealed}})",
    ),
    _opened(
        "a journal row without its move",
        f"INSERT INTO journal {_TOLD} VALUES ({_COLLECTED}, {{open}})",
    ),
    _opened(
        "a journal row of no machine",
        f"INSERT INTO journal {_TOLD} VALUES ({{next}}, 'note', 'p1', 0, '', 'post', 'posted', {{open}})",
    ),
    _plain(
        "a doubled journal row",
        f"INSERT INTO journal {_TOLD} SELECT {{next}}, {_TOLD_ONCE}, command FROM journal WHERE entity = 'p1'",
        doubly=True,
    ),
    _plain("rewrite the journal", "UPDATE journal SET verb = 'recall'"),
    _plain("erase the journal", "DELETE FROM journal"),
    _plain("widen the rules", "INSERT INTO edge VALUES ('parcel', 'posted', 'jump', 'delivered')"),
    _plain("bend the rules", "UPDATE edge SET to_state = 'delivered' WHERE verb = 'collect'"),
    _plain("erase the rules", "DELETE FROM edge"),
    _plain("change who", "UPDATE command SET actor = 'someone else'"),
    _plain("change when", "UPDATE command SET at = 7"),
    _plain("unseal", "UPDATE command SET sealed = 0"),
    _plain("seal again", "UPDATE command SET sealed = 1"),
    _opened("seal and rename", "UPDATE command SET sealed = 1, name = 'other' WHERE seq = {open}"),
    _plain("erase a command", "DELETE FROM command WHERE seq = {sealed}"),
    _plain("a command born sealed", OPEN.replace("1, 0)", "1, 1)")),
    _plain("rewrite an event", "UPDATE event SET data = '{{}}', outcome = outcome"),
    _plain("erase an event", "DELETE FROM event WHERE kind = 'result'"),
    _plain(
        "an event under a sealed command",
        f"INSERT INTO event {_EVENT} VALUES ({{next}}, 'x', 'observation', NULL, NULL, '{{{{}}}}', 1, {{sealed}})",
    ),
    _opened(
        "a result without its intent",
        f"INSERT INTO event {_EVENT} VALUES ({{next}}, 'x', 'result', {{sealed}}, 'done', '{{{{}}}}', 1, {{open}})",
    ),
    _opened(
        "a second final result",
        f"INSERT INTO event {_EVENT} VALUES ({{next}}, 'x', 'result', {_CLOSED}, 'failed', '{{{{}}}}', 1, {{open}})",
        doubly=True,
    ),
    _plain("rewrite a ref", "UPDATE ref SET value = 'other'"),
    _plain("erase a ref", "DELETE FROM ref"),
    _plain("a ref of an old command", "INSERT INTO ref VALUES ('task', 'other', {sealed})"),
    _plain("a ref of an old event", f"INSERT INTO ref VALUES ('task', 'other', {_INTENT})"),
)

BESIDE = (
    _plain("forget an intent", "DELETE FROM open_intent"),
    _plain("turn an intent", "UPDATE open_intent SET subject = 'other'"),
    _plain("an intent nobody wrote", "INSERT INTO open_intent VALUES ({sealed}, 'x', 'y', {sealed}, 1)"),
    _plain("rewrite an answer", "UPDATE receipt SET result = '1' WHERE status = 'done'"),
    _plain(
        "finish outside a command", "UPDATE receipt SET status = 'done', finished = {sealed} WHERE status = 'pending'"
    ),
    _opened(
        "turn a receipt",
        "UPDATE receipt SET status = 'done', finished = {open}, args_hash = 'x' WHERE status = 'pending'",
    ),
    _plain("forget an answer", "DELETE FROM receipt"),
    _plain("an answer nobody gave", "INSERT INTO receipt VALUES ('x', 'y', 'h', 'done', '1', {sealed}, NULL)"),
    _plain("take a term back", "UPDATE lease SET term = term - 1 WHERE term > 1"),
    _plain("a term out of turn", "UPDATE lease SET term = term + 1"),
    _plain("hand a lease over under its term", "UPDATE lease SET lease_id = 'other'"),
    _plain("change a holder", "UPDATE lease SET owner = 'other'"),
    _plain("forget the terms", "DELETE FROM lease"),
    _plain("a first term above 1", "INSERT INTO lease (kind, key, term) VALUES ('road', 'new', 7)"),
)

_P1 = "(SELECT rowid FROM parcel WHERE id = 'p1')"

REPLACE = (
    _sqlite("replace a row", _birth("p1", "posted", "0", "post", "{open}", "INSERT OR REPLACE"), opened=True),
    _sqlite("replace into", _birth("p1", "posted", "0", "post", "{open}", "REPLACE"), opened=True),
    _sqlite(
        "replace by row number",
        "INSERT OR REPLACE INTO parcel (rowid, id, state, rev, verb, command, address, tracking, attempts)"
        f" VALUES ({_P1}, 'p8', 'posted', 0, 'post', {{open}}, 'far', 't-p8', 0)",
        opened=True,
    ),
    _sqlite(
        "replace by a unique column",
        f"INSERT OR REPLACE INTO parcel {_ROW} VALUES ('p8', 'posted', 0, 'post', {{open}}, 'far', 't-p1', 0)",
        opened=True,
    ),
    _sqlite(
        "replace by its id alone",
        f"INSERT OR REPLACE INTO parcel {_ROW} VALUES ('p1', 'posted', 0, 'post', {{open}}, 'far', 't-p8', 0)",
        opened=True,
    ),
    _sqlite(
        "replace by a unique column that may be empty",
        f"INSERT OR REPLACE INTO parcel {_ROW[:-1]}, berth)"
        " VALUES ('p8', 'posted', 0, 'post', {open}, 'far', 't-p8', 0, 'b1')",
        opened=True,
    ),
    _sqlite(
        "push out by a moved unique column",
        f"UPDATE OR REPLACE parcel SET {COLLECT}, berth = 'b2' WHERE id = 'p1'",
        opened=True,
    ),
    _sqlite("push out by a partial index", f"UPDATE OR REPLACE parcel SET {COLLECT} WHERE id = 'p3'", opened=True),
    _sqlite(
        "push out by row number",
        f"UPDATE OR REPLACE parcel SET {COLLECT}, rowid = (SELECT rowid FROM parcel WHERE id = 'p2') WHERE id = 'p1'",
        opened=True,
    ),
    _sqlite(
        "change the row number", f"UPDATE parcel SET {COLLECT}, rowid = 99 WHERE id = 'p1'", opened=True, doubly=True
    ),
    _sqlite("ignore the refusal", "UPDATE OR IGNORE parcel SET state = 'delivered' WHERE id = 'p1'"),
    _sqlite("fail half way", "UPDATE OR FAIL parcel SET state = 'delivered'"),
    _sqlite(
        "upsert",
        _birth("p1", "posted", "0", "post", "{open}") + " ON CONFLICT (id) DO UPDATE SET state = 'delivered'",
        opened=True,
    ),
    _sqlite(
        "replace the journal",
        f"INSERT OR REPLACE INTO journal {_TOLD} SELECT seq, {_TOLD_ONCE}, {{sealed}} FROM journal",
    ),
    _sqlite(
        "replace the journal by its key",
        f"INSERT OR REPLACE INTO journal SELECT {{next}}, {_TOLD_ONCE}, {{open}} FROM journal WHERE entity = 'p1'",
        opened=True,
    ),
    _sqlite(
        "renumber the journal",
        f"INSERT OR REPLACE INTO journal SELECT {{next}}, {_TOLD_ONCE}, command FROM journal WHERE entity = 'p1'",
    ),
    _sqlite(
        "an event out of order",
        f"INSERT INTO event {_EVENT} VALUES ({{next}} + 7, 'x', 'observation', NULL, NULL, '{{{{}}}}', 1, {{open}})",
        opened=True,
    ),
    _sqlite("replace the rules", "INSERT OR REPLACE INTO edge VALUES ('parcel', 'posted', 'collect', 'delivered')"),
    _sqlite(
        "replace who",
        "INSERT OR REPLACE INTO command SELECT seq, name, 'other', cause, dedupe, args_hash, at, 0, 1, 1 FROM command",
    ),
    _sqlite("push out a command", "UPDATE OR REPLACE command SET seq = seq + 1"),
    _sqlite(
        "replace an event",
        "INSERT OR REPLACE INTO event SELECT seq, 'other', kind, intent_seq, outcome, data, at, command FROM event",
    ),
    _sqlite(
        "replace a result",
        f"INSERT OR REPLACE INTO event VALUES ({{next}}, 'x', 'result', {_CLOSED}, 'failed', '{{{{}}}}', 1, {{open}})",
        opened=True,
    ),
    _sqlite("replace a ref", "INSERT OR REPLACE INTO ref SELECT kind, value, seq FROM ref", doubly=True),
    _sqlite("push out a ref", "UPDATE OR REPLACE ref SET value = 'same'"),
    _sqlite(
        "replace an open intent",
        "INSERT OR REPLACE INTO open_intent SELECT seq, action, 'other', command, at FROM open_intent",
    ),
    _sqlite(
        "turn an intent in its own command",
        f"INSERT INTO event {_EVENT} VALUES ({{next}}, 'x.intent', 'intent', NULL, NULL, '{{{{}}}}', 1, {{open}})",
        "INSERT INTO open_intent SELECT seq, 'x', 'y', command, 1 FROM event ORDER BY seq DESC LIMIT 1",
        "INSERT OR REPLACE INTO open_intent SELECT seq, 'x', 'z', command, 1 FROM event ORDER BY seq DESC LIMIT 1",
        opened=True,
    ),
    _sqlite(
        "answer again",
        "INSERT OR REPLACE INTO receipt SELECT name, dedupe, args_hash, 'done', '1', {open}, NULL FROM receipt",
        opened=True,
    ),
    _sqlite(
        "replace an answer",
        "INSERT OR REPLACE INTO receipt SELECT name, dedupe, args_hash, 'done', '1', command, NULL FROM receipt",
    ),
    _sqlite("replace a lease", "INSERT OR REPLACE INTO lease (kind, key, term) SELECT kind, key, 1 FROM lease"),
    _sqlite("push out a lease", "UPDATE OR REPLACE lease SET key = 'same'"),
)

SHADOW = (
    Bypass(
        "a table of rules of one's own",
        (
            "CREATE TEMPORARY TABLE edge (machine TEXT, from_state TEXT, verb TEXT, to_state TEXT)",
            "INSERT INTO edge VALUES ('parcel', 'posted', 'jump', 'delivered')",
            OPEN,
            "UPDATE parcel SET state = 'delivered', rev = 1, verb = 'jump', command = {open} WHERE id = 'p1'",
        ),
    ),
    Bypass(
        "a command of one's own",
        (
            "CREATE TEMPORARY TABLE mine AS SELECT * FROM command",
            "UPDATE mine SET sealed = 0",
            "ALTER TABLE mine RENAME TO command",
            "UPDATE parcel SET state = 'travelling', rev = 1, verb = 'collect' WHERE id = 'p1'",
        ),
    ),
)


def _postgres(name: str, *sql: str, owner_may: bool = False, doubly: bool = False) -> Bypass:
    return Bypass(name, sql, only="postgres", owner_may=owner_may, doubly=doubly)


POSTGRES = (
    *(
        _postgres(f"truncate {table}", f"TRUNCATE {table} CASCADE")
        for table in ("parcel", "command", "journal", "event", "ref", "edge", "receipt", "lease", "open_intent")
    ),
    _postgres(
        "merge",
        "MERGE INTO parcel USING (SELECT 1) AS x ON id = 'p1' WHEN MATCHED THEN UPDATE SET state = 'delivered'",
    ),
    _postgres(
        "a move inside a query", "WITH x AS (UPDATE parcel SET state = 'delivered' RETURNING id) SELECT * FROM x"
    ),
    _postgres("switch the guards off", "ALTER TABLE parcel DISABLE TRIGGER ALL", owner_may=True),
    _postgres("drop a guard", "DROP FUNCTION guard_parcel_update() CASCADE", owner_may=True),
    _postgres("pretend to replicate", "SET session_replication_role = replica", doubly=True),
    _postgres("drop a table", "DROP TABLE parcel", owner_may=True),
    _postgres(
        "write the journal through its own function",
        "CREATE TEMPORARY TABLE parcel2 (id TEXT, rev BIGINT, verb TEXT, state TEXT, command BIGINT)",
        "CREATE TRIGGER t AFTER INSERT ON parcel2 FOR EACH ROW EXECUTE FUNCTION journal_born()",
        OPEN,
        "INSERT INTO parcel2 VALUES ('p1', 0, 'post', 'posted', {open})",
        doubly=True,
    ),
)

ALL = GUARDED + HISTORY + BESIDE + REPLACE + SHADOW + POSTGRES
