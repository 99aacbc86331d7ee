"""What operators ask for: pause, resume, disable, enable, cancel, abort, unblock (sections 13 and 16).

Every request is one command called `REQUEST` whose dedupe key is the caller's request id, so that an id serves one
request whatever it asks for (GW-R-224). Where the effect lies outside (a run to be stopped, a worktree to be looked at)
the command only accepts: it leaves an open intent and a pending receipt, and whoever does the work finishes both.

For the worker, the scheduler and recovery:

- `open_aborts(reader)`: the tasks whose stop was asked for and is not settled. Read it at every bell and at start; set
  the run's abort signal.
- `finish_abort(tx, task_id)`: after the move out of `aborting`, in the same command. Does nothing when none is open.
- `unblock_wanted(reader)`: the blocked tasks that an operator calls usable, each with the worker that has the worktree.
  That worker looks at the tree outside any command, then calls
- `finish_unblock(tx, task_id, problem, settings)`: `problem` is None when the tree is usable: the task is queued again,
  a blocked repository opened. Otherwise it stays blocked and the refusal is what the operator's next look finds.
  Does nothing when no unblock is open. Call it also when the look itself was impossible, with a problem that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from stationmaster.command import Cmd
from stationmaster.errors import Illegal, NotFound, Unavailable
from stationmaster.gitea import actions, again, codes, limits, store
from stationmaster.gitea.machine import CONTROL, REPOSITORY
from stationmaster.gitea.model import Repository, Task
from stationmaster.gitea.settings import GiteaSettings
from stationmaster.gitea.store import Q
from stationmaster.ledger import history, receipts
from stationmaster.ledger.history import OpenIntent
from stationmaster.ledger.tx import Reader, Tx

REQUEST = "control.request"
ABORT = "task.abort"
UNBLOCK = "task.unblock"
MOST_UNBLOCKS = 1

Verb = Literal["pause", "resume", "disable", "enable", "cancel", "abort", "unblock", "release", "retry"]
Answer = dict[str, Any]

_CONTROL_ID = "default"
CANCELLABLE = ("queued", "waiting_user", "blocked_workspace")


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody asks for; `target` is a task id, a repository key, or empty."""

    verb: Verb
    target: str
    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unblock:
    """A blocked task that an operator calls usable; `home_worker` has its worktree."""

    task_id: str
    repository_id: str
    instance_id: str
    home_worker: str | None


class Problem(Protocol):
    """What a look at a worktree found: a code and a sentence that says what to do."""

    @property
    def code(self) -> str:
        """The stable code."""
        ...

    @property
    def sentence(self) -> str:
        """What is wrong and what to do."""
        ...


def command(wish: Wish, request_id: str) -> Cmd:
    """Makes the command of a request; a repeat of its id gets the first answer."""
    refs = {"request": request_id}
    if wish.verb in {"disable", "enable"}:
        refs["repo"] = wish.target.lower()
    elif wish.target:
        refs["task"] = wish.target
    return Cmd(REQUEST, wish.actor, f"request:{request_id}", request_id, refs)


def body(*forges: GiteaSettings | None) -> Callable[[Tx, Wish], Answer]:
    """Returns the body of `command`; a task is changed by the settings of its own forge, one of `forges`."""
    known = [each for each in forges if each is not None]

    def perform(tx: Tx, wish: Wish) -> Answer:
        if wish.verb in {"pause", "resume"}:
            return _control(tx, wish)
        if wish.verb in {"disable", "enable"}:
            return _repository(tx, wish)
        return _task(tx, wish, known)

    return perform


def _control(tx: Tx, wish: Wish) -> Answer:
    row = store.control(tx)
    told = {"reason": wish.reason, "updated_by": wish.actor, "updated_at": tx.now}
    wanted = "running" if wish.verb == "pause" else "paused"
    if (row.state if row else "running") != wanted:
        by = f" by {row.updated_by}: {row.reason}" if row and row.state == "paused" else ""
        raise Illegal(
            f"Stationmaster is {'paused already' + by if wish.verb == 'pause' else 'not paused'}.",
            code=codes.INVALID_STATE,
            hint="`stationmaster overview` shows it.",
            state=row.state if row else "running",
        )
    if row is None:
        tx.born(CONTROL, _CONTROL_ID, "install", **told)
    tx.move(CONTROL, _CONTROL_ID, wish.verb, rev=row.rev if row else 0, **told)
    tx.event(f"control.{wish.verb}", reason=wish.reason)
    now = store.control(tx)
    return {
        "globalPaused": wish.verb == "pause",
        "pauseReason": wish.reason if wish.verb == "pause" else None,
        "version": now.rev if now else 0,
    }


def _repository(tx: Tx, wish: Wish) -> Answer:
    found = store.repository_by_key(tx, wish.target.lower())
    if found is None:
        raise NotFound(
            f"There is no repository {wish.target}.",
            code=codes.REPOSITORY_NOT_FOUND,
            hint="`stationmaster repo list` shows the repositories there are.",
        )
    # Whoever enables a blocked repository has looked at it; the next claim looks again.
    verb = "unblock" if wish.verb == "enable" and found.state == "blocked" else wish.verb
    if found.state == {"disable": "disabled"}.get(wish.verb, "active"):
        raise Illegal(
            f"The repository {found.repo_key} is {found.state} already.",
            code=codes.INVALID_STATE,
            hint="Nothing is left to do.",
            state=found.state,
        )
    _switch(tx, found, verb, wish.reason)
    now = store.repository(tx, found.id)
    return {"repoKey": now.repo_key, "status": now.state, "version": now.rev}


def _switch(tx: Tx, repository: Repository, verb: str, reason: str) -> None:
    tx.move(REPOSITORY, repository.id, verb, rev=repository.rev, updated_at=tx.now)
    tx.event(f"repo.{verb}", refs={"repo": repository.repo_key}, reason=reason)
    # What waited meanwhile is claimable again; a claim that finds nothing takes the repository off the list.
    store.ready(tx, repository.id, tx.now)


def _task(tx: Tx, wish: Wish, forges: Sequence[GiteaSettings]) -> Answer:
    tx.one(Q.task_locked, id=wish.target)
    task = store.find_task(tx, wish.target)
    if task is None:
        raise NotFound(
            f"There is no task {wish.target}.",
            code=codes.TASK_NOT_FOUND,
            hint="`stationmaster task list` shows the tasks there are.",
        )
    settings = _settings(tx, task, wish, forges)
    if wish.verb == "cancel":
        return _cancel(tx, task, wish, settings)
    if wish.verb == "release":
        return _release(tx, task, wish)
    if wish.verb == "retry":
        return {"retryOf": task.id, **_said(again.again(tx, task, str(tx.cmd.dedupe), settings))}
    return _abort(tx, task, wish, settings) if wish.verb == "abort" else _unblock(tx, task, wish)


def _settings(reader: Reader, task: Task, wish: Wish, forges: Sequence[GiteaSettings]) -> GiteaSettings:
    if not forges:
        raise Unavailable(
            "No forge is configured, so no task can be changed.",
            code=codes.INVALID_CONFIGURATION,
            hint="Set [gitea] in the configuration.",
        )
    instance_id = store.repository(reader, task.repository_id).instance_id
    found = next((each for each in forges if each.instance_id == instance_id), None)
    if found is None and wish.verb not in {"cancel", "release"}:
        raise Unavailable(
            f"The forge {instance_id} of this task is not configured.",
            code=codes.INVALID_CONFIGURATION,
            hint=f"Set [gitea.instances.{instance_id}] in the configuration, or cancel the task.",
        )
    # A task whose forge is gone for good can be ended; what is said of it waits with it.
    return found or forges[0]


def _release(tx: Tx, task: Task, wish: Wish) -> Answer:
    """Lets a task that a limit keeps back begin its next run all the same."""
    if task.state != "queued" or not limits.let_go(tx, task.id, wish.actor):
        raise Illegal(
            f"No limit keeps the task {task.id} back; it is {task.state}.",
            code=codes.INVALID_STATE,
            hint="`stationmaster hold list` shows what is kept back.",
            task=task.id,
            state=task.state,
        )
    tx.event("task.let_go", refs=actions.refs(task), reason=wish.reason)
    store.ready(tx, task.repository_id, tx.now)
    return _said(task)


def _cancel(tx: Tx, task: Task, wish: Wish, settings: GiteaSettings) -> Answer:
    _only_in(task, CANCELLABLE, "cancelled")
    return _said(end_waiting(tx, task, codes.CANCELLED_BY_OPERATOR, settings, reason=wish.reason))


def end_waiting(tx: Tx, task: Task, code: str, settings: GiteaSettings, *, reason: str = "") -> Task:
    """Cancels a task on which nobody works, for the reason `code` (GW-R-177)."""
    for intent in _open(tx, UNBLOCK, task.id):
        tx.result(intent.seq, "refused", refs=actions.refs(task), reason="cancelled")
        gone = Illegal("The task was cancelled meanwhile.", code=codes.INVALID_STATE, state="cancelled")
        receipts.refuse(tx, REQUEST, intent.data["request"], gone)
    tx.event("task.cancel", refs=actions.refs(task), reason=reason or code)
    ended = {"error_code": code, "next_retry_at": None, "retry_purpose": None}
    return actions.step(tx, task, "cancel", settings, **ended)


def intend_abort(tx: Tx, task: Task, reason: str) -> None:
    """Writes that a run is to be stopped although no request waits for the answer."""
    about = {"task": task.id, "request": None, "reason": reason}
    tx.intent(ABORT, subject=_subject(task.id), refs=actions.refs(task), **about)


def _abort(tx: Tx, task: Task, wish: Wish, settings: GiteaSettings) -> Answer:
    _only_in(task, ("running",), "aborted")
    _intend(tx, ABORT, task, wish)
    moved = actions.step(tx, task, "abort", settings)
    receipts.pending(tx)
    return _said(moved, pending=True)


def _unblock(tx: Tx, task: Task, wish: Wish) -> Answer:
    _only_in(task, ("blocked_workspace",), "unblocked")
    if task.unblock_attempt >= MOST_UNBLOCKS:
        raise Illegal(
            f"The task {task.id} was unblocked once and blocked again.",
            code=codes.INVALID_STATE,
            hint="It can only be cancelled.",
            task=task.id,
            state=task.state,
        )
    if _open(tx, UNBLOCK, task.id):
        raise Illegal(
            f"The task {task.id} is being looked at because of an earlier request.",
            code=codes.INVALID_STATE,
            hint=f"`stationmaster task watch {task.id}` shows how that ends.",
            task=task.id,
            state=task.state,
        )
    _intend(tx, UNBLOCK, task, wish)
    receipts.pending(tx)
    return _said(task, pending=True)


def _only_in(task: Task, states: tuple[str, ...], done: str) -> None:
    if task.state not in states:
        raise Illegal(
            f"The task {task.id} is {task.state}; only one that is {' or '.join(states)} can be {done}.",
            code=codes.INVALID_STATE,
            hint=f"`stationmaster task show {task.id}` shows it.",
            task=task.id,
            state=task.state,
        )


def _intend(tx: Tx, action: str, task: Task, wish: Wish) -> None:
    request_id = tx.cmd.dedupe
    tx.intent(
        action,
        subject=_subject(task.id),
        refs=actions.refs(task),
        task=task.id,
        request=request_id,
        reason=wish.reason,
    )


def open_aborts(reader: Reader) -> list[str]:
    """Returns the ids of tasks whose stop was asked for and is not settled (GW-R-178)."""
    return [intent.data["task"] for intent in history.open_intents(reader, action=ABORT)]


def unblock_wanted(reader: Reader) -> list[Unblock]:
    """Returns the blocked tasks that an operator calls usable, oldest request first (GW-R-221)."""
    found = []
    for intent in history.open_intents(reader, action=UNBLOCK):
        task = store.task(reader, intent.data["task"])
        repository = store.repository(reader, task.repository_id)
        found.append(Unblock(task.id, repository.id, repository.instance_id, repository.home_worker))
    return found


def finish_abort(tx: Tx, task_id: str) -> None:
    """Answers an abort after the task left `aborting`; a repeat changes nothing."""
    task = store.task(tx, task_id)
    for intent in _open(tx, ABORT, task_id):
        tx.result(intent.seq, task.state, refs=actions.refs(task), code=task.error_code)
        if intent.data["request"] is not None:
            receipts.finish(tx, REQUEST, intent.data["request"], _said(task))


def finish_unblock(tx: Tx, task_id: str, problem: Problem | None, settings: GiteaSettings) -> Task:
    """Queues a blocked task whose worktree is usable, or records why not; returns the task (GW-R-100, GW-R-109)."""
    tx.one(Q.task_locked, id=task_id)
    task = store.task(tx, task_id)
    for intent in _open(tx, UNBLOCK, task_id):
        request_id = intent.data["request"]
        if problem is not None:
            tx.result(intent.seq, "refused", refs=actions.refs(task), code=problem.code, sentence=problem.sentence)
            receipts.refuse(tx, REQUEST, request_id, _still_blocked(task, problem))
            continue
        if task.state == "blocked_workspace":
            task = _requeue(tx, task, intent.data["reason"], settings)
        tx.result(intent.seq, "done", refs=actions.refs(task))
        receipts.finish(tx, REQUEST, request_id, _said(task))
    return task


def _requeue(tx: Tx, task: Task, reason: str, settings: GiteaSettings) -> Task:
    repository = store.repository(tx, task.repository_id)
    if repository.state == "blocked":
        _switch(tx, repository, "unblock", reason)
    used = task.unblock_attempt + 1
    cleared = {"error_code": None, "next_retry_at": None, "retry_purpose": None}
    return actions.step(tx, task, "unblock", settings, unblock_attempt=used, **cleared)


def _still_blocked(task: Task, problem: Problem) -> Illegal:
    return Illegal(
        problem.sentence,
        code=codes.INVALID_STATE,
        hint="Then unblock the task again.",
        task=task.id,
        state=task.state,
        problem=problem.code,
    )


def _open(reader: Reader, action: str, task_id: str) -> list[OpenIntent]:
    return history.open_intents(reader, subject=_subject(task_id), action=action)


def _subject(task_id: str) -> str:
    # Not the task's own id: recovery closes what is open under that, and a request outlives the run (GW-R-185).
    return f"operate:{task_id}"


def _said(task: Task, *, pending: bool = False) -> Answer:
    said = {"taskId": task.id, "state": task.state, "stateVersion": task.rev, "errorCode": task.error_code}
    return {**said, "pending": pending}
