"""Looks at the worktrees that an operator calls usable, and lets their tasks go on or says what is still wrong.

The look needs the repository's lease, so that no run changes what is looked at; while somebody holds it the request
waits. Only the worker that has the worktree can look (GW-R-100, GW-R-221).
"""

from __future__ import annotations

from stationmaster import faults
from stationmaster.errors import StationmasterError
from stationmaster.gitea import actions, branch, operate, store
from stationmaster.gitea.client import explain
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import LEASE_KIND, Task
from stationmaster.gitea.settings import GiteaSettings, Station
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.tx import Reader, Tx
from stationmaster.workspaces import guard
from stationmaster.workspaces.guard import Problem


class Unblocker:
    """The duty of one worker for one forge."""

    def __init__(self, gear: Gear) -> None:
        self._gear = gear

    async def tick(self, now: int) -> int:
        """Answers the requests that can be answered now; returns how many."""
        _ = now
        gear = self._gear
        answered = 0
        for wish in await gear.port.read(operate.unblock_wanted):
            if wish.instance_id != gear.settings.instance_id or wish.home_worker not in {None, gear.station.worker_id}:
                continue
            task = await gear.port.read(store.task, wish.task_id)
            cmd = actions.command("unblock.take", task, f"worker:{gear.station.worker_id}")
            taken = await gear.port.do(cmd, _take, task.id, gear.station, gear.settings)
            if taken is not None:
                await self._look(*taken)
                answered += 1
        return answered

    async def _look(self, task: Task, lease: Lease) -> None:
        gear = self._gear
        async with Hold(gear, task, lease):
            try:
                name, on = await gear.port.read(_place, task)
                problem = await gear.port.off(guard.check, gear.git, gear.layout, task.repository_id, name, branch=on)
            except StationmasterError as error:
                problem = Problem(explain(error), str(error))
            faults.point("unblock.looked")
            cmd = actions.command("unblock.finish", task, f"lease:{lease.lease_id}")
            await gear.port.do(cmd, _finish, task.id, lease, gear.settings, problem)


def _place(reader: Reader, task: Task) -> tuple[str, str]:
    session = store.session(reader, task.session_id)
    current = store.current_branch(reader, session.id)
    return branch.tree_name(session), branch.first_name(session) if current is None else current.name


def _take(tx: Tx, task_id: str, station: Station, settings: GiteaSettings) -> tuple[Task, Lease] | None:
    task = store.task(tx, task_id)
    if leases.current(tx, LEASE_KIND, task.repository_id) is not None:
        return None
    lease = actions.take_lease(tx, task, station, settings)
    return None if lease is None else (task, lease)


def _finish(tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings, problem: Problem | None) -> None:
    leases.held(tx, lease)
    operate.finish_unblock(tx, task_id, problem, settings)
    leases.release(tx, lease)
