"""The table of moves, written out by hand from section 5 of the specification, against code and database."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import psycopg
import pytest

from stationmaster.clock import ManualClock
from stationmaster.command import Cmd
from stationmaster.control.dispatch import Dispatch
from stationmaster.errors import Bug, Illegal, Stale
from stationmaster.gitea import model, store
from stationmaster.gitea.machine import COMMENT, MACHINES, REPOSITORY, SESSION, TASK
from stationmaster.ledger import history
from stationmaster.ledger.ledger import PostgresSettings
from stationmaster.ledger.tx import Tx
from stationmaster.machine import UNBORN, Machine
from tests.gitea.rig import SETTINGS, Rig, database

BOTH = pytest.mark.parametrize("rig", ["sqlite", "postgres"], indirect=True)

TERMINAL = {  # GW-R-070
    "succeeded", "succeeded_with_rest_fallback", "failed", "failed_reply", "cancelled", "aborted", "ignored",
    "duplicate", "rejected",
}  # fmt: skip
STATES = TERMINAL | {
    "received", "queued", "preparing", "running", "waiting_user", "verifying_reply", "retry_wait", "blocked_workspace",
    "aborting",
}  # fmt: skip
EDGES = {
    ("received", "queued"),  # GW-R-074
    ("received", "ignored"),  # GW-R-075
    ("received", "duplicate"),  # GW-R-076
    ("received", "rejected"),  # GW-R-077
    ("queued", "preparing"),  # GW-R-078
    ("queued", "cancelled"),  # GW-R-079
    ("preparing", "running"),  # GW-R-080
    ("preparing", "blocked_workspace"),  # GW-R-081
    ("preparing", "retry_wait"),  # GW-R-082
    ("preparing", "failed"),  # GW-R-083
    ("running", "waiting_user"),  # GW-R-084
    ("running", "verifying_reply"),  # GW-R-085
    ("running", "retry_wait"),  # GW-R-086
    ("running", "aborting"),  # GW-R-087
    ("running", "failed"),  # GW-R-088
    ("waiting_user", "queued"),  # GW-R-089
    ("waiting_user", "cancelled"),  # GW-R-090
    ("waiting_user", "failed"),  # GW-R-091
    ("verifying_reply", "succeeded"),  # GW-R-092
    ("verifying_reply", "retry_wait"),  # GW-R-093
    ("verifying_reply", "failed_reply"),  # GW-R-094
    ("verifying_reply", "succeeded_with_rest_fallback"),  # GW-R-095
    ("retry_wait", "preparing"),  # GW-R-096
    ("retry_wait", "running"),  # GW-R-097
    ("retry_wait", "verifying_reply"),  # GW-R-098
    ("retry_wait", "failed"),  # GW-R-099
    ("blocked_workspace", "queued"),  # GW-R-100
    ("blocked_workspace", "cancelled"),  # GW-R-101
    ("aborting", "aborted"),  # GW-R-102
    ("aborting", "failed"),  # GW-R-103
}


@pytest.fixture
def rig(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Rig]:
    made = Rig.on(database(request, getattr(request, "param", "sqlite")), clock)
    yield made
    made.close()


def paths(machine: Machine) -> dict[str, list[str]]:
    """Returns the shortest way, in verbs, from birth to each state."""
    found = {UNBORN: list[str]()}
    waiting = [UNBORN]
    while waiting:
        here = waiting.pop(0)
        for origin, verb, to in machine.edges:
            if origin == here and to not in found:
                found[to] = [*found[here], verb]
                waiting.append(to)
    return found


def test_the_states_are_those_of_the_specification() -> None:  # GW-R-070
    assert len(STATES) == 18
    assert TASK.states == STATES == set(get_args(model.TaskState))
    assert TASK.terminal == TERMINAL


def test_only_the_listed_edges_pass() -> None:  # GW-R-072, GW-R-256, GW-R-071
    allowed = {(origin, to) for origin, _, to in TASK.edges if origin}
    assert allowed == EDGES
    assert not {origin for origin, _ in allowed} & TERMINAL
    assert {to for origin, _, to in TASK.edges if origin == UNBORN} == {"received"}  # GW-R-039


def test_a_verb_that_is_no_edge_is_refused_with_its_code() -> None:  # GW-R-072
    verbs = {verb for _, verb, _ in TASK.edges}
    edges = {(origin, verb) for origin, verb, _ in TASK.edges}
    for state, verb in set(itertools.product(STATES, verbs)) - edges:
        with pytest.raises(Illegal) as refused:
            TASK.target(state, verb)
        assert refused.value.code == "illegal_transition"


def bring(rig: Rig, state: str, number: int) -> str:
    """Brings a task of an issue of its own to a state, by its verbs alone."""
    task_id = f"task-{state}"
    session_id = rig.session(rig.ask(number)).id
    repository_id = rig.rows("SELECT id FROM gitea_repository")[0][0]
    first, *others = paths(TASK)[state]

    def body(tx: Tx) -> None:
        fixed: dict[str, Any] = {
            "delivery_key": task_id, "delivery_id": task_id, "repository_id": repository_id, "session_id": session_id,
            "resource_key": "r", "comment_id": number, "author": "a", "author_id": 1, "attempt": 0, "reply_attempt": 0,
            "unblock_attempt": 0, "created_at": tx.now, "updated_at": tx.now,
        }  # fmt: skip
        tx.born(TASK, task_id, first, **fixed)
        for rev, verb in enumerate(others):
            tx.move(TASK, task_id, verb, rev=rev)

    rig.do(body)
    assert rig.state(task_id) == state
    return task_id


class Taken(Exception):
    """Ends a transaction that the database let through."""


@BOTH
def test_the_database_knows_the_whole_matrix(rig: Rig) -> None:  # GW-R-072, GW-R-071, GW-R-256
    """Past the code's own check, with a statement of one's own under an open command."""
    tasks = {state: bring(rig, state, number) for number, state in enumerate(sorted(STATES), 1)}
    verbs = {(origin, to): verb for origin, verb, to in TASK.edges}
    passed: set[tuple[str, str]] = set()
    refused: set[tuple[str, str]] = set()

    def force(tx: Tx, state: str, to: str, verb: str) -> None:
        rev = tx._session.state(TASK, tasks[state])
        assert rev is not None
        row = {"state": to, "verb": verb, "command": tx.seq, "updated_at": 1}
        assert tx._session.move(TASK, tasks[state], rev[1], row)
        raise Taken

    for state, to in itertools.product(sorted(STATES), sorted(STATES)):
        # A move that is no edge is tried with the verb that leads there from elsewhere.
        verb = verbs.get((state, to)) or next((v for _, v, end in TASK.edges if end == to), "receive")
        try:
            rig.do(force, state, to, verb)
        except Taken:
            passed.add((state, to))
        except Bug as error:
            refused |= {(state, to)} if error.code == "guard_refused" else set()
    assert passed == EDGES
    assert len(refused) == 18 * 18 - len(EDGES)


@BOTH
def test_a_prompt_moves_no_task(rig: Rig) -> None:  # GW-R-072, GW-R-071
    task_id = rig.ask()
    attempts = [
        f"UPDATE gitea_task SET state = 'succeeded' WHERE id = '{task_id}'",
        f"UPDATE gitea_task SET instruction = 'x' WHERE id = '{task_id}'",
        f"UPDATE gitea_task SET author = 'mallory' WHERE id = '{task_id}'",
        f"UPDATE gitea_task SET state = 'preparing', rev = 2, verb = 'claim' WHERE id = '{task_id}'",
        f"DELETE FROM gitea_task WHERE id = '{task_id}'",
        "DELETE FROM journal",
        "UPDATE event SET data = '{}'",
    ]
    before = rig.rows("SELECT * FROM gitea_task")
    for statement in attempts:
        with pytest.raises((sqlite3.Error, psycopg.Error)):
            prompt(rig, statement)
    assert rig.rows("SELECT * FROM gitea_task") == before
    assert rig.ledger.verify() == []


def prompt(rig: Rig, statement: str) -> None:
    if isinstance(rig.database, PostgresSettings):
        options = f"-c search_path={rig.database.schema}"
        with psycopg.connect(rig.database.dsn, autocommit=True, options=options) as server:
            server.execute(statement.encode())
    else:
        connection = sqlite3.connect(rig.database)
        try:
            with connection:
                connection.execute(statement)
        finally:
            connection.close()


def test_a_stale_writer_changes_nothing(rig: Rig) -> None:  # GW-R-039
    task_id = rig.ask()
    seen = rig.task(task_id)
    rig.step(task_id, "cancel")

    def late(tx: Tx) -> None:
        tx.event("late")
        tx.move(TASK, task_id, "claim", rev=seen.rev)

    with pytest.raises(Stale) as conflict:
        rig.do(late)
    assert conflict.value.code == "version_conflict"
    assert (rig.state(task_id), rig.events("late")) == ("cancelled", [])


async def test_a_move_that_is_no_edge_is_undone_and_told(rig: Rig) -> None:  # GW-R-072, GW-R-230
    task_id = rig.ask()
    port = Dispatch(rig.ledger, threads=1)

    def body(tx: Tx) -> None:
        tx.event("before")
        tx.move(TASK, task_id, "confirm", rev=1)

    for dedupe in (None, "a-request"):
        with pytest.raises(Illegal):
            await port.do(Cmd("wrong", "system", "test", dedupe, {"task": task_id}), body)
    port.close()
    (alert,) = rig.events("illegal_transition")
    assert (alert.kind, alert.outcome, alert.data and alert.data["command"]) == (
        "refusal",
        "illegal_transition",
        "wrong",
    )
    assert "illegal_transition" in {entry.name for entry in rig.ledger.read(history.by_ref, "task", task_id)}
    assert (rig.state(task_id), rig.events("before")) == ("queued", [])


def test_every_move_leaves_its_row_in_the_same_transaction(rig: Rig) -> None:  # GW-R-072, GW-R-228
    task_id = rig.ask()
    rig.leave(task_id, "wait", rig.running(task_id))
    rig.ask()
    rig.step(task_id, "cancel")
    assert rig.moves(task_id) == [
        ("", "receive", "received"),
        ("received", "enqueue", "queued"),
        ("queued", "claim", "preparing"),
        ("preparing", "start", "running"),
        ("running", "wait", "waiting_user"),
        ("waiting_user", "follow_up", "queued"),
        ("queued", "cancel", "cancelled"),
    ]


def test_what_is_stored_wrongly_is_never_guessed() -> None:  # GW-R-025
    row = {"run_id": "r", "task_id": "t", "kind": "normal", "head_before": None}
    assert model.read(row, model.Turn).kind == "normal"
    for wrong in ({**row, "kind": "unusual"}, {k: v for k, v in row.items() if k != "task_id"}, {**row, "run_id": 5}):
        with pytest.raises(Bug):
            model.read(wrong, model.Turn)


def test_the_other_machines() -> None:
    edges = {machine.table: {(a, b) for a, _, b in machine.edges if a} for machine in MACHINES}
    # GW-R-138
    assert edges["gitea_comment"] == {
        ("pending", "sent"),
        ("pending", "confirmed"),
        ("sent", "confirmed"),
        ("pending", "failed"),
        ("sent", "failed"),
    }
    # GW-R-030, GW-R-034
    assert {edge for edge in edges["gitea_repository"] if edge[0] != edge[1]} == {
        ("active", "disabled"),
        ("blocked", "disabled"),
        ("disabled", "active"),
        ("active", "blocked"),
        ("blocked", "active"),
    }
    # GW-R-035, GW-R-037
    assert {edge for edge in edges["gitea_session"] if edge[0] != edge[1]} == {
        ("active", "waiting_user"),
        ("waiting_user", "active"),
        ("active", "closed"),
        ("waiting_user", "closed"),
        ("closed", "active"),
    }
    assert edges["gitea_control"] == {("running", "paused"), ("paused", "running")}  # GW-R-044
    for machine, kind in ((COMMENT, model.Comment), (REPOSITORY, model.Repository), (SESSION, model.Session)):
        assert machine.states == set(get_args(get_type_hints(kind)["state"]))


def test_the_columns_of_rows_and_tables_are_the_same(rig: Rig) -> None:  # GW-R-038, GW-R-041
    kinds = {
        "gitea_task": model.Task, "gitea_comment": model.Comment, "gitea_repository": model.Repository,
        "gitea_session": model.Session, "gitea_branch": model.Branch, "gitea_control": model.Control,
    }  # fmt: skip
    for table, kind in kinds.items():
        columns = {row[1] for row in rig.rows(f"PRAGMA table_info({table})")}
        assert columns - {"verb", "command"} == set(kind.__struct_fields__), table


def test_a_pause_is_one_row(rig: Rig) -> None:  # GW-R-044
    assert rig.ledger.read(store.control) is None
    assert not rig.ledger.read(store.paused)
    for verb in ("pause", "resume", "pause"):
        rig.pause(verb)
    assert rig.ledger.read(store.paused)
    assert rig.count("gitea_control") == 1
    with pytest.raises(Illegal):
        rig.pause("pause")
    assert SETTINGS.instance_id == "default"  # GW-R-011
