"""Runs one body inside a transaction that an engine opened: receipt look-up, body, receipt, seal.

The engine alone decides when to commit or to roll back.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from stationmaster import faults
from stationmaster.command import Cmd, inside_command
from stationmaster.errors import StationmasterError
from stationmaster.ledger import receipts
from stationmaster.ledger.session import Session
from stationmaster.ledger.tx import Doors, HotTx, Tx


@dataclass(slots=True)
class Job:
    """One body that waits for its transaction; without `cmd` it goes through the hot door."""

    cmd: Cmd | None
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    future: Future[Any] = field(default_factory=Future)
    digest: str = ""

    def prepare(self) -> None:
        """Hashes the arguments on the caller's thread: the writer's time is everybody's."""
        if self.cmd is not None:
            self.digest = receipts.args_hash(self.cmd, self.args, self.kwargs)


def perform(session: Session, doors: Doors, job: Job) -> Any:
    """Runs the body and returns its result; raises what it raised, or Replay for a stored answer."""
    with inside_command():
        if job.cmd is None:
            return job.fn(HotTx(session, doors), *job.args, **job.kwargs)
        receipts.recall(session, job.cmd, job.digest)
        tx = Tx(session, doors, job.cmd, job.digest)
        result = job.fn(tx, *job.args, **job.kwargs)
        if job.cmd.dedupe is not None:
            result = receipts.store(tx, session, job.digest, result)
        if tx.opened:
            session.seal(tx.seq)
        return result


def to_remember(job: Job, error: BaseException) -> StationmasterError | None:
    """Returns the refusal that a repeat must see again, or None."""
    if job.cmd is not None and job.cmd.dedupe is not None and isinstance(error, receipts.REMEMBERED):
        return error
    return None


def remember(session: Session, doors: Doors, job: Job, refusal: StationmasterError) -> None:
    """Writes a refusal and its receipt as a command of its own, after the body was rolled back.

    Raises Replay when the request was answered meanwhile.
    """
    if job.cmd is None:
        return
    with inside_command():
        # Between the rollback and now somebody may have answered the same request: then theirs is the first answer.
        receipts.recall(session, job.cmd, job.digest)
        tx = Tx(session, doors, job.cmd, job.digest)
        receipts.store_refusal(tx, session, job.digest, refusal)
        session.seal(tx.seq)


def keep(commit: Callable[[], None]) -> None:
    """Commits, with the places where a crash tells whether a write was promised too early."""
    faults.point("ledger.before_commit")
    commit()
    faults.point("ledger.after_commit")
