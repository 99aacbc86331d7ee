"""Keeps start receipts up to date by editing them in place (gitea.live_receipt); never makes a comment.

What a receipt should say follows from its task's state alone, so the newest state is what is written, however many
went by. Each edit is an intent, the act and a read-back of that very comment; an answer that was lost is read back, and
an edit of one's own that is there already is not repeated. Runs under the relay's duty.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from stationmaster import faults
from stationmaster.clock import MICROS
from stationmaster.command import Cmd
from stationmaster.errors import NotFound, StationmasterError
from stationmaster.gitea import actions, client, codes, marker, store, texts
from stationmaster.gitea.client import explain
from stationmaster.gitea.codes import Language
from stationmaster.gitea.gear import Gear
from stationmaster.gitea.machine import TASK
from stationmaster.gitea.patience import Patience
from stationmaster.gitea.store import Q
from stationmaster.ledger import history
from stationmaster.ledger.tx import Reader, Tx

ACTION = "receipt.edit"
_PHASES = {
    "running": "working",
    "verifying_reply": "working",
    "retry_wait": "working",
    "waiting_user": "waiting",
    "blocked_workspace": "blocked",
    "succeeded": "answered",
    "succeeded_with_rest_fallback": "answered",
    "failed": "failed",
    "failed_reply": "failed",
    "aborting": "working",
    "aborted": "stopped",
    "cancelled": "stopped",
}
_WORDS = {
    "working": ("at work", "正在处理"),
    "waiting": ("waiting for your answer", "等待您的回复"),
    "blocked": ("waiting for an operator", "正在等待管理员处理"),
    "answered": ("answered", "已回复"),
    "failed": ("failed", "已失败"),
    "stopped": ("stopped", "已停止"),
}
_MOST = 1000
_FIRST_PAUSE = 15 * MICROS
_LONGEST_PAUSE = 900 * MICROS

_log = structlog.get_logger("stationmaster.gitea")


@dataclass(frozen=True, slots=True)
class _Receipt:
    """A start receipt at the forge: what it shows now and what it should show."""

    task_id: str
    key: str
    native_id: int
    repository_id: str
    phase: str
    last: bool
    open_edits: tuple[tuple[int, str], ...]


def text(key: str, phase: str, language: Language) -> str:
    """Writes a start receipt that says where its task stands."""
    en, zh = _WORDS[phase]
    return marker.attach(f"{texts.START_RECEIPT} · {zh if language == 'zh' else en}", marker.receipt(key))


def watch(tx: Tx, task_id: str) -> None:
    """Notes that a task's start receipt is to be kept up to date."""
    tx.run(Q.open_live_receipt, task_id=task_id)


class LiveReceipts:
    """The receipts of one forge."""

    def __init__(self, gear: Gear) -> None:
        self._gear = gear
        self._patience = Patience(_FIRST_PAUSE, _LONGEST_PAUSE)

    async def tick(self) -> int:
        """Edits what shows something that is no longer so; returns how many receipts it brought up to date."""
        shown = 0
        for receipt in await self._gear.port.read(self._due):
            try:
                shown += await self._edit(receipt)
            except StationmasterError as error:
                _log.warning("receipt.edit_failed", task=receipt.task_id, code=error.code, error=str(error))
                await self._put_off(receipt)
        return shown

    def _due(self, reader: Reader) -> list[_Receipt]:
        rows = reader.many(Q.live_receipts, instance_id=self._gear.settings.instance_id, limit=_MOST)
        self._patience.keep({row["task_id"] for row in rows})
        found = []
        for row in rows:
            last = row["state"] in TASK.terminal
            phase = _PHASES.get(row["state"], row["shown"])
            due = self._patience.over(row["task_id"], reader.now)
            if row["native_id"] is None or not due or phase is None or (phase == row["shown"] and not last):
                continue
            intents = history.open_intents(reader, subject=_subject(row["key"]), action=ACTION)
            edits = tuple((intent.seq, str(intent.data["phase"])) for intent in intents)
            about = (row["task_id"], row["key"], row["native_id"], row["repository_id"])
            found.append(_Receipt(*about, phase=phase, last=last, open_edits=edits))
        return found

    async def _edit(self, receipt: _Receipt) -> int:
        try:
            there = await self._body(receipt)
        except NotFound as gone:
            return await self._done(receipt, "gone", explain(gone), there=None)
        for seq, phase in receipt.open_edits:
            # Whoever made this edit did not live to see what became of it.
            how = "done" if there == self._wanted(receipt, phase) else "absent"
            await self._gear.port.do(self._cmd(receipt), _result, seq, how, None)
        wanted = self._wanted(receipt, receipt.phase)
        if there == wanted:
            return await self._done(receipt, "done", None, there=there)
        intent = await self._gear.port.do(self._cmd(receipt), _intend, receipt.task_id, receipt.key, receipt.phase)
        forge, native = self._gear.forge, receipt.native_id
        try:
            outcome = await self._gear.at(receipt.repository_id, lambda repo: forge.edit_comment(repo, native, wanted))
        except StationmasterError as error:
            # What a write raises means that nothing was written.
            await self._gear.port.do(self._cmd(receipt), _result, intent, "not_sent", explain(error))
            raise
        faults.point("live.edited")
        if isinstance(outcome, client.Refused):
            await self._gear.port.do(self._cmd(receipt), _result, intent, "failed", outcome.code)
            return await self._done(receipt, "refused", outcome.code, there=None)
        there = await self._body(receipt)
        if there != wanted:
            await self._gear.port.do(self._cmd(receipt), _result, intent, "unknown", codes.REPLY_STATUS_UNKNOWN)
            await self._put_off(receipt)
            return 0
        await self._gear.port.do(self._cmd(receipt), _result, intent, "done", None)
        return await self._done(receipt, "done", None, there=there)

    async def _body(self, receipt: _Receipt) -> str:
        forge, native = self._gear.forge, receipt.native_id
        return (await self._gear.at(receipt.repository_id, lambda repo: forge.get_comment(repo, native))).body

    def _wanted(self, receipt: _Receipt, phase: str) -> str:
        return text(receipt.key, phase, self._gear.settings.language)

    async def _done(self, receipt: _Receipt, how: str, code: str | None, *, there: str | None) -> int:
        # A receipt that nobody can edit, or that somebody deleted, is left alone for good.
        closed = receipt.last or there is None
        await self._gear.port.do(self._cmd(receipt), _shown, receipt.task_id, receipt.phase, closed, how, code)
        self._patience.forget(receipt.task_id)
        return int(how == "done")

    async def _put_off(self, receipt: _Receipt) -> None:
        self._patience.put_off(receipt.task_id, await self._gear.port.read(_now))

    def _cmd(self, receipt: _Receipt) -> Cmd:
        refs = {"task": receipt.task_id, "comment": str(receipt.native_id)}
        return Cmd(ACTION, "system", f"comment:{receipt.key}", refs=refs)


def _subject(key: str) -> str:
    return f"live:{key}"


def _intend(tx: Tx, task_id: str, key: str, phase: str) -> int:
    return tx.intent(ACTION, subject=_subject(key), refs=actions.refs(store.task(tx, task_id)), phase=phase)


def _result(tx: Tx, intent: int, outcome: str, code: str | None) -> None:
    tx.result(intent, outcome, code=code)


def _shown(tx: Tx, task_id: str, phase: str, closed: bool, how: str, code: str | None) -> None:
    tx.run(Q.show_live_receipt, task_id=task_id, shown=phase, closed=int(closed))
    tx.event("receipt.shown", phase=phase, how=how, code=code)


def _now(reader: Reader) -> int:
    return reader.now
