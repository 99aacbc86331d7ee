"""Reads of this slice's tables, and its few plain writes; only this slice uses it."""

from __future__ import annotations

from stationmaster.clock import MICROS
from stationmaster.gitea.machine import MACHINES
from stationmaster.gitea.model import (
    Branch,
    Comment,
    Control,
    Delivery,
    FollowUp,
    Note,
    Order,
    Repository,
    Session,
    Steer,
    Stop,
    Task,
    Turn,
    read,
)
from stationmaster.ledger import queries
from stationmaster.ledger.slices import Slice
from stationmaster.ledger.tx import HotTx, Reader, Tx

_HOT = frozenset(
    {"gitea_cursor", "gitea_fetch", "gitea_listing", "gitea_look", "gitea_ready", "gitea_usage", "gitea_watch"}
)
SLICE = Slice("gitea", "stationmaster.gitea", machines=MACHINES, hot=_HOT)

Q = queries.load("stationmaster.gitea")

_DAY = 86_400 * MICROS


def repository(reader: Reader, repository_id: str) -> Repository:
    """Returns a repository that is known to exist."""
    row = reader.one(Q.repository, id=repository_id)
    assert row is not None, f"BUG: no repository {repository_id}"  # noqa: S101 - foreign keys hold it
    return read(row, Repository)


def repository_by_native(reader: Reader, instance_id: str, native_id: int) -> Repository | None:
    """Returns a repository by the forge's number."""
    row = reader.one(Q.repository_by_native, instance_id=instance_id, native_id=native_id)
    return None if row is None else read(row, Repository)


def repository_by_key(reader: Reader, repo_key: str) -> Repository | None:
    """Returns a repository by its present name, else by one it had before."""
    row = reader.one(Q.repository_by_key, repo_key=repo_key)
    if row is not None:
        return read(row, Repository)
    alias = reader.one(Q.repository_by_alias, repo_key=repo_key)
    return None if alias is None else repository(reader, alias["repository_id"])


def repositories(reader: Reader) -> list[Repository]:
    """Returns every repository."""
    return [read(row, Repository) for row in reader.many(Q.repositories)]


def session(reader: Reader, session_id: str) -> Session:
    """Returns a session that is known to exist."""
    row = reader.one(Q.session, id=session_id)
    assert row is not None, f"BUG: no session {session_id}"  # noqa: S101 - foreign keys hold it
    return read(row, Session)


def session_of(reader: Reader, repository_id: str, kind: str, number: int) -> Session | None:
    """Returns the session of an issue or pull request."""
    row = reader.one(Q.session_of, repository_id=repository_id, kind=kind, number=number)
    return None if row is None else read(row, Session)


def current_branch(reader: Reader, session_id: str) -> Branch | None:
    """Returns the branch that the session's next task continues."""
    row = reader.one(Q.current_branch, session_id=session_id)
    return None if row is None else read(row, Branch)


def branches(reader: Reader, session_id: str) -> list[Branch]:
    """Returns every branch of a session, oldest first."""
    return [read(row, Branch) for row in reader.many(Q.branches, session_id=session_id)]


def find_task(reader: Reader, task_id: str) -> Task | None:
    """Returns a task, or None."""
    row = reader.one(Q.task, id=task_id)
    return None if row is None else read(row, Task)


def task(reader: Reader, task_id: str) -> Task:
    """Returns a task that is known to exist."""
    found = find_task(reader, task_id)
    assert found is not None, f"BUG: no task {task_id}"  # noqa: S101 - the caller holds its id
    return found


def lock_task(tx: Tx, task_id: str) -> Task:
    """Returns a task that nobody else can change until this command has committed."""
    tx.one(Q.task_locked, id=task_id)
    return task(tx, task_id)


def latest_task(reader: Reader, session_id: str) -> Task | None:
    """Returns the newest task of a session."""
    row = reader.one(Q.latest_task, session_id=session_id)
    return None if row is None else read(row, Task)


def waiting_task(reader: Reader, session_id: str) -> Task | None:
    """Returns the newest task of a session that waits for its user (GW-R-060)."""
    row = reader.one(Q.waiting_task, session_id=session_id)
    return None if row is None else read(row, Task)


def first_refusal_today(tx: Tx, instance_id: str, author_id: int) -> bool:
    """Notes that a person is told today that they may not ask; returns False when they were told already."""
    return tx.run(Q.tell_author, instance_id=instance_id, author_id=author_id, day=tx.now // _DAY) == 1


def active_tasks(reader: Reader, instance_id: str, limit: int = 500) -> list[Task]:
    """Returns tasks of a forge that somebody works on, or worked on when it died."""
    return [read(row, Task) for row in reader.many(Q.all_active_tasks, instance_id=instance_id, limit=limit)]


def open_by_forge(reader: Reader) -> dict[str, int]:
    """Returns how many tasks that are not at their end each forge has."""
    return {str(row["instance_id"]): int(row["n"]) for row in reader.many(Q.open_by_forge)}


def candidate(reader: Reader, repository_id: str, now: int) -> Task | None:
    """Returns the task of a repository that may be claimed first (GW-R-115)."""
    row = reader.one(Q.candidate, repository_id=repository_id, now=now)
    return None if row is None else read(row, Task)


def instruction(reader: Reader, task_id: str) -> str:
    """Returns what a task was asked; empty once pruned."""
    row = reader.one(Q.instruction, task_id=task_id)
    return "" if row is None else str(row["body"])


def follow_ups(reader: Reader, task_id: str) -> list[FollowUp]:
    """Returns the comments that continued a task."""
    return [read(row, FollowUp) for row in reader.many(Q.follow_ups, task_id=task_id)]


def delivery(reader: Reader, delivery_key: str) -> Delivery | None:
    """Returns what a delivery was answered."""
    row = reader.one(Q.delivery, delivery_key=delivery_key)
    return None if row is None else read(row, Delivery)


def old_deliveries(reader: Reader) -> int:
    """Returns how many deliveries may be forgotten now."""
    row = reader.one(Q.old_deliveries, now=reader.now)
    return 0 if row is None else int(row["n"])


def prune_deliveries(tx: Tx, limit: int = 200) -> int:
    """Forgets deliveries that are past their time and whose task is at its end; returns how many (GW-R-027)."""
    return tx.run(Q.prune_deliveries, now=tx.now, limit=limit)


def turn(reader: Reader, run_id: str) -> Turn | None:
    """Returns the turn of a run."""
    row = reader.one(Q.turn, run_id=run_id)
    return None if row is None else read(row, Turn)


def turns(reader: Reader, task_id: str) -> list[Turn]:
    """Returns the turns of a task, oldest first."""
    return [read(row, Turn) for row in reader.many(Q.turns, task_id=task_id)]


def final_text(reader: Reader, run_id: str) -> str:
    """Returns the agent's last words in a run, empty when there are none."""
    row = reader.one(Q.final_text, run_id=run_id)
    return "" if row is None else str(row["body"])


def comment(reader: Reader, key: str) -> Comment | None:
    """Returns a comment of ours by its key."""
    row = reader.one(Q.comment, id=key)
    return None if row is None else read(row, Comment)


def comments(reader: Reader, task_id: str) -> list[Comment]:
    """Returns the comments of a task, oldest first."""
    return [read(row, Comment) for row in reader.many(Q.comments, task_id=task_id)]


def open_comments(reader: Reader, instance_id: str, before: int, limit: int = 100) -> list[Comment]:
    """Returns comments to a forge without proof that were intended before a time."""
    rows = reader.many(Q.open_comments, instance_id=instance_id, before=before, limit=limit)
    return [read(row, Comment) for row in rows]


def comment_body(reader: Reader, key: str) -> str:
    """Returns what a comment says, empty once pruned."""
    row = reader.one(Q.comment_body, comment_key=key)
    return "" if row is None else str(row["body"])


def control(reader: Reader) -> Control | None:
    """Returns the control row; None means that nobody ever paused."""
    row = reader.one(Q.control)
    return None if row is None else read(row, Control)


def paused(reader: Reader) -> bool:
    """Tells whether new work is held back (GW-R-125)."""
    row = control(reader)
    return row is not None and row.state == "paused"


def ready(tx: Tx, repository_id: str, at: int) -> None:
    """Notes that a repository has something claimable from `at` on."""
    tx.run(Q.ready, repository_id=repository_id, ready_at=at)


def due_repositories(reader: Reader, instance_id: str, worker_id: str, limit: int) -> dict[str, int]:
    """Returns a forge's repositories in which this worker may find something to claim, with since when.

    The longest waiting come first.
    """
    rows = reader.many(Q.ready_repositories, instance_id=instance_id, now=reader.now, worker_id=worker_id, limit=limit)
    return {str(row["repository_id"]): int(row["ready_at"]) for row in rows}


def unlisted(reader: Reader, limit: int = 100) -> list[str]:
    """Returns repositories with waiting tasks that the ready list lacks; there are none but by a mistake."""
    return [str(row["repository_id"]) for row in reader.many(Q.unlisted_ready, limit=limit)]


def reckon(tx: Tx, repository_id: str, now: int) -> None:
    """Moves a repository's place in the ready list to its next due task, or takes it off."""
    # Whoever queues a task at this moment has the row, or waits for it and lists the repository again. Without a row
    # there is nothing to move, and nothing that was locked.
    if tx.one(Q.ready_locked, repository_id=repository_id) is None or candidate(tx, repository_id, now) is not None:
        return
    row = tx.one(Q.next_due, repository_id=repository_id, now=now)
    due = None if row is None else row["due"]
    if due is None:
        tx.run(Q.not_ready, repository_id=repository_id)
    else:
        tx.run(Q.ready_later, repository_id=repository_id, ready_at=due)


def fetched(hot: HotTx, repository_id: str) -> None:
    """Notes a successful fetch (GW-R-126)."""
    hot.run(Q.fetched, repository_id=repository_id, at=hot.now)


def order(reader: Reader, order_id: str) -> Order:
    """Returns an order that is known to exist."""
    row = reader.one(Q.order, id=order_id)
    assert row is not None, f"BUG: no order {order_id}"  # noqa: S101 - the caller holds its id
    return read(row, Order)


def open_orders(reader: Reader, instance_id: str, limit: int = 1000) -> list[Order]:
    """Returns the orders that are not carried out, oldest first."""
    return [read(row, Order) for row in reader.many(Q.open_orders, instance_id=instance_id, limit=limit)]


def open_tasks(reader: Reader, session_id: str, limit: int = 100) -> list[Task]:
    """Returns the tasks of a conversation that are not at their end, oldest first."""
    return [read(row, Task) for row in reader.many(Q.open_tasks, session_id=session_id, limit=limit)]


def latest_allowed(reader: Reader, session_id: str) -> Task | None:
    """Returns the newest task of a conversation whose author was not refused."""
    row = reader.one(Q.latest_allowed, session_id=session_id)
    return None if row is None else read(row, Task)


def asked_at(reader: Reader, task_id: str) -> int | None:
    """Returns when a task's newest instruction was written, by the forge's clock; None when nobody said."""
    row = reader.one(Q.asked_at, task_id=task_id)
    if row is None:
        return None
    return max((at for at in (row["first"], row["last"]) if at is not None), default=None)


def asked_before(reader: Reader, task: Task, forge_at: int, ledger_at: int) -> bool:
    """Tells whether a task was asked for before something else was said at the forge.

    The forge's clock decides, for deliveries overtake one another; within its second, who was here first.
    """
    at = asked_at(reader, task.id)
    if at is None or at == forge_at:
        return task.created_at <= ledger_at
    return at < forge_at


def stop(reader: Reader, task_id: str) -> Stop | None:
    """Returns why a task is to stop, or None when it is not."""
    row = reader.one(Q.stop, task_id=task_id)
    return None if row is None else read(row, Stop)


def stopped_by(reader: Reader, order_id: str) -> list[Task]:
    """Returns the tasks that an order stops."""
    return [task(reader, row["task_id"]) for row in reader.many(Q.stopped_by, order_id=order_id)]


def note(reader: Reader, key: str) -> Note | None:
    """Returns what is said about an order."""
    row = reader.one(Q.note, id=key)
    return None if row is None else read(row, Note)


def open_notes(reader: Reader, instance_id: str, limit: int = 100) -> list[Note]:
    """Returns notes without proof, oldest first."""
    return [read(row, Note) for row in reader.many(Q.open_notes, instance_id=instance_id, limit=limit)]


def steers(reader: Reader, task_id: str) -> list[Steer]:
    """Returns the comments that are to be said into a task's turn and are not settled, oldest first."""
    return [read(row, Steer) for row in reader.many(Q.steers, task_id=task_id)]
