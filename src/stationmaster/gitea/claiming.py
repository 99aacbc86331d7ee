"""Takes the next due task of a repository, or keeps it back when a limit is met: one command, so any number may try."""

from __future__ import annotations

from stationmaster.gitea import actions, limits, store, texts
from stationmaster.gitea.limits import Reached
from stationmaster.gitea.model import LEASE_KIND, Repository, Task
from stationmaster.gitea.settings import GiteaSettings, Station
from stationmaster.gitea.store import Q
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.tx import Tx

# A command changes at most 200 rows; one that is kept back takes up to six.
_MOST_HELD = 20


def claim(tx: Tx, repository_id: str, station: Station, settings: GiteaSettings) -> tuple[Task, Lease] | None:
    """Takes the repository's lease and its first due task in one transaction, or nothing at all (GW-R-114, GW-R-117).

    The order of checks: pause, repository, task, limits, lease, compare-and-swap.
    """
    repository = _open_for(tx, repository_id, station)
    if repository is None:
        return None
    task = _first_free(tx, repository_id, settings)
    if task is None:
        store.reckon(tx, repository_id, tx.now)
        return None
    lease = actions.take_lease(tx, task, station, settings)
    if lease is None:
        return None
    if repository.home_worker is None:
        actions.settle(tx, repository, home_worker=station.worker_id)
    again = {"reply": "resume_reply", "verification": "reverify"}
    verb = "claim" if task.state == "queued" else again.get(task.retry_purpose or "", "claim")
    refs = {**actions.refs(task), "lease": lease.lease_id}
    tx.event("task.claim", refs=refs, worker=station.worker_id, term=lease.term)
    return actions.step(tx, task, verb, settings), lease


def _open_for(tx: Tx, repository_id: str, station: Station) -> Repository | None:
    repository = store.repository(tx, repository_id)
    if store.paused(tx) or repository.state != "active":
        return None
    if repository.home_worker not in {None, station.worker_id}:
        return None
    # A task that is being worked on without a lease belongs to somebody who died: recovery settles it first.
    if leases.current(tx, LEASE_KIND, repository_id) is not None or tx.many(
        Q.active_tasks, repository_id=repository_id
    ):
        return None
    return repository


def _first_free(tx: Tx, repository_id: str, settings: GiteaSettings) -> Task | None:
    """Returns the first due task that no limit keeps back; the ones before it are kept back here."""
    for _ in range(_MOST_HELD):
        task = store.candidate(tx, repository_id, tx.now)
        if task is None:
            return None
        limit = _limit(tx, task, settings)
        if limit is None:
            return task
        _keep_back(tx, task, limit, settings)
    return None


def _limit(tx: Tx, task: Task, settings: GiteaSettings) -> Reached | None:
    # What was begun is brought to its end: a retry and a verification are bounded by budgets of their own (GW-R-107).
    if task.state != "queued":
        return None
    hold = limits.hold_of(tx, task.id)
    if hold is not None and hold.released_at is not None:
        return None
    asker = actions.asked_by(tx, task)
    return limits.reached(tx, task, asker, settings.instance_id, settings.limits)


def _keep_back(tx: Tx, task: Task, limit: Reached, settings: GiteaSettings) -> None:
    if not limits.keep_back(tx, task, limit):
        return
    tx.event("task.held", refs=actions.refs(task), code=limit.code, until=limit.until)
    if not limits.told_lately(tx, task.session_id):
        key = actions.status_key(task.id, "held")
        body = texts.held(key, limit.code, limit.until, settings.language)
        actions.intend_comment(tx, task, key, "status", body)
