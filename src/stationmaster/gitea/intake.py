"""Takes in what asks something of the bot, whoever brought it: a delivery or a reading of the forge.

What was asked once is never asked twice: the content key is the one guard against a replay, a second hook, and a
reading that meets what a delivery brought (GW-R-022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from stationmaster import ids
from stationmaster.errors import Stale
from stationmaster.gitea import actions, order_words, registry, store
from stationmaster.gitea.actions import step
from stationmaster.gitea.machine import STEER, TASK
from stationmaster.gitea.model import Repository, Task, Word
from stationmaster.gitea.normalise import Normalised
from stationmaster.gitea.settings import GiteaSettings, allows
from stationmaster.gitea.store import Q
from stationmaster.ledger.tx import Tx

_BY_KERNEL = frozenset({"id", "state", "rev"})


class RepositoryDisabled(Exception):
    """The repository takes nothing; whoever brought the question says so in its own way."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The task that answers for a question, and whether it is new, continued by it, or had it already."""

    task: Task
    how: Literal["new", "follow_up", "known"]


@dataclass(frozen=True, slots=True)
class Ordered:
    """An order to the product itself; whoever attends to orders carries it out."""

    word: Word
    how: Literal["new", "known"]


def admit(tx: Tx, said: Normalised, settings: GiteaSettings) -> Taken | Ordered:
    """Takes in one question, once.

    Raises RepositoryDisabled, and Stale when a rival took the same at this very moment: try again.
    """
    one_at_a_time(tx, said)
    # What was asked in any wording is known: an edit starts something only when its mention is new.
    asked = tx.one(Q.trigger, **{**_content_key(said), "version": 0})
    if asked is not None:
        return Taken(store.task(tx, asked["task_id"]), "known")
    word = order_words.word_of(said.instruction)
    if word is not None:
        return _order(tx, said, settings, word)
    repository = registry.registered(tx, said)
    if repository.state == "disabled":
        raise RepositoryDisabled
    session_id, fresh = registry.session(tx, said, repository)
    waiting = None if fresh else store.waiting_task(tx, session_id)
    if waiting is not None and _may_continue(said, settings):
        return Taken(_continue(tx, said, settings, waiting), "follow_up")
    # In official mode nobody knows when the agent posted its answer, so nothing is said into a turn there.
    may_steer = settings.steering and settings.reply_mode == "scoped" and not fresh and not _lends_hands(said)
    running = _running_alone(tx, session_id) if may_steer else None
    if running is not None and _may_continue(said, settings):
        return Taken(_hand_in(tx, said, running), "follow_up")
    return Taken(_new_task(tx, said, settings, repository, session_id), "new")


def _lends_hands(said: Normalised) -> bool:
    """Tells whether a turn may hold more rights than who speaks: on a fork's code a writer's turn is the writer's."""
    if said.resource.kind == "issue" or (said.refs is not None and said.refs.head_repo_id == said.repo.id):
        return False
    return not allows("write", may(said) or "none")


def one_at_a_time(tx: Tx, said: Normalised) -> None:
    """Lets a delivery and a reading of the same words wait for one another, whatever wording and origin each saw."""
    tx.alone(f"gitea.said\n{said.instance_id}\n{said.comment.id}")


def _order(tx: Tx, said: Normalised, settings: GiteaSettings, word: Word) -> Taken | Ordered:
    """Takes an order; a retry of a task that has ended is a new task, whose author is checked like any other's."""
    if tx.one(Q.order_by_key, **{**_content_key(said), "version": 0}) is not None:
        return Ordered(word, "known")
    repository = registry.registered(tx, said)
    if repository.state == "disabled" and word != "stop":
        raise RepositoryDisabled
    if word == "retry":
        # Of two at the same moment the second finds the task of the first.
        tx.alone(f"gitea.retry\n{said.resource_key}")
        again = order_words.to_do_again(tx, repository.id, said)
        if again is not None:
            session_id, _ = registry.session(tx, said, repository)
            asked = msgspec.structs.replace(said, instruction=again)
            return Taken(_new_task(tx, asked, settings, repository, session_id), "new")
    order_words.ask(tx, said, repository, word, may=may(said))
    return Ordered(word, "new")


def _content_key(said: Normalised) -> dict[str, Any]:
    return {
        "instance_id": said.instance_id,
        "origin": said.origin,
        "native_id": said.comment.id,
        "version": said.version,
    }


def may(said: Normalised) -> str | None:
    """Returns what the signed event says of the sender's rights; None when it says nothing."""
    allowed = said.permissions
    if allowed is None:
        return None
    return "admin" if allowed.admin else "write" if allowed.push else "read" if allowed.pull else "none"


def _may_continue(said: Normalised, settings: GiteaSettings) -> bool:
    """Tells whether a comment may continue a waiting task.

    Somebody whose signed event shows that they may not ask gets a task of their own, which is refused: theirs is no
    reason to end what another person began.
    """
    if settings.allow == "list":
        return said.comment.author_login.lower() in {login.lower() for login in settings.allow_list}
    right = may(said)
    return right is None or allows(settings.allow, right)


def _new_task(tx: Tx, said: Normalised, settings: GiteaSettings, repository: Repository, session_id: str) -> Task:
    task = _born(tx, said, repository, session_id)
    _trigger(tx, said, task.id, None)
    return step(tx, task, "enqueue", settings)


def _born(tx: Tx, said: Normalised, repository: Repository, session_id: str) -> Task:
    task = Task(
        id=said.task_id,
        state="received",
        rev=0,
        delivery_key=said.delivery_key,
        delivery_id=said.delivery_id,
        repository_id=repository.id,
        session_id=session_id,
        resource_key=said.resource_key,
        comment_id=said.comment.id,
        author=said.comment.author_login,
        author_id=said.comment.author_id,
        sender_may=may(said),
        base_ref=said.refs.base if said.refs else None,
        head_ref=said.refs.head if said.refs else None,
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
    cols = {name: value for name, value in msgspec.structs.asdict(task).items() if name not in _BY_KERNEL}
    tx.born(TASK, task.id, "receive", **cols)
    tx.run(Q.add_instruction, task_id=task.id, body=said.instruction, asked_at=said.comment.updated_at)
    return task


def _continue(tx: Tx, said: Normalised, settings: GiteaSettings, task: Task) -> Task:
    """Continues a waiting task with a new comment; its budgets start again (GW-R-060, GW-R-110)."""
    number = _follow_up(tx, said, task)
    _trigger(tx, said, task.id, number)
    return step(tx, task, "follow_up", settings, attempt=0, reply_attempt=0, error_code=None, retry_purpose=None)


def _follow_up(tx: Tx, said: Normalised, task: Task) -> int:
    number = len(store.follow_ups(tx, task.id)) + 1
    tx.run(
        Q.add_follow_up,
        task_id=task.id,
        number=number,
        delivery_key=said.delivery_key,
        comment_id=said.comment.id,
        author=said.comment.author_login,
        author_id=said.comment.author_id,
        sender_may=may(said),
        body=said.instruction,
        at=tx.now,
        asked_at=said.comment.updated_at,
    )
    tx.event(
        "task.follow_up", refs={"task": task.id}, number=number, attempt=task.attempt, reply_attempt=task.reply_attempt
    )
    return number


def _running_alone(tx: Tx, session_id: str) -> Task | None:
    """Returns the running task of a conversation into whose turn something may be said still.

    Not while others wait behind it, which were asked earlier, nor once its answer is written.
    """
    under_way = store.open_tasks(tx, session_id, 2)
    if len(under_way) != 1 or under_way[0].state != "running":
        return None
    # Whoever ends the turn settles what was handed in; they wait for one another.
    task = store.lock_task(tx, under_way[0].id)
    turns = store.turns(tx, task.id)
    answered = not turns or actions.turn_end_row(tx, task.id, turns[-1].run_id) is not None
    return None if task.state != "running" or answered else task


def _hand_in(tx: Tx, said: Normalised, task: Task) -> Task:
    """Keeps a comment that is to be said into a running turn; until the agent was given it, it is only kept."""
    handed = ids.new("steer")
    body = msgspec.json.encode(said).decode()
    tx.born(STEER, handed, "hand_in", task_id=task.id, task_after=None, created_at=tx.now, updated_at=tx.now)
    tx.run(Q.keep_said, steer_id=handed, said=body)
    _trigger(tx, said, task.id, None)
    tx.event("steer.hand_in", refs={"task": task.id}, steer=handed)
    return task


def own_task(tx: Tx, said: Normalised, task: Task, settings: GiteaSettings) -> Task:
    """Makes a task of its own of what was to be said into the turn of `task` and was not."""
    repository = store.repository(tx, task.repository_id)
    made = _born(tx, said, repository, task.session_id)
    tx.run(Q.retarget_trigger, **_content_key(said), task_id=made.id, follow_up=None)
    tx.run(Q.retarget_delivery, delivery_key=said.delivery_key, task_id=made.id)
    return step(tx, made, "enqueue", settings)


def taken_in(tx: Tx, said: Normalised, task: Task) -> None:
    """Makes a follow-up of what the agent was given in the turn of `task`: a next try asks it again (GW-R-060)."""
    tx.run(Q.retarget_trigger, **_content_key(said), task_id=task.id, follow_up=_follow_up(tx, said, task))


def _trigger(tx: Tx, said: Normalised, task_id: str, follow_up: int | None) -> None:
    added = tx.run(
        Q.add_trigger,
        **_content_key(said),
        task_id=task_id,
        follow_up=follow_up,
    )
    if added != 1:
        raise Stale("The same comment was taken at this moment.", code="already_exists", hint="Take it again.")
