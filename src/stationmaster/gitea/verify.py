"""Proves that a task's answer is there, or makes it be there once more, or says that nobody knows (section 12).

The read alone decides. What cannot be read is never taken for missing; what is unknown is never written a second time.
Takes a task in `verifying_reply` to a state in which nobody works on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stationmaster import faults
from stationmaster.clock import MICROS
from stationmaster.errors import StationmasterError
from stationmaster.gitea import actions, codes, comments, marker, parts, store, texts
from stationmaster.gitea.client import explain
from stationmaster.gitea.comments import CommentChannel
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.machine import COMMENT
from stationmaster.gitea.model import Comment, Task
from stationmaster.gitea.settings import GiteaSettings
from stationmaster.ledger import history
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.tx import Reader, Tx
from stationmaster.outbox import channel, tries
from stationmaster.outbox.attempt import Attempt, attempt

# The share of the settling time before each read (GW-R-167).
_PAUSES = (0.0, 0.3, 0.7)
_ONE_READ = (0.0,)
_OPEN = frozenset({"pending", "sent"})


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of one of the accepted turns; `also` are further comments that match (GW-R-176)."""

    comment_id: int
    turn: str = ""
    body: str = ""
    also: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """A complete read showed no answer."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can tell; with `again_at` only because an answer may still be on its way until then."""

    code: str
    again_at: int | None = None


Seen = Found | Missing | Unknown


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is looked for: the accepted turns (GW-R-166); `quiet_at` is when silence means absence.

    `reported` are comments that a call of the bridge named: among several answers one of these counts (GW-R-161).
    """

    task: Task
    turns: tuple[str, ...]
    proven: Comment | None
    quiet_at: int
    now: int
    reported: frozenset[int] = frozenset()


async def look(gear: Gear, task: Task) -> Seen:
    """Looks once for the task's answer, with up to three reads in the settling time; writes nothing."""
    return await _look(gear, task, _PAUSES)


async def settle(gear: Gear, hold: Hold, task: Task) -> Task:
    """Takes a task in `verifying_reply` to where it rests, and gives its lease back.

    Raises Stale (`lease_lost`) when the lease is lost: whoever holds it now goes on.
    """
    return await _Verification(gear, hold, task).run()


async def _look(gear: Gear, task: Task, pauses: tuple[float, ...]) -> Seen:
    wanted = await gear.port.read(_wanted, task.id, CommentChannel(gear))
    if wanted.proven is not None and wanted.proven.native_id is not None:
        return Found(wanted.proven.native_id, wanted.proven.run_id or "")
    seen: Seen = Missing()
    for pause in pauses:
        await asyncio.sleep(pause * gear.settings.settle_s)
        seen = await _read(gear, wanted)
        if isinstance(seen, Found):
            return seen
    if isinstance(seen, Missing) and wanted.now < wanted.quiet_at:
        return Unknown(codes.REPLY_STATUS_UNKNOWN, wanted.quiet_at)
    return seen


async def _read(gear: Gear, wanted: _Wanted) -> Seen:
    task = wanted.task
    if not wanted.turns:
        return Missing()
    try:
        said = await comments.bot_comments(gear, task)
    except StationmasterError as error:
        return Unknown(explain(error))
    matching = [
        each
        for each in said
        if marker.is_final(each.body, task_id=task.id, turns=wanted.turns, resource_key=task.resource_key)
    ]
    if not matching:
        return Missing()
    first, *rest = sorted(matching, key=lambda each: (each.id not in wanted.reported, each.id))
    mark = marker.only(first.body)
    return Found(first.id, mark.turn_id if mark else "", first.body, tuple(each.id for each in rest))


def _wanted(reader: Reader, task_id: str, posts: CommentChannel) -> _Wanted:
    task = store.task(reader, task_id)
    turns = accepted(reader, task_id)
    rows = [row for turn in turns if (row := store.comment(reader, actions.final_key(task_id, turn))) is not None]
    proven = next((row for row in rows if row.state == "confirmed"), None)
    quiet = [
        each.at + int(posts.grace_s(each.code) * MICROS)
        for row in rows
        for each in tries.of(reader, posts.action, row.id)
        if each.outcome in {None, "unknown"}
    ]
    reported = {
        (entry.data or {}).get("comment")
        for turn in turns
        for entry in history.by_ref(reader, "turn", turn)
        if entry.name == "mcp.call_observed"
    }
    named = frozenset(number for number in reported if isinstance(number, int))
    return _Wanted(task, turns, proven, max(quiet, default=0), reader.now, named)


def accepted(reader: Reader, task_id: str) -> tuple[str, ...]:
    """Returns the latest normal turn and what retried its reply: only their answers count (GW-R-166)."""
    found: tuple[str, ...] = ()
    for turn in store.turns(reader, task_id):
        found = (turn.run_id,) if turn.kind == "normal" else (*found, turn.run_id)
    return found


class _Verification:
    def __init__(self, gear: Gear, hold: Hold, task: Task) -> None:
        self._gear = gear
        self._hold = hold
        self._task = task

    async def run(self) -> Task:
        if await self._gear.port.read(_fallback_begun, self._task.id):
            # GW-R-174: whoever began to post it did not end; what became of it is read back first.
            return await self._post_fallback()
        seen = await self._verify(_PAUSES)
        if isinstance(seen, Missing):
            if self._task.reply_attempt == 0:
                return await self._do("reply.retry", _retried)
            # GW-R-171: the last thing before something is written is a read.
            seen = await self._verify(_ONE_READ)
        if isinstance(seen, Missing):
            return await self._fallback()
        if isinstance(seen, Found):
            return await self._do("reply.confirm", _confirmed, seen)
        if seen.again_at is not None:
            return await self._do("reply.wait", _later, seen.again_at)
        return await self._do("reply.unknown", _unknown, codes.REPLY_STATUS_UNKNOWN, seen.code)

    async def _verify(self, pauses: tuple[float, ...]) -> Seen:
        """Looks, with an intent before and the result after (GW-R-175)."""
        intent = await self._note("reply.verify", _intended)
        faults.point("verify.intended")
        seen = await _look(self._gear, self._task, pauses)
        await self._note("reply.verify", _looked, intent, seen)
        faults.point("verify.looked")
        return seen

    async def _fallback(self) -> Task:
        ready = await self._note("reply.fallback", _intend_fallback)
        if not ready:
            return await self._do("reply.fallback", _failed, codes.REPLY_TEXT_MISSING, "no_text")
        faults.point("verify.fallback_intended")
        return await self._post_fallback()

    async def _post_fallback(self) -> Task:
        key = actions.fallback_key(self._task.id)
        done = await attempt(self._gear.port, CommentChannel(self._gear), key, hold=self._hold)
        faults.point("verify.fallback_posted")
        if done.row.state == "confirmed":
            return await self._do("reply.confirm", _confirmed_fallback)
        if done.how == "too_early" and done.again_at is not None:
            return await self._do("reply.wait", _later, done.again_at)
        if done.how == "unreadable":
            return await self._do("reply.unknown", _unknown, codes.REPLY_STATUS_UNKNOWN, done.code)
        return await self._do("reply.fallback", _failed, _code_of(done), done.how)

    async def _note(self, name: str, body: Callable[..., Any], *args: object) -> Any:
        cmd = actions.command(name, self._task, self._cause)
        return await self._gear.port.do(cmd, body, self._task.id, self._hold.lease, *args)

    async def _do(self, name: str, body: Callable[..., Any], *args: object) -> Task:
        cmd = actions.command(name, self._task, self._cause)
        moved: Task = await self._gear.port.do(cmd, body, self._task.id, self._hold.lease, self._gear.settings, *args)
        return moved

    @property
    def _cause(self) -> str:
        return f"lease:{self._hold.lease.lease_id}"


def _code_of(done: Attempt[comments.Posting]) -> str:
    """Returns why a fallback is not there: it was not taken, or it was and nobody can see it (GW-R-171)."""
    not_taken = done.how in {"refused", "not_sent"} or done.code == codes.FORGE_ERROR
    return codes.REST_FALLBACK_FAILED if not_taken else codes.REST_FALLBACK_UNCONFIRMED


# --- bodies: one command each, under the lease ----------------------------------------------------------------------


def _intended(tx: Tx, task_id: str, lease: Lease) -> int:
    leases.held(tx, lease)
    return tx.intent("reply.verify", subject=task_id, turns=list(accepted(tx, task_id)))


def _looked(tx: Tx, task_id: str, lease: Lease, intent: int, seen: Seen) -> None:
    _ = task_id, lease
    if isinstance(seen, Found):
        refs = {"comment": str(seen.comment_id), **({"turn": seen.turn} if seen.turn else {})}
        tx.result(intent, "found", refs=refs, comment=seen.comment_id)
    elif isinstance(seen, Missing):
        tx.result(intent, "missing")
    else:
        tx.result(intent, "unknown", code=seen.code, again_at=seen.again_at)


def _confirmed(tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings, found: Found) -> Task:
    """GW-R-168: the answer is there."""
    leases.held(tx, lease)
    task = store.task(tx, task_id)
    # An answer that the agent posted by itself has no row yet.
    key = actions.final_key(task_id, found.turn)
    row = actions.intend_comment(tx, task, key, "mcp_final", found.body, run_id=found.turn or None)
    if row.state in _OPEN:
        tries.settle(tx, tries.alone(tx, CommentChannel.action, row.id), "done", native=found.comment_id)
        comments.confirm(tx, row, channel.Found(found.comment_id, found.also))
    _close_others(tx, task_id)
    refs = {"comment": str(found.comment_id), **({"turn": found.turn} if found.turn else {})}
    tx.event("reply.confirm", refs=refs, comment=found.comment_id, kind="mcp_final")
    return actions.leave(
        tx, task_id, "confirm", lease, settings, error_code=None, next_retry_at=None, retry_purpose=None
    )


def _confirmed_fallback(tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings) -> Task:
    """GW-R-095, GW-R-105: the fallback is there, and why it was needed stays known."""
    row = store.comment(tx, actions.fallback_key(task_id))
    native = None if row is None else row.native_id
    _close_others(tx, task_id)
    tx.event("reply.confirm", refs={"comment": str(native)}, comment=native, kind="rest_fallback")
    return actions.leave(
        tx,
        task_id,
        "confirm_fallback",
        lease,
        settings,
        error_code=None,
        reply_failure=codes.MCP_REPLY_MISSING,
        next_retry_at=None,
        retry_purpose=None,
    )


def _close_others(tx: Tx, task_id: str) -> None:
    """Ends the rows of answers that a proven one has made superfluous; nothing may send them any more."""
    for row in store.comments(tx, task_id):
        if row.kind in {"mcp_final", "rest_fallback"} and row.state in _OPEN:
            tries.settle(tx, tries.alone(tx, CommentChannel.action, row.id), "absent")
            code = codes.MCP_REPLY_MISSING
            tx.move(COMMENT, row.id, "fail", rev=row.rev, error_code=code, updated_at=tx.now)
            tx.event("comment.failed", key=row.id, code=code)


def _retried(tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings) -> Task:
    """GW-R-170: one turn that only posts the answer again."""
    tx.event("reply.missing")
    tx.event("reply.retry", attempt=1)
    return actions.postpone(
        tx, task_id, "reply", lease, settings, delay_s=0, reply_attempt=1, error_code=codes.MCP_REPLY_MISSING
    )


def _later(tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings, again_at: int) -> Task:
    """Looks again once an answer that left us can no longer be on its way."""
    delay_s = max(again_at - tx.now, 0) / MICROS
    tx.event("reply.wait", until=again_at)
    return actions.postpone(tx, task_id, "verification", lease, settings, delay_s=delay_s)


def _unknown(tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings, code: str, reason: str | None) -> Task:
    """GW-R-169: nobody knows, so nothing is written; an operator is told."""
    tx.event("reply.unknown", code=code, reason=reason)
    tx.event("alert.reply_unknown", code=code, reason=reason)
    return _end(tx, task_id, lease, settings, code)


def _failed(tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings, code: str, how: str) -> Task:
    """GW-R-171, GW-R-173: the last way to answer has failed."""
    tx.event("reply.fallback", outcome="failed", code=code, how=how)
    tx.event("alert.reply_failed", code=code)
    return _end(tx, task_id, lease, settings, code)


def _end(tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings, code: str) -> Task:
    task = store.task(tx, task_id)
    failure = codes.MCP_REPLY_MISSING if task.reply_attempt else task.reply_failure
    return actions.leave(
        tx,
        task_id,
        "fail_reply",
        lease,
        settings,
        error_code=code,
        reply_failure=failure,
        next_retry_at=None,
        retry_purpose=None,
    )


def _fallback_begun(reader: Reader, task_id: str) -> bool:
    key = actions.fallback_key(task_id)
    return store.comment(reader, key) is not None and bool(tries.of(reader, CommentChannel.action, key))


def _intend_fallback(tx: Tx, task_id: str, lease: Lease) -> bool:
    """Stores what will be posted before it is (GW-R-173); returns False when there are no words at all."""
    leases.held(tx, lease)
    task = store.task(tx, task_id)
    tx.event("reply.missing")
    run_id, words = fallback_words(tx, task_id)
    if not words:
        return False
    first, *further = parts.split(words)
    body = texts.answer(first, (), marker.final(task_id, run_id, task.resource_key))
    # It carries no term: only its verification sends it, and always under the lease that it holds then.
    row = actions.intend_comment(tx, task, actions.fallback_key(task_id), "rest_fallback", body, run_id=run_id)
    actions.intend_parts(tx, task, row.id, further, run_id=run_id)
    tx.event("reply.fallback", outcome="intended", key=row.id)
    return True


def fallback_words(reader: Reader, task_id: str) -> tuple[str, str]:
    """Returns the turn and words that a reply retry or fallback posts; no words when there are none (GW-R-173)."""
    turns = accepted(reader, task_id)
    said = [(turn, store.final_text(reader, turn).strip()) for turn in turns]
    spoken = max(said, key=lambda each: len(each[1]), default=("", ""))
    if spoken[1]:
        return spoken
    # The agent ended without a last message: what it handed to `reply` is its answer.
    for turn in reversed(turns):
        mark = marker.final(task_id, turn, store.task(reader, task_id).resource_key)
        body = store.comment_body(reader, actions.final_key(task_id, turn)).removesuffix(mark).strip()
        if body:
            return turn, body
    return "", ""
