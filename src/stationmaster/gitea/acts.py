"""Does something outside the ledger between its intent and its result, so that nothing happens without a trace (K7).

An act that cannot end here, because the process dies or nobody waits any more, leaves its intent open; whoever works on
the repository next settles it first (`prepare.reclaim`). An act on disk that fails is put away before its result is
written, for without an open intent nobody could tell it from somebody else's.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from stationmaster.command import LedgerPort
from stationmaster.errors import Busy, Illegal, StationmasterError, Unavailable
from stationmaster.gitea import actions, codes, leftovers, store
from stationmaster.gitea.client import explain
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import Task
from stationmaster.ledger import history
from stationmaster.ledger import lease as leases
from stationmaster.ledger.history import Entry, OpenIntent
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.tx import Reader, Tx

P = ParamSpec("P")
R = TypeVar("R")
Body = Callable[[Tx], None]

_PAGE = 500
# Nothing of these begins once an operator has stopped the task.
_SEEN_BY_OTHERS = frozenset({"git.push", "pull.create"})
# Acts whose work still goes on in a thread of this process, also when nobody waits for it any more.
_under_way: set[int] = set()


@dataclass(slots=True)
class Act:
    """One act under way: `outcome` and `data` become its result, and `also` is written in the same transaction."""

    seq: int
    port: LedgerPort
    outcome: str = "done"
    data: dict[str, Any] = field(default_factory=dict)
    also: Body | None = None

    async def off(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs blocking work of this act; what the disk refuses is Unavailable `git_failed`."""
        _under_way.add(self.seq)
        return await self.port.off(_tracked, self.seq, fn, *args, **kwargs)


def _tracked(seq: int, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    try:
        return fn(*args, **kwargs)
    except OSError as error:
        raise Unavailable(
            f"The workspace could not be changed: {error.strerror}: {error.filename}.",
            code=codes.GIT_FAILED,
            hint="Set right what is wrong with that path.",
        ) from error
    finally:
        _under_way.discard(seq)


@contextlib.asynccontextmanager
async def act(
    gear: Gear,
    task: Task,
    action: str,
    *,
    subject: str,
    hold: Hold | None,
    about: Mapping[str, Any],
    run_id: str | None = None,
    first: Body | None = None,
) -> AsyncIterator[Act]:
    """Writes the intent, checks the lease, lets the block act, and writes the result.

    `about` says what the act touches; `first` is written together with the intent. An error of the eight kinds ends
    the act as `failed` and goes on to the caller.
    """
    refs = {} if run_id is None else {"turn": run_id}
    told = {**about, "task": task.id}
    if "bare" in about:
        told["locks"] = await gear.port.off(leftovers.standing, about)
    lease = None if hold is None else hold.lease
    cmd = actions.command(action, task, f"task:{task.id}")
    seq = await gear.port.do(cmd, _intend, action, subject, told, refs, lease, first)
    doing = Act(seq, gear.port)
    try:
        if hold is not None:
            await hold.check()
        yield doing
    except StationmasterError as error:
        with contextlib.suppress(StationmasterError, OSError):
            moved = await gear.port.off(leftovers.put_away, gear.git, seq, told) if "bare" in about else ()
            failure = {"code": explain(error), "words": error.message, "moved": list(moved)}
            await finish(gear, task, seq, "failed", {**doing.data, **failure}, None)
        raise
    await finish(gear, task, seq, doing.outcome, doing.data, doing.also)


def _intend(
    tx: Tx,
    action: str,
    subject: str,
    told: Mapping[str, Any],
    refs: Mapping[str, str],
    lease: Lease | None,
    first: Body | None,
) -> int:
    if lease is not None:
        leases.held(tx, lease)
    if action in _SEEN_BY_OTHERS and store.lock_task(tx, told["task"]).state != "running":
        raise Illegal("The task is being stopped.", code=codes.INVALID_STATE, hint="Nothing more is published.")
    if first is not None:
        first(tx)
    return tx.intent(action, subject=subject, refs=refs, **told)


async def finish(
    gear: Gear, task: Task, seq: int, outcome: str, data: Mapping[str, Any], also: Body | None = None
) -> None:
    """Writes the result of an act, with what belongs to it; a result needs no lease, for it is a fact."""
    cmd = actions.command("act.result", task, f"task:{task.id}")
    await gear.port.do(cmd, _result, seq, outcome, data, also)


def _result(tx: Tx, seq: int, outcome: str, data: Mapping[str, Any], also: Body | None) -> None:
    tx.result(seq, outcome, **data)
    if also is not None:
        also(tx)


def open_of(reader: Reader, task: Task) -> list[OpenIntent]:
    """Returns the acts on a task and its repository that have no result, oldest first."""
    found = [
        *history.open_intents(reader, subject=task.repository_id),
        *history.open_intents(reader, subject=task.id),
    ]
    return sorted(found, key=lambda intent: intent.seq)


async def reclaim_disk(gear: Gear, intent: OpenIntent) -> tuple[str, ...]:
    """Puts away what an act on disk left that did not end; raises Busy while it still goes on."""
    if intent.seq in _under_way:
        raise Busy("The step still goes on in this process.", code=codes.GIT_LOCKED, hint="Wait until it has ended.")
    return await gear.port.off(_reclaim, gear, intent)


def _reclaim(gear: Gear, intent: OpenIntent) -> tuple[str, ...]:
    if not Path(intent.data["bare"]).is_relative_to(gear.layout.root):
        # A backup was restored into another home: what its intents name there is not this worker's to touch.
        return ()
    leftovers.require_unused(Path(intent.data["bare"]))
    return leftovers.put_away(gear.git, intent.seq, intent.data)


def of_task(reader: Reader, task_id: str, name: str) -> list[Entry]:
    """Returns every event of one name about a task, oldest first."""
    found: list[Entry] = []
    after = 0
    while True:
        page = history.by_ref(reader, "task", task_id, after=after, limit=_PAGE)
        found += [entry for entry in page if entry.name == name]
        if len(page) < _PAGE:
            return found
        after = page[-1].seq
