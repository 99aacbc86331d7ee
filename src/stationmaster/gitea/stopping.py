"""Stops tasks that somebody or something wants stopped: at once where the state allows it, else as soon as it does.

A wish to stop is a row, so it outlives the process (GW-R-177, GW-R-178). Whoever moves a task on asks `honour`: before
a run is prepared, when a run begins, and when a task is blocked.
"""

from __future__ import annotations

from stationmaster.gitea import actions, operate, store
from stationmaster.gitea.machine import TASK
from stationmaster.gitea.model import Task
from stationmaster.gitea.settings import GiteaSettings
from stationmaster.gitea.store import Q
from stationmaster.ledger.tx import Tx


def stop(tx: Tx, task_id: str, code: str, settings: GiteaSettings, *, order_id: str | None = None) -> Task:
    """Lets a task end for the reason `code`, and returns it as it is now; a repeat changes nothing."""
    task = store.lock_task(tx, task_id)
    if task.state in TASK.terminal or task.state == "aborting":
        return task
    if tx.run(Q.add_stop, task_id=task.id, code=code, order_id=order_id, at=tx.now) == 1:
        tx.event("task.stop_wanted", refs=actions.refs(task), code=code, state=task.state)
    return honour(tx, task, settings)


def honour(tx: Tx, task: Task, settings: GiteaSettings) -> Task:
    """Does what the task's state allows of a stop that stands, and returns the task; without one nothing happens."""
    wanted = store.stop(tx, task.id)
    if wanted is None:
        return task
    if task.state in operate.CANCELLABLE:
        return operate.end_waiting(tx, task, wanted.code, settings)
    if task.state == "running":
        operate.intend_abort(tx, task, wanted.code)
        return actions.step(tx, task, "abort", settings)
    return task


def before_a_run(tx: Tx, task_id: str, settings: GiteaSettings) -> Task | None:
    """Takes a claimed task, for which no run exists, to `aborting` when a stop stands; else returns None."""
    task = store.lock_task(tx, task_id)
    if store.stop(tx, task_id) is None:
        return None
    if task.state == "preparing":
        # The edges lead only through `running`; nothing ran, and nobody sees the state in between.
        task = actions.step(tx, task, "start", settings, error_code=None, next_retry_at=None, retry_purpose=None)
    return honour(tx, task, settings)
