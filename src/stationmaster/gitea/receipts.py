"""Receipts and questions: posted by the worker at once, and by the relay when that did not end (GW-R-133 to 138, 188).

A receipt that cannot be posted never changes its task (GW-R-137). Answers are nobody's business here but their
verification's; the relay only finds out what became of those that their task left behind.
"""

from __future__ import annotations

from dataclasses import replace

import structlog

from stationmaster import faults
from stationmaster.clock import MICROS
from stationmaster.errors import StationmasterError
from stationmaster.gitea import actions, codes, live, parts, store, texts
from stationmaster.gitea.comments import CommentChannel, Posting
from stationmaster.gitea.duty import Duty
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.live import LiveReceipts
from stationmaster.gitea.machine import TASK
from stationmaster.gitea.model import Comment, Task
from stationmaster.gitea.patience import Patience
from stationmaster.gitea.settings import GiteaSettings
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.tx import Reader, Tx
from stationmaster.outbox.attempt import Attempt, attempt

_log = structlog.get_logger("stationmaster.gitea")

# Until then whoever made a row is taken to be attending to it.
_FRESH = 15 * MICROS
_ALERT = 60 * MICROS
_GIVE_UP = 86_400 * MICROS
_FIRST_PAUSE = 15 * MICROS
_LONGEST_PAUSE = 900 * MICROS
_MOST_ROWS = 1000


async def post(gear: Gear, task_id: str, key: str, *, hold: Hold | None) -> Comment:
    """Attempts a comment that was intended and returns its row as it is afterwards.

    `pending` afterwards means that it was not sent, or that nobody knows: never post it in another way. Raises Stale
    (`lease_lost`) when `hold` is lost.
    """
    done = await attempt(gear.port, CommentChannel(gear), key, hold=hold)
    if done.how not in {"proven", "refused"}:
        _log.info("comment.open", task=task_id, key=key, how=done.how, code=done.code)
    return done.row.comment


async def start(gear: Gear, hold: Hold, task: Task) -> None:
    """Posts the one start receipt; what the forge does never keeps a task from running (GW-R-133, GW-R-137)."""
    key = actions.status_key(task.id, "running")
    cmd = actions.command("receipt.start", task, f"lease:{hold.lease.lease_id}")
    await gear.port.do(cmd, _intend_start, task.id, key, hold.lease, gear.settings)
    faults.point("receipts.intended")
    await post(gear, task.id, key, hold=hold)


def _intend_start(tx: Tx, task_id: str, key: str, lease: Lease, settings: GiteaSettings) -> None:
    leases.held(tx, lease)
    if settings.live_receipt:
        live.watch(tx, task_id)
    body = texts.start_receipt(key)
    actions.intend_comment(tx, store.task(tx, task_id), key, "status", body, term=lease.term)


class Relay:
    """The duty that brings comments to one forge to an end which their worker did not: one process at a time has it."""

    def __init__(self, gear: Gear) -> None:
        self._gear = gear
        self._channel = CommentChannel(gear)
        self._live = LiveReceipts(gear)
        at, settings = gear.station, gear.settings
        key = f"relay:{settings.instance_id}"
        self._duty = Duty(gear.port, key, owner=at.worker_id, incarnation=at.incarnation, ttl_s=settings.ttl_s)
        self._began: int | None = None
        self._patience = Patience(_FIRST_PAUSE, _LONGEST_PAUSE)

    async def tick(self, now: int) -> int:
        """Attends to what is due; returns how many comments came to their end."""
        _ = now
        if not await self._duty.on():
            return 0
        ended = 0
        open_rows = await self._gear.port.read(self._due)
        for key in open_rows:
            if not await self._duty.on():
                break
            ended += await self._attend(key)
        if self._gear.settings.live_receipt and await self._duty.on():
            ended += await self._live.tick()
        return ended

    async def close(self) -> None:
        """Gives the duty to whoever wants it."""
        await self._duty.leave()

    def _due(self, reader: Reader) -> list[str]:
        # What is older than this process has nobody else to attend to it.
        self._began = self._began or reader.now
        before = max(self._began, reader.now - _FRESH)
        rows = store.open_comments(reader, self._gear.settings.instance_id, before, _MOST_ROWS)
        self._patience.keep({row.id for row in rows})
        return [row.id for row in rows if self._is_due(reader, row)]

    def _is_due(self, reader: Reader, row: Comment) -> bool:
        if not self._patience.over(row.id, reader.now):
            return False
        continued = parts.answer_of(row.id)
        if continued is not None:
            answer = store.comment(reader, continued)
            return answer is not None and answer.state != "pending"
        # An answer belongs to whoever verifies it, until its task has ended.
        return row.kind in {"status", "question"} or store.task(reader, row.task_id).state in TASK.terminal

    async def _attend(self, key: str) -> int:
        port = self._gear.port
        try:
            done = await attempt(port, self._channel, key)
        except StationmasterError as error:
            _log.warning("relay.failed", key=key, code=error.code, error=str(error))
            return 0
        asked = done.row.comment.kind == "question" and done.row.task.state == "waiting_user"
        if done.row.state in {"confirmed", "failed"}:
            if asked and done.row.state == "failed":
                await self._alert(done)
            return 1
        now = await port.read(_now)
        self._patience.put_off(key, now, done.again_at)
        age = now - done.row.comment.created_at
        if asked and age >= _ALERT and done.how != "too_early":
            await self._alert(done)
        if age < _GIVE_UP:
            return 0
        await port.do(self._channel.command(done.row, "comment.give_up"), self._give_up, key, done.code)
        return 1

    async def _alert(self, done: Attempt[Posting]) -> None:
        """Tells the operator, once, that the question a task waits on was refused, or that nobody knows where it is."""

        def tell(tx: Tx) -> None:
            tx.event("alert.question_unknown", key=done.row.id, how=done.how, code=done.code)

        cmd = self._channel.command(done.row, "alert.question")
        await self._gear.port.do(replace(cmd, dedupe=done.row.id), tell)

    def _give_up(self, tx: Tx, key: str, code: str | None) -> None:
        row = self._channel.load(tx, key)
        if row.state in {"pending", "sent"}:
            self._channel.fail(tx, row, code or codes.REPLY_STATUS_UNKNOWN)


def _now(reader: Reader) -> int:
    return reader.now
