"""The command lines that follow and prove, over the control socket of a running door."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from starlette.types import ASGIApp
from typer.testing import CliRunner

from stationmaster.command import Cmd
from stationmaster.control import cli, follow, rest, watch
from stationmaster.control.commands import Site
from stationmaster.control.registry import COMMANDS
from stationmaster.control.socket import Door, opened
from stationmaster.errors import Illegal, NotFound, StationmasterError, Unavailable
from stationmaster.gitea import actions, codes, operate, webhook
from stationmaster.gitea.normalise import Normalised
from stationmaster.jobs import actions as jobs
from stationmaster.jobs.model import RunEvent
from tests.control.conftest import Running
from tests.gitea.rig import SETTINGS, Rig, told
from tests.support import eventually_async

HOSTILE = "please \x1b]0;owned\x07\x1b[2J\r\nsucceeded\u202e fix it"


@dataclass
class Line:
    """What one command line left."""

    code: int
    out: str
    error: StationmasterError | None

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[Any]:
        return [json.loads(row) for row in self.out.splitlines()]


def _never() -> contextlib.AbstractAsyncContextManager[ASGIApp]:
    raise AssertionError("the daemon was not found")


async def line(running: Running, *words: str) -> Line:
    """Runs a command line in a thread against the running door."""

    @contextlib.contextmanager
    def door() -> Iterator[Door]:
        with opened(running.socket, _never) as made:
            yield made

    root = typer.Typer()
    cli.mount(root, COMMANDS, door)
    follow.mount(root, door)
    result = await asyncio.to_thread(CliRunner().invoke, root, list(words))
    error = result.exception if isinstance(result.exception, StationmasterError) else None
    if result.exception is not None and error is None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Line(result.exit_code, result.stdout, error)


def _worked(rig: Rig) -> tuple[str, str]:
    """Brings a task through a whole life; returns its id and its run's."""
    said, digest = rig.said(told(comment_id=99_001), "d-77")
    assert isinstance(said, Normalised)
    task_id, run_id = said.task_id, actions.new_run_id()
    refs = {"delivery": "d-77", "repo": said.repo_key, "resource": said.resource_key, "session": said.resource_key}
    taken = Cmd("webhook.take", "gitea:user:alice", "delivery:d-77", None, refs)
    rig.ledger.do(taken, webhook.take, said, digest, rig.settings)
    lease = rig.claimed(task_id)

    def do(fn: Any, *args: Any, **more: Any) -> Any:
        return rig.ledger.do(actions.command("test", rig.task(task_id), "test"), fn, *args, **more)

    do(actions.open_turn, task_id, lease, run_id, "home", kind="normal", head=None)
    if rig.state(task_id) == "preparing":
        do(actions.advance, task_id, "start", lease, rig.settings)
    do(actions.bind_thread, rig.task(task_id), "th-1", "tools-1", why=None)
    do(actions.bind_turn, rig.task(task_id), run_id, "tu-1", "th-1")
    words = {"kind": "agent_message", "text": "I look at \x1b[31mit\r\nnow"}
    ran = {"kind": "item_completed", "item_type": "command", "summary": "ls -l"}
    bodies = [json.dumps(words), json.dumps(ran), json.dumps({"kind": "token_usage"})]
    rig.ledger.hot(
        jobs.append, run_id, [RunEvent(at, rig.clock.now(), "agent", body) for at, body in enumerate(bodies, 1)]
    )
    do(actions.end_turn, rig.task(task_id), run_id, "complete", None, "done")
    do(actions.advance, task_id, "verify", lease, rig.settings)
    do(actions.leave, task_id, "confirm", lease, rig.settings)
    return task_id, run_id


async def test_a_watch_tells_each_thing_in_order_and_how_it_ended(running: Running, rig: Rig) -> None:
    task_id, run_id = _worked(rig)
    seen = await line(running, "task", "watch", task_id)
    assert seen.code == 0
    lines = seen.out.splitlines()
    assert [row.split("  ", 2)[-1].strip() for row in lines if "  state  " in row] == [
        "received by gitea:user:alice",
        "received → queued by gitea:user:alice",
        "queued → preparing",
        "preparing → running",
        "running → verifying_reply",
        "verifying_reply → succeeded",
    ]
    assert any(row.endswith("agent    says: I look at  [31mit  now") for row in lines)
    assert any(row.endswith("agent    command: ls -l") for row in lines)
    assert any(row.endswith(f"turn     {run_id} started → completed") for row in lines)
    assert "token_usage" not in seen.out
    assert lines[-1] == f"{task_id} is succeeded."
    assert "\x1b" not in seen.out


async def test_a_watch_as_json_is_one_object_a_line(running: Running, rig: Rig) -> None:
    task_id, run_id = _worked(rig)
    rows = (await line(running, "task", "watch", task_id, "--json")).rows
    assert rows[-1] == {"kind": "end", "taskId": task_id, "state": "succeeded"}
    assert {row["kind"] for row in rows} >= {"state", "turn", "agent", "end"}
    [said] = [row for row in rows if row["kind"] == "agent" and row["event"]["kind"] == "agent_message"]
    assert said["turnRef"] == run_id
    assert [row["at"] for row in rows[:-1]] == sorted(row["at"] for row in rows[:-1])


@pytest.mark.parametrize(("state", "code"), [("wait", 12), ("block", 13), ("fail", 10), ("cancel", 11)])
async def test_a_watch_lasts_until_the_task_rests(running: Running, rig: Rig, state: str, code: int) -> None:
    task_id = rig.ask()
    watching = asyncio.create_task(line(running, "task", "watch", task_id))
    lease = None if state == "cancel" else rig.running(task_id) if state == "wait" else rig.claimed(task_id)
    assert not watching.done()
    if lease is None:
        rig.step(task_id, "cancel", error_code=codes.CANCELLED_BY_OPERATOR)
    else:
        rig.leave(task_id, state, lease, error_code=codes.WORKSPACE_DIRTY)
    seen = await watching
    assert seen.code == code
    assert seen.out.splitlines()[-1] == f"{task_id} is {rig.state(task_id)}."


async def test_pages_of_a_watch_join_without_gap_or_repeat(
    running: Running, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id, _ = _worked(rig)
    whole = (await line(running, "task", "watch", task_id, "--json")).rows
    monkeypatch.setattr("stationmaster.control.timeline._PAGE", 2)
    parts = (await line(running, "task", "watch", task_id, "--json")).rows
    assert sorted(map(json.dumps, parts)) == sorted(map(json.dumps, whole))


async def test_a_watch_of_nothing(running: Running) -> None:
    assert isinstance((await line(running, "task", "watch", "gitea-task-none")).error, NotFound)


def test_a_watch_without_a_daemon_does_not_wait_for_ever(rig: Rig, running: Running, tmp_path: Path) -> None:
    task_id = rig.ask()
    app = rest.app(Site(running.port, lambda: None, SETTINGS), COMMANDS, None, lambda: True)

    @contextlib.asynccontextmanager
    async def local() -> Any:
        yield app

    with opened(tmp_path / "nobody.sock", local) as door:
        assert not door.live
        with pytest.raises(Unavailable, match="no daemon runs here"):
            list(watch.happenings(door, task_id))


async def test_the_audit_proves_the_chain_from_history_alone(running: Running, rig: Rig) -> None:
    # GW-R-229, GW-R-255
    task_id, run_id = _worked(rig)
    seen = await line(running, "audit", "--task", task_id)
    assert seen.code == 0
    proof = seen.out.partition("Proof, from this history alone:\n")[2].splitlines()
    delivery = rig.task(task_id).delivery_id
    assert [row.split()[0] for row in proof] == ["delivery", "task", "session", "thread", "turn", "turn", "comment"]
    lines = [" ".join(row.split()) for row in proof]
    assert lines[0].startswith(f"delivery {delivery} accepted ")
    assert lines[0].endswith(", gitea:user:alice")
    path = "received → queued → preparing → running → verifying_reply → succeeded"
    assert lines[1] == f"task {task_id} {path}"
    assert lines[2:4] == ["session default:acme/widgets:issue:12", "thread th-1"]
    assert lines[4:] == [f"turn ref {run_id} complete", "turn tu-1", "comment 99001 the mention"]
    rows = (await line(running, "audit", "--task", task_id, "--json")).rows
    chain = rows[-1]["chain"]
    assert (chain["taskId"], chain["deliveryId"], chain["threadId"]) == ([task_id], [delivery], ["th-1"])
    assert (chain["turnRef"], chain["turnId"]) == ([run_id], ["tu-1"])


async def test_a_task_that_is_not_there_has_no_audit(running: Running) -> None:
    answer = await line(running, "audit", "--task", "nope", "--json")
    assert answer.error is not None
    assert answer.error.code == "task_not_found"


async def test_the_chain_needs_no_other_table(running: Running, rig: Rig, tmp_path: Path) -> None:
    # GW-R-229: everything but the history is gone.
    task_id, _ = _worked(rig)
    before = await line(running, "audit", "--task", task_id, "--json")
    kept = {"command", "journal", "event", "ref"}
    tables = [row[0] for row in rig.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
    beside = rig._beside
    beside.execute("PRAGMA foreign_keys = OFF")
    for table in tables:
        if table not in kept and not table.startswith("sqlite_"):
            beside.execute(f"DROP TABLE {table}")
    assert (await line(running, "audit", "--task", task_id, "--json")).out == before.out


async def test_changes_by_command_line(running: Running, rig: Rig) -> None:
    # GW-R-217, GW-R-218, GW-R-219
    task_id = rig.ask()
    assert (await line(running, "pause", "--reason", "upgrade", "--json")).json["globalPaused"] is True
    assert "globalPaused  yes" in (await line(running, "overview")).out
    assert (await line(running, "resume", "--reason", "done")).code == 0
    said = (await line(running, "repo", "disable", "default:acme/widgets", "--reason", "quiet", "--json")).json
    assert said["status"] == "disabled"
    assert "disabled" in (await line(running, "repo", "list")).out
    assert (await line(running, "repo", "enable", "default:acme/widgets", "--reason", "again")).code == 0
    said = (await line(running, "task", "cancel", task_id, "--reason", "no", "--request-id", "q-1", "--json")).json
    assert said["state"] == "cancelled"
    again = await line(running, "task", "cancel", task_id, "--reason", "no", "--request-id", "q-1", "--json")
    assert again.json == said
    assert isinstance((await line(running, "task", "abort", task_id, "--reason", "no")).error, Illegal)
    assert (await line(running, "task", "cancel", task_id)).code == 2


async def test_a_command_line_waits_for_what_the_worker_finishes(running: Running, rig: Rig) -> None:
    # GW-R-178, GW-R-221
    task_id = rig.ask()
    lease = rig.running(task_id)
    at_once = await line(
        running, "task", "abort", task_id, "--reason", "x", "--request-id", "q", "--wait", "0", "--json"
    )
    assert (at_once.json["state"], at_once.json["pending"]) == ("aborting", True)
    waiting = asyncio.create_task(
        line(running, "task", "abort", task_id, "--reason", "x", "--request-id", "q-2", "--json")
    )
    assert isinstance((await waiting).error, Illegal)
    rig.leave(task_id, "stop", lease, error_code=codes.ABORTED_BY_OPERATOR)
    rig.do(operate.finish_abort, task_id)

    blocked = rig.ask(13)
    rig.leave(blocked, "block", rig.claimed(blocked), error_code=codes.WORKSPACE_DIRTY)
    asked = asyncio.create_task(line(running, "task", "unblock", blocked, "--reason", "x", "--json"))

    async def wanted() -> bool:
        return bool(await running.port.read(operate.unblock_wanted))

    await eventually_async(wanted)
    assert not asked.done()
    rig.do(operate.finish_unblock, blocked, None, rig.settings)
    assert (await asked).json["state"] == "queued"


async def test_a_strangers_text_reaches_no_terminal(running: Running, rig: Rig) -> None:
    # GW-R-237
    task_id = rig.ask(body=f"@codebot {HOSTILE}")
    for words in (("task", "show", task_id), ("task", "list"), ("audit", "--task", task_id), ("overview",)):
        seen = await line(running, *words)
        assert seen.code == 0, words
        assert not {char for char in seen.out if char < " " and char != "\n"}, words
        assert "\u202e" not in seen.out
        assert not any(row.strip().startswith("succeeded") for row in seen.out.splitlines())
    shown = await line(running, "task", "show", task_id)
    assert "owned" in shown.out
    exact = (await line(running, "task", "show", task_id, "--json")).json
    assert "\x1b" in exact["task"]["instruction"]


async def test_lists_are_narrow_enough_to_read(running: Running, rig: Rig) -> None:
    task_id = rig.ask()
    seen = await line(running, "task", "list", "--state", "queued")
    heading, row, *_ = seen.out.partition("tasks:\n")[2].splitlines()
    assert heading.split() == ["taskId", "state", "author", "resourceKey", "attempt", "errorCode", "updatedAt"]
    assert row.split()[:3] == [task_id, "queued", "alice"]
    shown = (await line(running, "task", "show", task_id)).out
    assert "task:\n" in shown
    assert "session:\n" in shown
