"""What becomes of the tasks of an issue or pull request that is closed or merged: what nobody needs any more stops.

A run is aborted, its process group ended and its work committed and named, as with every abort; what waits is
cancelled. An answer that is being proven is left in peace, and so is what was asked after the close: somebody may
mention the bot on a closed issue on purpose, and Gitea's "comment and close" asks and closes in the same second.
"""

from __future__ import annotations

from stationmaster.gitea import codes, steering, stopping, store
from stationmaster.gitea.closed_event import Closed
from stationmaster.gitea.model import Task
from stationmaster.gitea.settings import GiteaSettings
from stationmaster.ledger.tx import Reader, Tx

# A command changes at most 200 rows; a stopped task takes up to eight.
_MOST_TASKS = 20
_LEFT = frozenset({"verifying_reply", "aborting"})


def close(tx: Tx, closed: Closed, settings: GiteaSettings) -> list[Task]:
    """Stops the tasks of what was closed, and returns them; a repeat finds nothing left to stop."""
    repository = store.repository_by_native(tx, closed.instance_id, closed.native_id)
    session = None if repository is None else store.session_of(tx, repository.id, closed.kind, closed.number)
    if session is None:
        return []
    wanted = [task for task in steering.open_tasks(tx, session.id, settings) if _ends(tx, task, closed)]
    stopped = [stopping.stop(tx, task.id, codes.RESOURCE_CLOSED, settings) for task in wanted[:_MOST_TASKS]]
    if stopped:
        ids = tuple(task.id for task in stopped)
        about: dict[str, str | tuple[str, ...]] = {"resource": stopped[0].resource_key, "task": ids}
        tx.event("resource.closed", refs=about, left=len(wanted) - len(stopped))
    return stopped


def _ends(reader: Reader, task: Task, closed: Closed) -> bool:
    if task.state in _LEFT:
        return False
    asked = store.asked_at(reader, task.id)
    if asked is None or task.state == "running":
        # What runs was there before, also when the forge's whole seconds cannot tell.
        return asked is None or asked <= closed.at
    return asked < closed.at
