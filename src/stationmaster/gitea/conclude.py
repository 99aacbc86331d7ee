"""Decides where a task goes after a run, or when none could begin: one command's body each, under the lease."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from stationmaster.gitea import actions, codes, operate, steering, stopping, store
from stationmaster.gitea.machine import REPOSITORY
from stationmaster.gitea.model import Comment, Task, TurnKind
from stationmaster.gitea.run import Ended
from stationmaster.gitea.settings import GiteaSettings
from stationmaster.jobs import actions as jobs
from stationmaster.jobs.model import End
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.tx import Reader, Tx
from stationmaster.workspaces.guard import Problem

Body = Callable[..., Task]


@dataclass(frozen=True, slots=True)
class Ran:
    """A run that is over: `left` tells that it left changes behind, `unsaved` why these could not be saved.

    `answered` tells that the forge shows an answer of it that the agent posted by itself (official mode).
    """

    run_id: str
    kind: TurnKind
    ended: Ended
    left: bool
    unsaved: str | None
    answered: bool = False


_ENDS: dict[str, End] = {"completed": "complete", "interrupted": "interrupt", "aborted": "interrupt"}
_ENDS |= {"stopping": "interrupt", "deadline": "interrupt", "spent": "interrupt"}


def block(tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings, problem: Problem) -> Task:
    """Leaves a task to an operator; a fault of the shared repository blocks that as well (GW-R-034)."""
    task = store.task(tx, task_id)
    repository = store.repository(tx, task.repository_id)
    tx.event("workspace.blocked", refs=actions.refs(task), code=problem.code, sentence=problem.sentence)
    if problem.scope == "repository" and repository.state == "active":
        tx.move(REPOSITORY, repository.id, "block", rev=repository.rev, updated_at=tx.now)
        tx.event("repo.block", refs=actions.refs(task), code=problem.code)
    blocked = actions.leave(tx, task_id, "block", lease, settings, error_code=problem.code, next_retry_at=None)
    return stopping.honour(tx, blocked, settings)


def halted(tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings) -> Task | None:
    """Ends a claimed task that is to stop before its run is made; None when it may go on."""
    leases.held(tx, lease)
    task = stopping.before_a_run(tx, task_id, settings)
    if task is None:
        return None
    moved = stopped(tx, task, lease, settings, confirmed=True)
    steering.release(tx, moved, settings)
    return moved


def not_ready(tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings, code: str) -> Task:
    """Ends or postpones a task whose run could not be prepared (GW-R-082, GW-R-083)."""
    return actions.give_up_or_retry(tx, task_id, code, lease, settings, retryable=codes.retryable(code))


def verify(tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings, code: str) -> Task:
    """Goes on to verification although the reply retry could not run (GW-R-172)."""
    task = store.lock_task(tx, task_id)
    tx.event("reply.retry_failed", refs=actions.refs(task), code=code)
    if task.state == "aborting":
        moved = stopped(tx, task, lease, settings, confirmed=True)
    else:
        moved = actions.advance(tx, task_id, "verify", lease, settings, error_code=code)
    steering.release(tx, moved, settings)
    return moved


def turn(tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings, ran: Ran) -> Task:
    """Ends a turn, moves its task to where it goes, and settles what was to be said into the turn (GW-R-150)."""
    moved = _turn(tx, task_id, lease, settings, ran)
    steering.release(tx, moved, settings)
    return moved


def _turn(tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings, ran: Ran) -> Task:
    leases.held(tx, lease)
    task = store.lock_task(tx, task_id)
    ended = ran.ended
    row = deciding_row(tx, task_id, ran.run_id)
    actions.end_turn(tx, task, ran.run_id, _ENDS.get(ended.how, "fail"), ended.code, ended.text)
    if ran.left and row is not None and row.kind == "mcp_final":
        tx.event("tree.after_reply", refs=actions.refs(task), run=ran.run_id)
    if task.state == "aborting":
        return stopped(tx, task, lease, settings, confirmed=ended.confirmed)
    if task.state == "running":
        goes = _goes(row, ran)
        if goes == "wait":
            return actions.leave(tx, task_id, "wait", lease, settings, error_code=None)
        if goes == "verify":
            return actions.advance(tx, task_id, "verify", lease, settings)
    if ended.how == "stopping" and ran.unsaved is None:
        # The worker was stopped in order: nobody failed, so the next start goes on without spending a retry.
        code = codes.INTERRUPTED_BY_RESTART
        return actions.postpone(tx, task_id, "execution", lease, settings, delay_s=0, error_code=code)
    code = ran.unsaved or ended.code or codes.TURN_FAILED
    retryable = ended.transient or ran.unsaved is not None
    return actions.give_up_or_retry(tx, task_id, code, lease, settings, retryable=retryable)


def _goes(row: Comment | None, ran: Ran) -> Literal["wait", "verify", "again"]:
    # What the agent told people decides, however the turn ended afterwards: doing the instruction again would do its
    # work twice. A reply retry did no work, so it only leads to another look (GW-R-172).
    if row is not None:
        return "wait" if row.kind == "question" else "verify"
    if ran.kind == "reply_retry" or ran.answered:
        return "verify"
    if ran.unsaved is not None or ran.ended.how != "completed":
        return "again"
    return "wait" if ran.ended.waiting else "verify"


def stopped(tx: Tx, task: Task, lease: Lease, settings: GiteaSettings, *, confirmed: bool) -> Task:
    """Ends a task that is being aborted; without the agent's own word it failed (GW-R-179)."""
    wanted = store.stop(tx, task.id)
    why = codes.ABORTED_BY_OPERATOR if wanted is None else wanted.code
    verb, code = ("stop", why) if confirmed else ("fail", codes.ABORT_TIMEOUT)
    leases.held(tx, lease)
    # The lease is given back before the end is written (GW-R-104): one transaction, in this order.
    leases.release(tx, lease)
    moved = actions.step(tx, task, verb, settings, error_code=code, next_retry_at=None, retry_purpose=None)
    operate.finish_abort(tx, task.id)
    return moved


def deciding_row(reader: Reader, task_id: str, run_id: str) -> Comment | None:
    """Returns the comment that decides how a turn ends, unless the forge definitely refused it."""
    row = actions.turn_end_row(reader, task_id, run_id)
    return None if row is None or row.state == "failed" else row


def was_broken_off(reader: Reader, task_id: str, run_id: str) -> bool:
    """Tells whether the task's latest earlier turn began and did not complete (GW-R-187)."""
    earlier: list[Any] = [run for run in jobs.of_subject(reader, task_id) if run.id != run_id]
    return bool(earlier) and earlier[-1].external_id is not None and earlier[-1].state != "completed"
