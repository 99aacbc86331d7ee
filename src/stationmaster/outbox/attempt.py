"""The one sender (architecture §7): every effect that has a row is attempted here, whoever asks for it.

Order. What may already have happened is read back first. Only then: an intent, in a command that also checks the lease;
the lease once more; the act; its result; the read-back that alone proves it.

Gate. A try's intent carries its number as the command's dedupe key, so of two who try at the same time one gets no
intent and sends nothing. Whoever dies in between leaves an intent without a result: until the effect can no longer be
on its way, nobody concludes from not seeing it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal

from stationmaster import faults, ids
from stationmaster.clock import MICROS
from stationmaster.command import Cmd, LedgerPort
from stationmaster.errors import Busy, Stale
from stationmaster.ledger import history
from stationmaster.ledger import lease as leases
from stationmaster.ledger.tx import Reader, Tx
from stationmaster.outbox import tries
from stationmaster.outbox.channel import Absent, Channel, Done, Found, Holder, Outcome, R, Refused, Seen
from stationmaster.outbox.tries import Try

LEASE_LOST = "lease_lost"
_ELSEWHERE = "sent_elsewhere"
# The share of the settling time that passes before each of the three reads (GW-R-167).
_PAUSES = (0.0, 0.3, 0.7)

How = Literal[
    "proven",  # it is there
    "delivered",  # the other side said so, and nobody saw it yet
    "refused",  # it was definitely refused, now or earlier
    "not_sent",  # nothing left us this time
    "unknown",  # it left us, and nobody knows
    "too_early",  # it is not there, but may still be on its way until `again_at`
    "absent",  # proven not to be there, and not sent again
    "unreadable",  # nobody could look
    "barred",  # it is not to be sent, now or ever
    "elsewhere",  # somebody else attends to it
]


@dataclass(frozen=True, slots=True)
class Attempt(Generic[R]):
    """What came of it, and the row as it is now."""

    row: R
    how: How
    code: str | None = None
    again_at: int | None = None


async def attempt(port: LedgerPort, channel: Channel[R], key: str, *, hold: Holder | None = None) -> Attempt[R]:
    """Brings a row as far as it can be brought now; a row that has ended is returned as it is.

    With `hold` it is sent only while that lease is held; a row that carries a term only while that term is current.
    Raises Stale (`lease_lost`) when `hold` is lost, and Unavailable when the ledger is.
    """
    return await _Attempt(port, channel, key, hold).run()


async def watch(channel: Channel[R], row: R) -> Seen:
    """Looks for an effect that was just made: up to three reads within the settling time."""
    seen: Seen = Absent()
    for pause in _PAUSES:
        await asyncio.sleep(pause * channel.settle_s)
        seen = await channel.read_back(row)
        if isinstance(seen, Found):
            break
    return seen


@dataclass(frozen=True, slots=True)
class _State(Generic[R]):
    """What is known before anything is done; `stale` tells that the row's term is not current."""

    row: R
    tries: list[Try]
    now: int
    stale: bool

    @property
    def doubtful(self) -> list[Try]:
        return [each for each in self.tries if each.doubtful]

    @property
    def left(self) -> list[Try]:
        return [each for each in self.tries if each.left]


class _Attempt(Generic[R]):
    def __init__(self, port: LedgerPort, channel: Channel[R], key: str, hold: Holder | None) -> None:
        self._port = port
        self._channel = channel
        self._key = key
        self._hold = hold

    async def run(self) -> Attempt[R]:
        state = await self._port.read(self._state)
        row = state.row
        if row.state in {"confirmed", "failed"}:
            return Attempt(row, "proven" if row.state == "confirmed" else "refused")
        if row.state == "sent" or state.doubtful:
            settled = await self._look_back(state)
            if settled is not None:
                return settled
        barred = self._channel.barred(row) or (LEASE_LOST if state.stale else None)
        if barred is not None:
            return await self._drop(state, "barred", barred)
        return await self._send(state)

    async def _look_back(self, state: _State[R]) -> Attempt[R] | None:
        """Settles what may have happened; returns None when it did not and may be sent (once more)."""
        row, channel = state.row, self._channel
        seen = await channel.read_back(row)
        if isinstance(seen, Found):
            return await self._prove(row, seen)
        if not isinstance(seen, Absent):
            return Attempt(row, "unreadable", seen.code)
        code = None
        if state.doubtful:
            last = state.doubtful[-1]
            code = last.code
            again_at = last.at + int(channel.grace_s(code) * MICROS)
            if state.now < again_at:
                return Attempt(row, "too_early", code, again_at)
        if channel.again(row, state.left):
            return None
        return await self._drop(state, "absent", code or channel.lost)

    async def _drop(self, state: _State[R], how: How, code: str) -> Attempt[R]:
        """Ends a row that will not be sent (again), unless its owner decides about it."""
        if self._channel.keeps(state.row):
            return Attempt(state.row, how, code)
        row = await self._port.do(self._cmd(state.row, "drop"), self._dropped, code)
        return Attempt(row, how, code)

    async def _send(self, state: _State[R]) -> Attempt[R]:
        number = len(state.tries)
        cmd = replace(self._cmd(state.row, "intend"), dedupe=f"{self._key}:{number}")
        try:
            intent = await self._port.do(cmd, self._intended, state.row.rev, number, ids.new("try"))
        except (Stale, Busy) as error:
            if error.code == LEASE_LOST and self._hold is not None:
                raise Stale(error.message, code=LEASE_LOST, hint=error.hint) from None
            return Attempt(await self._row(), "barred" if error.code == LEASE_LOST else "elsewhere", error.code)
        faults.point("outbox.intended")
        try:
            await self._still_ours(state.row)
        except Stale:
            await self._port.do(self._cmd(state.row, "not_sent"), self._result, intent, "not_sent", LEASE_LOST)
            if self._hold is not None:
                raise
            return Attempt(await self._row(), "barred", LEASE_LOST)
        outcome = await self._channel.send(state.row)
        faults.point("outbox.sent")
        return await self._conclude(state.row, intent, outcome)

    async def _conclude(self, row: R, intent: int, outcome: Outcome) -> Attempt[R]:
        if isinstance(outcome, Done):
            row = await self._port.do(self._cmd(row, "deliver"), self._delivered, intent, outcome.native)
            faults.point("outbox.delivered")
            seen = await watch(self._channel, row)
            return await self._prove(row, seen) if isinstance(seen, Found) else Attempt(row, "delivered")
        if isinstance(outcome, Refused):
            row = await self._port.do(self._cmd(row, "refuse"), self._refused, intent, outcome)
            return Attempt(row, "refused", outcome.code)
        if outcome.sent:
            seen = await watch(self._channel, row)
            if isinstance(seen, Found):
                return await self._prove(row, seen)
        how: Literal["unknown", "not_sent"] = "unknown" if outcome.sent else "not_sent"
        row = await self._port.do(self._cmd(row, how), self._result, intent, how, outcome.code)
        return Attempt(row, how, outcome.code)

    async def _prove(self, row: R, found: Found) -> Attempt[R]:
        row = await self._port.do(self._cmd(row, "prove"), self._proven, found)
        faults.point("outbox.proven")
        return Attempt(row, "proven" if row.state == "confirmed" else "refused")

    async def _still_ours(self, row: R) -> None:
        if self._hold is not None:
            await self._hold.check()
        await self._port.read(self._check_term, row)

    async def _row(self) -> R:
        return await self._port.read(self._channel.load, self._key)

    def _cmd(self, row: R, step: str) -> Cmd:
        cmd = self._channel.command(row, f"{self._channel.action}.{step}")
        return replace(cmd, refs={**cmd.refs, tries.REF: self._key})

    # --- bodies ---

    def _state(self, reader: Reader) -> _State[R]:
        row = self._channel.load(reader, self._key)
        return _State(row, tries.of(reader, self._channel.action, self._key), reader.now, self._stale(reader, row))

    def _stale(self, reader: Reader, row: R) -> bool:
        try:
            self._check_term(reader, row)
        except Stale:
            return True
        return False

    def _check_term(self, reader: Reader, row: R) -> None:
        """Raises Stale unless the term of a row that carries one is current."""
        if row.term is None:
            return
        current = leases.current(reader, *self._channel.lease_of(row))
        if current is None or current.term != row.term:
            raise Stale("The lease it was written under is over.", code=LEASE_LOST, hint="Leave it.", key=self._key)
        # Inside a command this also keeps the lease from changing hands before the commit.
        leases.held(reader, current)

    def _intended(self, tx: Tx, rev: int, number: int, token: str) -> int:
        _ = token  # makes the arguments of everyone who tries differ, so that a repeat is no replay
        row = self._channel.load(tx, self._key)
        known = tries.of(tx, self._channel.action, self._key)
        # Busy is not remembered under the dedupe key: the same number may be tried later.
        if row.rev != rev or len(known) != number:
            raise Busy("Somebody else attends to it.", code=_ELSEWHERE)
        try:
            if self._hold is not None:
                leases.held(tx, self._hold.lease)
            self._check_term(tx, row)
        except Stale as lost:
            raise Busy(lost.message, code=LEASE_LOST, hint=lost.hint) from None
        tries.settle(tx, known, "absent")
        return tx.intent(self._channel.action, subject=self._key, key=self._key, number=number + 1)

    def _delivered(self, tx: Tx, intent: int, native: Any) -> R:
        row = self._channel.load(tx, self._key)
        self._write_result(tx, intent, "done", native=native)
        if row.state == "pending":
            self._channel.deliver(tx, row, native)
        return self._channel.load(tx, self._key)

    def _refused(self, tx: Tx, intent: int, refused: Refused) -> R:
        self._write_result(tx, intent, "failed", code=refused.code, words=refused.message)
        return self._failed(tx, refused.code)

    def _dropped(self, tx: Tx, code: str) -> R:
        tries.settle(tx, tries.alone(tx, self._channel.action, self._key), "absent")
        return self._failed(tx, code)

    def _failed(self, tx: Tx, code: str) -> R:
        row = self._channel.load(tx, self._key)
        if row.state in {"pending", "sent"}:
            self._channel.fail(tx, row, code)
        return self._channel.load(tx, self._key)

    def _result(self, tx: Tx, intent: int, outcome: str, code: str) -> R:
        self._write_result(tx, intent, outcome, code=code)
        return self._channel.load(tx, self._key)

    def _proven(self, tx: Tx, found: Found) -> R:
        known = tries.alone(tx, self._channel.action, self._key)
        doubtful = [each for each in known if each.doubtful and each.outcome != "done"]
        # With several it cannot be told which one it was.
        tries.settle(tx, known, "done" if len(doubtful) == 1 else "unknown", native=found.native)
        row = self._channel.load(tx, self._key)
        if row.state in {"pending", "sent"}:
            self._channel.confirm(tx, row, found)
        return self._channel.load(tx, self._key)

    def _write_result(self, tx: Tx, intent: int, outcome: str, **data: Any) -> None:
        # A read-back by somebody else may have settled it meanwhile.
        tries.alone(tx, self._channel.action, self._key)
        if all(known.outcome == "unknown" for known in history.results(tx, intent)):
            tx.result(intent, outcome, **data)
