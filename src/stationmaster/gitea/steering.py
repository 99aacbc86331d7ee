"""Says comments into a running turn (gitea.steering), so that each is followed once: there, or as a task of its own.

A comment is a row before anything is said. It counts as taken only once the agent was given it, while no answer was
written; whatever else becomes of the turn, the row is settled in the command that ends it.
"""

from __future__ import annotations

import asyncio

import msgspec
import structlog

from stationmaster import faults
from stationmaster.agents.codex_app.session import CodexRun
from stationmaster.errors import StationmasterError
from stationmaster.gitea import actions, authors, intake, store, texts
from stationmaster.gitea.client import explain
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.machine import STEER
from stationmaster.gitea.model import Asker, Steer, Task
from stationmaster.gitea.normalise import Normalised
from stationmaster.gitea.settings import GiteaSettings
from stationmaster.gitea.store import Q
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.tx import Reader, Tx

_log = structlog.get_logger("stationmaster.gitea")


def release(tx: Tx, task: Task, settings: GiteaSettings) -> None:
    """Settles what was to be said into a turn that is over, with the task as it is now; a repeat finds nothing.

    What was said and not seen to be taken is asked again by the next try of the same task; otherwise it becomes a task
    of its own.
    """
    again = task.state == "retry_wait" and task.retry_purpose == "execution"
    for steer in store.steers(tx, task.id):
        if steer.state == "sent" and again:
            _take(tx, steer, task)
            continue
        made = intake.own_task(tx, said(steer), task, settings)
        tx.move(STEER, steer.id, "queue", rev=steer.rev, task_after=made.id, updated_at=tx.now)
        tx.run(Q.drop_said, steer_id=steer.id)
        tx.event("steer.queue", refs={"task": (task.id, made.id)}, steer=steer.id, was=steer.state)


def open_tasks(tx: Tx, session_id: str, settings: GiteaSettings) -> list[Task]:
    """Returns the open tasks of a conversation, with what was to be said into a turn as tasks of their own."""
    for task in store.open_tasks(tx, session_id):
        if task.state in {"running", "aborting"}:
            release(tx, store.lock_task(tx, task.id), settings)
    return store.open_tasks(tx, session_id)


def wanted(reader: Reader) -> list[str]:
    """Returns the tasks into whose turn something is to be said."""
    return [str(row["task_id"]) for row in reader.many(Q.steered_tasks)]


def said(steer: Steer) -> Normalised:
    """Returns the comment as it was taken in."""
    return msgspec.json.decode(steer.said, type=Normalised)


class Steering:
    """What is said into the turn of one run."""

    def __init__(self, gear: Gear, hold: Hold, run_id: str) -> None:
        self._gear = gear
        self._hold = hold
        self._run_id = run_id
        self._agent: CodexRun | None = None
        self._noted = 0
        self._one_at_a_time = asyncio.Lock()
        # Whose author may not ask, or who cannot be asked about: they become tasks, which says why.
        self._passed: set[str] = set()

    async def attend(self, agent: CodexRun, thread_id: str, turn_id: str, bell: asyncio.Event) -> None:
        """Says what is handed in whenever the bell rings; ends only by being cancelled."""
        self._agent = agent
        while True:
            for steer in await self._gear.port.read(store.steers, self._hold.task.id):
                if steer.state == "waiting" and steer.id not in self._passed:
                    await self._say(agent, thread_id, turn_id, steer)
            await bell.wait()
            bell.clear()

    async def note(self) -> None:
        """Stores what the agent was given since the last time: before each of its acts, and when its turn is over."""
        if self._agent is None:
            return
        async with self._one_at_a_time:
            for key in self._agent.steered[self._noted :]:
                cmd = actions.command("steer.take", self._hold.task, f"run:{self._run_id}")
                await self._gear.port.do(cmd, _taken, key, self._run_id)
                self._noted += 1

    async def _say(self, agent: CodexRun, thread_id: str, turn_id: str, steer: Steer) -> None:
        gear, task, asked = self._gear, self._hold.task, said(steer)
        try:
            may = await gear.port.read(_asker, asked)
            checked = actions.command("author.check", task, f"steer:{steer.id}")
            await authors.check_asker(gear, task.repository_id, may, checked)
            await self._hold.check()
        except StationmasterError as error:
            self._passed.add(steer.id)
            _log.info("steer.passed_over", task=task.id, steer=steer.id, code=error.code)
            return
        cmd = actions.command("steer.send", task, f"run:{self._run_id}")
        intent = await gear.port.do(cmd, _sent, steer.id, self._hold.lease, self._run_id)
        if intent is None:
            return
        words = texts.steer_prompt(asked.comment.author_login, asked.instruction, steer.id)
        try:
            await agent.steer(thread_id, turn_id, words, key=steer.id)
            faults.point("steering.said")
        except StationmasterError as error:
            refused = error.code == "app_server_rejected"
            await gear.port.do(cmd, _not_said, steer.id, intent, explain(error), refused)
            self._passed.add(steer.id)
        else:
            await gear.port.do(cmd, _accepted, intent)


def _asker(_: Reader, asked: Normalised) -> Asker:
    return Asker(asked.comment.author_id, asked.comment.author_login, intake.may(asked))


def _steer(reader: Reader, steer_id: str) -> Steer:
    row = reader.one(Q.steer, id=steer_id)
    assert row is not None, f"BUG: no steer {steer_id}"  # noqa: S101 - the caller read it
    return msgspec.convert(row, Steer)


def _sent(tx: Tx, steer_id: str, lease: Lease, run_id: str) -> int | None:
    """Writes that it is about to be said; None when it is too late for that."""
    leases.held(tx, lease)
    steer = _steer(tx, steer_id)
    task = store.lock_task(tx, steer.task_id)
    late = task.state != "running" or actions.turn_end_row(tx, task.id, run_id) is not None
    if late or steer.state != "waiting":
        return None
    tx.move(STEER, steer.id, "send", rev=steer.rev, updated_at=tx.now)
    return tx.intent("turn.steer", subject=run_id, refs={**actions.refs(task), "turn": run_id}, steer=steer.id)


def _not_said(tx: Tx, steer_id: str, intent: int, code: str, refused: bool) -> None:
    tx.result(intent, "failed" if refused else "unknown", code=code)
    steer = _steer(tx, steer_id)
    if refused and steer.state == "sent":
        tx.move(STEER, steer.id, "return", rev=steer.rev, updated_at=tx.now)


def _accepted(tx: Tx, intent: int) -> None:
    tx.result(intent, "done")


def _taken(tx: Tx, steer_id: str, run_id: str) -> None:
    steer = _steer(tx, steer_id)
    task = store.lock_task(tx, steer.task_id)
    # An answer that was written before cannot follow it: then it is a task of its own.
    if steer.state == "sent" and actions.turn_end_row(tx, task.id, run_id) is None:
        _take(tx, steer, task)


def _take(tx: Tx, steer: Steer, task: Task) -> None:
    intake.taken_in(tx, said(steer), task)
    tx.move(STEER, steer.id, "take", rev=steer.rev, updated_at=tx.now)
    tx.run(Q.drop_said, steer_id=steer.id)
    tx.event("steer.take", refs={"task": task.id}, steer=steer.id)
