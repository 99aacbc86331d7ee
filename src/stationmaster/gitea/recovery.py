"""Settles what somebody who died left behind, before anything new is claimed and again and again (section 14).

Order: leases that lapsed are freed; waiting tasks are findable; then each task that was being worked on and whose
repository nobody holds: this worker takes the lease, ends what is left of the run's processes, takes back what an open
intent of ours names, saves the tree, and moves the task. Only the repository's home worker can do that: the worktree,
the processes and the threads are there. Doing it twice, or dying in the middle, leads to the same end (K10).
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from stationmaster import faults
from stationmaster.agents import process
from stationmaster.command import Cmd
from stationmaster.errors import StationmasterError
from stationmaster.gitea import (
    actions,
    codes,
    conclude,
    prepare,
    publish,
    receipts,
    restored,
    steering,
    store,
    turn,
    verify,
)
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import LEASE_KIND, Task
from stationmaster.gitea.settings import GiteaSettings, Station
from stationmaster.jobs import actions as jobs
from stationmaster.jobs.model import Run
from stationmaster.ledger import history
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.tx import Reader, Tx

_log = structlog.get_logger("stationmaster.gitea")

# How often an unreadable forge is asked again before the task goes on without knowing (GW-R-187).
_MOST_LOOKS = 3


class Recovery:
    """The recovery duty of one worker for one forge."""

    def __init__(self, gear: Gear, *, busy: Callable[[], frozenset[str]] = frozenset) -> None:
        """Takes `busy`, which names the tasks that this very process works on."""
        self._gear = gear
        self._busy = busy
        self._looks: dict[str, int] = {}

    async def tick(self, now: int) -> int:
        """Settles what is left behind; returns how many tasks it moved."""
        _ = now
        port = self._gear.port
        cause = f"worker:{self._gear.station.worker_id}"
        while len(await port.do(Cmd("recovery.leases", "system", cause), leases.expire, LEASE_KIND)) > 0:
            pass
        if await port.read(store.unlisted):
            await port.do(Cmd("recovery.ready", "system", cause), _list_waiting)
        settled = 0
        for task in await port.read(store.active_tasks, self._gear.settings.instance_id):
            if task.id not in self._busy():
                with structlog.contextvars.bound_contextvars(**actions.log_ids(task)):
                    settled += await self._settle(task, cause)
        return settled

    async def _settle(self, task: Task, cause: str) -> int:
        gear = self._gear
        cmd = actions.command("recovery.adopt", task, cause)
        adopted = await gear.port.do(cmd, _adopt, task.id, gear.station, gear.settings)
        if adopted is None:
            return 0
        task, lease = adopted
        try:
            async with Hold(gear, task, lease) as hold:
                moved = await self._adopted(hold)
            if moved is not None:
                await turn.end(gear, moved)
        except StationmasterError as error:
            # The lease runs out, and the next look tries again.
            _log.warning("recovery.postponed", task=task.id, code=error.code, error=str(error))
            return 0
        return int(moved is not None)

    async def _adopted(self, hold: Hold) -> Task | None:
        gear, task = self._gear, hold.task
        run = await gear.port.read(_latest_run, task.id)
        if run is not None and run.state == "started":
            killed = await gear.port.off(process.sweep, run.id)
            _log.info("recovery.swept", task=task.id, run=run.id, killed=killed)
        faults.point("recovery.swept")
        await hold.check()
        await prepare.reclaim(gear, task)
        unsaved = None
        if run is not None and run.state == "started":
            unsaved = await self._save(hold, run)
        faults.point("recovery.saved")
        earlier = await restored.earlier(gear, hold, task)
        if earlier is not None:
            return earlier
        moved = await self._move(hold, run, unsaved)
        if moved is None:
            return None
        faults.point("recovery.moved")
        if moved.state == "verifying_reply":
            moved = await verify.settle(gear, hold, moved)
        self._looks.pop(task.id, None)
        return moved

    async def _save(self, hold: Hold, run: Run) -> str | None:
        task = hold.task
        try:
            place = await prepare.standing(self._gear, task)
            if place is not None:
                await publish.save(self._gear, task, run.id, place, "interrupted", hold=hold)
        except StationmasterError as error:
            if error.code == codes.LEASE_LOST:
                raise
            _log.warning("task.tree_not_saved", task=task.id, run=run.id, error=str(error))
            return codes.WORKSPACE_SAVE_FAILED
        return None

    async def _move(self, hold: Hold, run: Run | None, unsaved: str | None) -> Task | None:
        gear, task = self._gear, hold.task
        answer = None if run is None else await gear.port.read(conclude.deciding_row, task.id, run.id)
        answered = False
        if task.state == "running" and answer is None and run is not None and self._may_have_answered(run):
            seen = await verify.look(gear, task)
            answered = isinstance(seen, verify.Found)
            if isinstance(seen, verify.Unknown) and self._may_wait(task.id):
                await gear.port.do(self._cmd(task, "recovery.wait"), leases.release, hold.lease)
                return None
            if answered:
                await self._publish(hold, run)
        elif task.state == "running" and answer is not None:
            if answer.kind == "question":
                answer = await receipts.post(gear, task.id, answer.id, hold=None)
            elif await self._cannot_tell(task) and self._may_wait(task.id):
                await gear.port.do(self._cmd(task, "recovery.wait"), leases.release, hold.lease)
                return None
        cmd = self._cmd(task, "recovery.settle")
        return await gear.port.do(cmd, _moved, task.id, hold.lease, gear.settings, unsaved, answered=answered)

    def _may_have_answered(self, run: Run) -> bool:
        # In official mode an answer leaves no row before it is there: the forge is asked (GW-R-187).
        return self._gear.settings.reply_mode == "official" and run.external_id is not None

    async def _publish(self, hold: Hold, run: Run) -> None:
        place = await prepare.standing(self._gear, hold.task)
        if place is not None:
            await publish.publish(self._gear, hold, hold.task, run.id, place)

    async def _cannot_tell(self, task: Task) -> bool:
        seen = await verify.look(self._gear, task)
        # An answer that may still be on its way has a time of its own, which verification waits for.
        return isinstance(seen, verify.Unknown) and seen.again_at is None

    def _may_wait(self, task_id: str) -> bool:
        self._looks[task_id] = self._looks.get(task_id, 0) + 1
        return self._looks[task_id] < _MOST_LOOKS

    def _cmd(self, task: Task, name: str) -> Cmd:
        return actions.command(name, task, f"worker:{self._gear.station.worker_id}")


def _list_waiting(tx: Tx) -> None:
    for repository_id in store.unlisted(tx):
        store.ready(tx, repository_id, tx.now)
        tx.event("recovery.ready", repository=repository_id)


def _adopt(tx: Tx, task_id: str, station: Station, settings: GiteaSettings) -> tuple[Task, Lease] | None:
    """Takes the lease of a task whose worker is gone, when its workspace is here (GW-R-183)."""
    task = store.task(tx, task_id)
    repository = store.repository(tx, task.repository_id)
    if task.state not in actions.ACTIVE or repository.home_worker not in {None, station.worker_id}:
        return None
    if leases.current(tx, LEASE_KIND, task.repository_id) is not None:
        return None
    lease = actions.take_lease(tx, task, station, settings)
    if lease is None:
        return None
    tx.event("recovery.adopt", refs={**actions.refs(task), "lease": lease.lease_id}, state=task.state, term=lease.term)
    return task, lease


def _moved(
    tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings, unsaved: str | None, *, answered: bool = False
) -> Task:
    """Moves a task that nobody works on any more to where it goes on from, with what was to be said into its turn."""
    moved = _resumed(tx, task_id, lease, settings, unsaved, answered=answered)
    steering.release(tx, moved, settings)
    return moved


def _resumed(
    tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings, unsaved: str | None, *, answered: bool
) -> Task:
    """GW-R-184 to GW-R-187."""
    leases.held(tx, lease)
    task = store.lock_task(tx, task_id)
    run = _latest_run(tx, task_id)
    _close_intents(tx, task, run)
    answer = None
    if run is not None:
        answer = conclude.deciding_row(tx, task_id, run.id)
        actions.end_turn(tx, task, run.id, "interrupt", codes.INTERRUPTED_BY_RESTART, "")
    if task.state == "aborting":
        return conclude.stopped(tx, task, lease, settings, confirmed=True)
    if task.state == "verifying_reply":
        return actions.postpone(tx, task_id, "verification", lease, settings, delay_s=0)
    if task.state == "running" and run is not None:
        if answer is not None and answer.kind == "question":
            return actions.leave(tx, task_id, "wait", lease, settings, error_code=None)
        # Whoever died between the claim of a reply retry and its run left no run of its own.
        if answer is not None or answered or task.retry_purpose == "reply":
            return actions.advance(tx, task_id, "verify", lease, settings)
    code = unsaved or codes.INTERRUPTED_BY_RESTART
    return actions.give_up_or_retry(tx, task_id, code, lease, settings, retryable=True)


def _close_intents(tx: Tx, task: Task, run: Run | None) -> None:
    """Says of every intent without a result that its outcome is unknown, and what is done about it (GW-R-189).

    Comments are not among them: their own channel reads them back.
    """
    for subject in (task.id, *((run.id,) if run else ())):
        for intent in history.open_intents(tx, subject=subject):
            tx.result(intent.seq, "unknown", refs=actions.refs(task), recovery="looked_at_again_by_the_next_run")


def _latest_run(reader: Reader, task_id: str) -> Run | None:
    runs = jobs.of_subject(reader, task_id)
    return runs[-1] if runs else None
