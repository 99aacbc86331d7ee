"""K2 and K9: what is not a move inside an open command is refused by the database itself, at any prompt."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from stationmaster.clock import ManualClock
from stationmaster.ledger import history, lease, receipts
from stationmaster.ledger.ledger import Ledger, PostgresSettings, Tx
from stationmaster.ledger.postgres_guards import REFUSED
from stationmaster.ledger.sqlite_guards import NEXT
from tests.conftest import LedgerFactory, PostgresServer
from tests.contract import bypasses
from tests.contract.bypasses import Bypass
from tests.contract.test_commands import cmd, move, post
from tests.ledger import parcels


def fill(ledger: Ledger) -> None:
    """Puts in a row of everything that can be attacked."""

    def intents(tx: Tx) -> None:
        tx.intent("road.send", subject="p1", refs={"parcel": "p1"})
        tx.result(tx.intent("road.send", subject="p2"), "done")

    def accept(tx: Tx) -> bool:
        receipts.pending(tx)
        return True

    def holding(tx: Tx, key: str) -> Any:
        return lease.acquire(tx, kind="road", key=key, owner="w", incarnation="i1", subject="p1", ttl_s=60)

    ledger.do(cmd(task="t1"), post, "p1", berth="b1")
    ledger.do(cmd(task="t2"), post, "p2", address="away", berth="b2")
    ledger.do(cmd(task="t3"), post, "p3", address="away")
    ledger.do(cmd("parcel.collect", "r1"), move, "p2", "collect", 0)
    ledger.do(cmd("parcel.abort", "r2"), accept)
    ledger.do(cmd("intents"), intents)
    ledger.do(cmd("lease"), lease.release, ledger.do(cmd("lease"), holding, "1"))
    ledger.do(cmd("lease"), holding, "1")


class Prompt(Protocol):
    """Somebody with a plain connection to the database."""

    next_seq: str

    def refused(self, error: Exception) -> bool: ...

    def execute(self, sql: str) -> list[Any]: ...

    def tables(self) -> list[str]: ...

    def drop_guards(self) -> None: ...

    def close(self) -> None: ...


class SqlitePrompt:
    next_seq = NEXT

    def __init__(self, path: Path, *, pragmas: bool) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        for name in ("foreign_keys", "recursive_triggers"):
            self.execute(f"PRAGMA {name} = {'ON' if pragmas else 'OFF'}")

    def refused(self, error: Exception) -> bool:
        return isinstance(error, sqlite3.IntegrityError)

    def execute(self, sql: str) -> list[Any]:
        return self._connection.execute(sql).fetchall()

    def tables(self) -> list[str]:
        return [row[0] for row in self.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]

    def drop_guards(self) -> None:
        for (name,) in self.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            self.execute(f"DROP TRIGGER {name}")

    def close(self) -> None:
        self._connection.close()


class PostgresPrompt:
    next_seq = "nextval('history_seq')"

    def __init__(self, dsn: str, schema: str) -> None:
        self.schema = schema
        self._connection = psycopg.connect(dsn, autocommit=True, options=f"-c search_path={schema}")

    def refused(self, error: Exception) -> bool:
        # By a guard, or for want of a right that the running role never gets.
        return isinstance(error, psycopg.Error) and error.sqlstate in {REFUSED, "42501"}

    def execute(self, sql: str) -> list[Any]:
        cursor = self._connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []

    def tables(self) -> list[str]:
        return [
            f"{self.schema}.{row[0]}"
            for row in self.execute(f"SELECT tablename FROM pg_tables WHERE schemaname = '{self.schema}'")
        ]

    def drop_guards(self) -> None:
        for (name,) in self.execute(
            "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            f" WHERE n.nspname = '{self.schema}' AND p.prorettype = 'trigger'::regtype"
        ):
            self.execute(f"DROP FUNCTION {name}() CASCADE")
        # Foreign keys refuse some of it beside the guards.
        self.execute("SET session_replication_role = replica")

    def close(self) -> None:
        self._connection.close()


def dump(prompt: Prompt) -> dict[str, list[Any]]:
    prefix = "main." if isinstance(prompt, SqlitePrompt) else ""
    return {name: sorted(prompt.execute(f"SELECT * FROM {prefix}{name}"), key=repr) for name in prompt.tables()}


def words(prompt: Prompt) -> dict[str, str]:
    return {
        "next": prompt.next_seq,
        "sealed": "(SELECT min(seq) FROM command)",
        "open": "(SELECT max(seq) FROM command)",
    }


def attempt(prompt: Prompt, bypass: Bypass, *, keep: bool = True) -> None:
    """Tries a bypass in one transaction and commits it; raises what the database said."""
    prompt.execute("BEGIN")
    try:
        for statement in bypass.statements:
            prompt.execute(statement.format(**words(prompt)))
    except BaseException:
        # SQLite may have ended the transaction by itself.
        with contextlib.suppress(sqlite3.OperationalError):
            prompt.execute("ROLLBACK")
        raise
    prompt.execute("COMMIT" if keep else "ROLLBACK")


WHO = ["sqlite as the product", "sqlite at a prompt", "postgres as the product", "postgres as the owner"]
UNGUARDED = ["sqlite at a prompt", "postgres as the superuser"]


def cases(who: list[str], *, guarded: bool) -> list[Any]:
    return [
        pytest.param(one, bypass, id=f"{one}-{bypass}".replace(" ", "-"))
        for one in who
        for bypass in bypasses.ALL
        if bypass.only in {None, one.split()[0]}
        and not (bypass.owner_may and one.endswith("owner"))
        and (guarded or not (bypass.doubly or bypass.owner_may))
    ]


def opened(who: str, where: Path, request: pytest.FixtureRequest) -> Prompt:
    """Fills a database and opens a prompt on it."""
    database: Path | PostgresSettings = where / "ledger.db"
    if who.startswith("postgres"):
        server: PostgresServer = request.getfixturevalue("postgres")
        database = server.settings()
    with Ledger.open(database, [parcels.SLICE], clock=ManualClock()) as ledger:
        fill(ledger)
    if isinstance(database, Path):
        return SqlitePrompt(database, pragmas=who.endswith("product"))
    user = {"product": "app", "owner": "owner", "superuser": "postgres"}[who.rsplit(maxsplit=1)[-1]]
    return PostgresPrompt(make_conninfo(database.dsn, user=user), database.schema)


@pytest.fixture
def open_prompt(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Prompt]]:
    """Opens prompts on databases of their own."""
    with contextlib.ExitStack() as stack:

        def prompt(who: str) -> Prompt:
            made = opened(who, tmp_path, request)
            stack.callback(made.close)
            return made

        yield prompt


@pytest.fixture(scope="module")
def prompts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str, bool], Prompt]]:
    """Opens one prompt for all who leave the database as they found it."""
    with contextlib.ExitStack() as stack:

        @cache
        def prompt(who: str, guarded: bool) -> Prompt:
            made = opened(who, tmp_path_factory.mktemp("bypass"), request)
            stack.callback(made.close)
            if not guarded:
                made.drop_guards()
            return made

        yield prompt


@pytest.mark.parametrize(("who", "bypass"), cases(WHO, guarded=True))
def test_a_bypass_is_refused(prompts: Callable[[str, bool], Prompt], who: str, bypass: Bypass) -> None:
    prompt = prompts(who, True)
    before = dump(prompt)
    with pytest.raises((sqlite3.Error, psycopg.Error)) as error:
        attempt(prompt, bypass)
    assert prompt.refused(error.value), error.value
    assert dump(prompt) == before


@pytest.mark.parametrize(("who", "bypass"), cases(UNGUARDED, guarded=False))
def test_without_the_guards_the_same_bypass_succeeds(
    prompts: Callable[[str, bool], Prompt], who: str, bypass: Bypass
) -> None:
    attempt(prompts(who, False), bypass, keep=False)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO journal SELECT * FROM journal",
        "UPDATE journal SET verb = 'x'",
        "INSERT INTO edge VALUES ('parcel', 'posted', 'jump', 'delivered')",
        "UPDATE edge SET to_state = 'posted'",
        "UPDATE command SET actor = 'x'",
        "UPDATE command SET tx = 1",
        "UPDATE event SET data = 'x'",
        "UPDATE ref SET value = 'x'",
        "UPDATE open_intent SET subject = 'x'",
        "UPDATE receipt SET command = 1",
        "UPDATE schema_version SET guards = 'x'",
        "UPDATE parcel SET address = 'x'",
        "UPDATE parcel SET id = 'x'",
        *(
            f"DELETE FROM {table}"
            for table in ("journal", "edge", "command", "event", "ref", "receipt", "lease", "parcel")
        ),
    ],
)
def test_the_running_roles_rights_hold_without_the_guards(
    request: pytest.FixtureRequest, prompts: Callable[[str, bool], Prompt], statement: str
) -> None:
    unguarded = prompts("postgres as the superuser", False)
    assert isinstance(unguarded, PostgresPrompt)
    server: PostgresServer = request.getfixturevalue("postgres")
    running = PostgresPrompt(server.dsn, unguarded.schema)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        attempt(running, Bypass("", (statement,)), keep=False)
    running.close()


def test_checks_off_opens_no_way(open_prompt: Callable[[str], Prompt]) -> None:
    prompt = open_prompt("sqlite at a prompt")
    prompt.execute("PRAGMA ignore_check_constraints = ON")
    with pytest.raises(sqlite3.IntegrityError):
        prompt.execute("UPDATE parcel SET state = 'nowhere' WHERE id = 'p1'")


def test_a_command_opened_in_another_transaction_serves_nobody(open_prompt: Callable[[str], Prompt]) -> None:
    prompt = open_prompt("postgres as the owner")
    attempt(prompt, Bypass("", (bypasses.OPEN,)))
    with pytest.raises(psycopg.DatabaseError):
        attempt(prompt, Bypass("", (f"UPDATE parcel SET {bypasses.COLLECT} WHERE id = 'p1'",)))


def test_nobody_chooses_a_history_number(open_prompt: Callable[[str], Prompt]) -> None:
    prompt = open_prompt("postgres as the owner")
    newest = prompt.execute("SELECT last_value FROM history_seq")[0][0]
    attempt(prompt, Bypass("", (bypasses.OPEN.replace("{next}", "7000"),)))
    assert prompt.execute("SELECT max(seq) FROM command") == [(newest + 1,)]


def test_a_legal_move_at_a_prompt_leaves_its_trace(ledger_factory: LedgerFactory, database: Any) -> None:
    ledger = ledger_factory([parcels.SLICE])
    fill(ledger)
    prompt: Prompt
    if isinstance(database, Path):
        prompt = SqlitePrompt(database, pragmas=False)
    else:
        prompt = PostgresPrompt(database.dsn, database.schema)
    attempt(prompt, Bypass("", (bypasses.OPEN, f"UPDATE parcel SET {bypasses.COLLECT} WHERE id = 'p1'")))
    prompt.close()
    assert [(e.actor, e.name) for e in ledger.read(history.by_entity, "parcel", "p1")][-1] == ("me", "collect")
    # Guards do not authenticate; doctor shows a command that the product would have sealed.
    assert any("never sealed" in line for line in ledger.verify())
