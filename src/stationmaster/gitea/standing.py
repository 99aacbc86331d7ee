"""Where a task stands, for who shows it: its conversation, its repository, what it waits for, whether it is to stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stationmaster.gitea import limits, store
from stationmaster.gitea.model import Repository, Session, Task
from stationmaster.gitea.store import Q
from stationmaster.ledger.tx import Reader

WaitsFor = Literal["paused", "repository", "older", "limit", "other", "worker"]


def waits_for(reader: Reader, task: Task) -> WaitsFor:
    """Names what keeps a queued task from being claimed."""
    if store.paused(reader):
        return "paused"
    if store.repository(reader, task.repository_id).state != "active":
        return "repository"
    before = (task.created_at, task.id)
    others = [each for each in store.open_tasks(reader, task.session_id) if each.state != "waiting_user"]
    if any((each.created_at, each.id) < before for each in others):
        return "older"
    if limits.holding(reader, task.id) is not None:
        return "limit"
    if reader.many(Q.active_tasks, repository_id=task.repository_id):
        return "other"
    return "worker"


@dataclass(frozen=True, slots=True)
class Standing:
    """A task with what belongs to it; `waits_for` is empty unless it is queued."""

    session: Session
    repository: Repository
    waits_for: WaitsFor | Literal[""]
    stops: bool


def of(reader: Reader, task_id: str) -> Standing:
    """Returns where a task that is known to exist stands."""
    task = store.task(reader, task_id)
    return Standing(
        store.session(reader, task.session_id),
        store.repository(reader, task.repository_id),
        waits_for(reader, task) if task.state == "queued" else "",
        store.stop(reader, task.id) is not None,
    )
