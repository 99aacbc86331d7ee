"""Lets payloads go when their days are over: texts, transcripts, deliveries, and what runs left on this disk.

Guarded rows and the history stay, so what a task was, did and proved is told for ever (K9). Tasks are met in the order
of their ends, each once; how far this came is stored. Everything is small commands by whoever holds the duty.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from stationmaster import ids
from stationmaster.clock import MICROS
from stationmaster.command import Cmd, LedgerPort
from stationmaster.errors import Busy
from stationmaster.gitea import actions, store
from stationmaster.gitea.duty import Duty
from stationmaster.gitea.machine import TASK
from stationmaster.gitea.retention_disk import Disk
from stationmaster.inbox import actions as inbox
from stationmaster.jobs import actions as jobs
from stationmaster.ledger import history, queries
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.tx import Reader, Tx

_Q = queries.load("stationmaster.gitea", "retention.sql")

_DAY = 86_400 * MICROS
_TTL_S = 60.0
# Rows of the history that one look passes, and tasks that one step meets.
_WINDOW = 4000
_MOST_TASKS = 20
_MOST_ROWS = 180
_PAYLOADS, _EVENTS = "payloads", "events"
_MOST_STEPS = 1_000_000
_KINDS = ("deliveries", _EVENTS, _PAYLOADS, "files")


@dataclass(frozen=True, slots=True)
class Keep:
    """For how many days each kind is kept."""

    delivery_days: float = 30
    event_days: float = 30
    payload_days: float = 180
    file_days: float = 90
    thread_days: float = 180

    def before(self, now: int, days: float) -> int:
        """Returns the time before which something is let go."""
        return now - int(days * _DAY)


@dataclass(frozen=True, slots=True)
class _Ended:
    """Tasks that came to their end, and how far in the history one may go on after them."""

    tasks: tuple[str, ...]
    upto: int
    more: bool


@dataclass(slots=True)
class Retention:
    """The duty. Any number of processes may have it; one at a time does it, and each looks after its own disk."""

    port: LedgerPort
    keep: Keep
    disk: Disk | None = None
    owner: str = field(default_factory=lambda: ids.new("keeper"))
    _duty: Duty = field(init=False)

    def __post_init__(self) -> None:
        """Makes the lease of the duty; each start is an owner of its own."""
        self._duty = Duty(self.port, "retention", owner=self.owner, incarnation=self.owner, ttl_s=_TTL_S)

    async def tick(self, now: int) -> int:
        """Lets go of some; returns how many things, so that the loop comes again while there are more."""
        _ = now
        if not await self.port.read(self._anything):
            return await self._clear_disk()
        if not await self._duty.on():
            return 0
        try:
            return sum((await self._step(self._held())).values()) + await self._clear_disk()
        finally:
            await self._duty.leave()

    async def everything(self, *, dry_run: bool) -> dict[str, int]:
        """Lets go of all that is due, or only counts it; raises Busy while somebody else has the duty."""
        if dry_run:
            return {**await self.port.read(self._due), **(await self.disk.due(self.keep) if self.disk else {})}
        if not await self._duty.on():
            raise Busy("Old payloads are being let go at this moment.", code="busy", hint="Try again in a minute.")
        done: Counter[str] = Counter()
        try:
            for _ in range(_MOST_STEPS):
                some = await self._step(self._held())
                if self.disk is not None:
                    some.update(await self.disk.step(self.keep))
                done.update(some)
                if not sum(some.values()) and not await self.port.read(self._anything):
                    break
                await self._duty.keep()
        finally:
            await self._duty.leave()
        return {kind: done[kind] for kind in _KINDS}

    def _held(self) -> Lease:
        assert self._duty.lease is not None, "BUG: nobody works without the duty"  # noqa: S101 - the callers have it
        return self._duty.lease

    async def _clear_disk(self) -> int:
        return 0 if self.disk is None else sum((await self.disk.step(self.keep)).values())

    async def _step(self, lease: Lease) -> Counter[str]:
        done: Counter[str] = Counter()
        if await self.port.read(self._old_deliveries):
            cmd = Cmd("retention.deliveries", "system", "tick:retention")
            done["deliveries"] = await self.port.do(cmd, _forget, lease, self.keep)
        for kind in (_EVENTS, _PAYLOADS):
            ended = await self.port.read(self._ended, kind)
            for task_id in ended.tasks:
                done[kind] += await self._let_go(kind, task_id, lease)
            if ended.upto:
                cmd = Cmd("retention.pass", "system", "tick:retention")
                await self.port.do(cmd, _pass, lease, kind, ended.upto)
                done["passed"] += int(ended.more)
        return done

    async def _let_go(self, kind: str, task_id: str, lease: Lease) -> int:
        task = await self.port.read(store.task, task_id)
        if kind == _PAYLOADS:
            if not await self.port.read(_payloads, task_id):
                return 0
            return await self.port.do(
                actions.command("retention.payloads", task, "tick:retention"), _drop, lease, task_id
            )
        gone = 0
        for turn in await self.port.read(store.turns, task_id):
            left = await self.port.read(jobs.kept_events, turn.run_id)
            while left > 0:
                cmd = actions.command("retention.events", task, "tick:retention")
                dropped = await self.port.do(cmd, _drop_events, lease, turn.run_id)
                gone, left = gone + dropped, left - max(dropped, 1)
        return gone

    # --- looking ---

    def _anything(self, reader: Reader) -> bool:
        return bool(self._old_deliveries(reader)) or any(
            ended.tasks or ended.more for ended in (self._ended(reader, kind) for kind in (_EVENTS, _PAYLOADS))
        )

    def _old_deliveries(self, reader: Reader) -> int:
        before = self.keep.before(reader.now, self.keep.delivery_days)
        refusals = reader.one(_Q.old_refusals, day=before // _DAY)
        return (
            store.old_deliveries(reader)
            + inbox.old(reader, before=before)
            + (0 if refusals is None else int(refusals["n"]))
        )

    def _ended(self, reader: Reader, kind: str, after: int | None = None) -> _Ended:
        """Returns the next tasks whose payloads of one kind are past their days."""
        days = self.keep.event_days if kind == _EVENTS else self.keep.payload_days
        before = self.keep.before(reader.now, days)
        if after is None:
            row = reader.one(_Q.passed, name=kind)
            after = 0 if row is None else int(row["seq"])
        upto = min(after + _WINDOW, history.horizon(reader))
        if upto <= after:
            return _Ended((), 0, more=False)
        rows = reader.many(_Q.ended, after=after, upto=upto, limit=_MOST_TASKS)
        due = [row for row in rows if row["at"] <= before]
        tasks = tuple(str(row["task_id"]) for row in due)
        if len(due) < len(rows):
            return _Ended(tasks, int(due[-1]["seq"]) if due else 0, more=False)
        if len(rows) == _MOST_TASKS:
            return _Ended(tasks, int(rows[-1]["seq"]), more=True)
        latest = reader.one(_Q.latest_at, after=after, upto=upto)
        if latest is not None and latest["at"] is not None and latest["at"] > before:
            return _Ended(tasks, int(due[-1]["seq"]) if due else 0, more=False)
        return _Ended(tasks, upto, more=upto == after + _WINDOW)

    def _due(self, reader: Reader) -> dict[str, int]:
        found: Counter[str] = Counter({"deliveries": self._old_deliveries(reader), _EVENTS: 0, _PAYLOADS: 0})
        for kind in (_EVENTS, _PAYLOADS):
            ended = self._ended(reader, kind)
            while ended.upto:
                for task_id in ended.tasks:
                    found[kind] += _payloads(reader, task_id) if kind == _PAYLOADS else _events(reader, task_id)
                if not ended.more:
                    break
                ended = self._ended(reader, kind, ended.upto)
        return dict(found)


def made(port: LedgerPort, keep: Keep, *, runs: Path, codex_homes: Path, scratch: Path) -> Retention:
    """Makes the duty of one worker, with its folders."""
    return Retention(port, keep, Disk(port, runs, codex_homes, scratch, _is_over, living_threads))


def _is_over(reader: Reader, task_id: str) -> bool:
    task = store.find_task(reader, task_id)
    return task is not None and task.state in TASK.terminal


def _events(reader: Reader, task_id: str) -> int:
    return sum(jobs.kept_events(reader, turn.run_id) for turn in store.turns(reader, task_id))


def _payloads(reader: Reader, task_id: str) -> int:
    row = reader.one(_Q.payloads, task_id=task_id)
    return 0 if row is None else int(row["n"])


def living_threads(reader: Reader, repository_id: str, before: int) -> frozenset[str]:
    """Returns the conversations of a repository that are not over, or not long enough."""
    rows = reader.many(_Q.living_threads, repository_id=repository_id, before=before)
    return frozenset(str(row["thread_id"]) for row in rows)


# --- bodies ---


def _forget(tx: Tx, lease: Lease, keep: Keep) -> int:
    leases.held(tx, lease)
    before = keep.before(tx.now, keep.delivery_days)
    # What belongs to one delivery goes together; all stays within the rows of one command.
    gone = store.prune_deliveries(tx, limit=60)
    gone += inbox.prune(tx, before=before, limit=60)
    return gone + tx.run(_Q.drop_refusals, day=before // _DAY, limit=60)


def _drop(tx: Tx, lease: Lease, task_id: str) -> int:
    leases.held(tx, lease)
    gone = tx.run(_Q.drop_instruction, task_id=task_id) + tx.run(_Q.blank_follow_ups, task_id=task_id)
    gone += tx.run(_Q.drop_comment_bodies, task_id=task_id) + tx.run(_Q.drop_final_texts, task_id=task_id)
    tx.event("retention.payloads", rows=gone)
    return gone


def _drop_events(tx: Tx, lease: Lease, run_id: str) -> int:
    leases.held(tx, lease)
    gone = jobs.drop_events(tx, run_id, limit=_MOST_ROWS)
    tx.event("retention.events", refs={"turn": run_id}, rows=gone)
    return gone


def _pass(tx: Tx, lease: Lease, kind: str, seq: int) -> None:
    leases.held(tx, lease)
    tx.run(_Q.move_on, name=kind, seq=seq)
