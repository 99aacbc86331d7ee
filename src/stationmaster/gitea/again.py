"""Does a task that has ended once more, as a task of its own, because an operator asks for it."""

from __future__ import annotations

import msgspec

from stationmaster.errors import Illegal
from stationmaster.gitea import actions, codes, normalise, order_words, store
from stationmaster.gitea.machine import TASK
from stationmaster.gitea.model import Task
from stationmaster.gitea.settings import GiteaSettings
from stationmaster.gitea.store import Q
from stationmaster.ledger.tx import Tx

_BY_KERNEL = frozenset({"id", "state", "rev"})


def again(tx: Tx, task: Task, request_id: str, settings: GiteaSettings) -> Task:
    """Makes and queues a task with the words and the author of `task`, whose rights the forge is asked about anew.

    Only of the newest task of a conversation: so two who ask at once make one. Raises Illegal otherwise.
    """
    # Two at the same moment: the second finds the task of the first.
    tx.alone(f"gitea.retry\n{task.resource_key}")
    newest = store.latest_task(tx, task.session_id)
    if task.state not in TASK.terminal or newest is None or newest.id != task.id:
        later = "" if newest is None or newest.id == task.id else f"; {newest.id} came after it"
        raise Illegal(
            f"The task {task.id} is {task.state}{later}: only the last task of a thread, once ended, is done again.",
            code=codes.INVALID_STATE,
            hint=f"`stationmaster task show {task.id}` shows it.",
            task=task.id,
            state=task.state,
        )
    words = order_words.words(tx, task)
    if not words:
        raise Illegal(
            f"The words of the task {task.id} are no longer kept.",
            code=codes.INVALID_STATE,
            hint="Have it asked for again in its thread.",
            task=task.id,
        )
    made = _born(tx, task, f"request:{request_id}", words)
    tx.event("task.retry", refs={"task": (task.id, made.id)}, of=task.id)
    return actions.step(tx, made, "enqueue", settings)


def _born(tx: Tx, task: Task, key: str, words: str) -> Task:
    made = msgspec.structs.replace(
        task,
        id=normalise.task_id(key),
        state="received",
        rev=0,
        delivery_key=key,
        sender_may=None,
        attempt=0,
        reply_attempt=0,
        unblock_attempt=0,
        next_retry_at=None,
        retry_purpose=None,
        error_code=None,
        reply_failure=None,
        created_at=tx.now,
        updated_at=tx.now,
    )
    asker = actions.asked_by(tx, task)
    made = msgspec.structs.replace(made, author=asker.login, author_id=asker.id)
    cols = {name: value for name, value in msgspec.structs.asdict(made).items() if name not in _BY_KERNEL}
    tx.born(TASK, made.id, "receive", **cols)
    tx.run(Q.add_instruction, task_id=made.id, body=words, asked_at=store.asked_at(tx, task.id))
    return made
