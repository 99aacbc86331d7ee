"""Takes in what asks something of the bot, whoever brought it: a delivery or a reading of the forge.

What was asked once is never asked twice: the content key is the one guard against a replay, a second hook, and a
reading that meets what a delivery brought (GW-R-022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from stationmaster.errors import Stale
from stationmaster.gitea import orders, registry, store
from stationmaster.gitea.actions import step
from stationmaster.gitea.machine import TASK
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
    asked = tx.one(Q.trigger, **_content_key(said))
    if asked is not None:
        return Taken(store.task(tx, asked["task_id"]), "known")
    word = orders.word_of(said.instruction)
    if word is not None:
        return _order(tx, said, settings, word)
    repository = registry.registered(tx, said)
    if repository.state == "disabled":
        raise RepositoryDisabled
    session_id, fresh = registry.session(tx, said, repository)
    waiting = None if fresh else store.waiting_task(tx, session_id)
    if waiting is not None and _may_continue(said, settings):
        return Taken(_continue(tx, said, settings, waiting), "follow_up")
    return Taken(_new_task(tx, said, settings, repository, session_id), "new")


def _order(tx: Tx, said: Normalised, settings: GiteaSettings, word: Word) -> Taken | Ordered:
    """Takes an order; a retry of a task that has ended is a new task, whose author is checked like any other's."""
    if tx.one(Q.order_by_key, **_content_key(said)) is not None:
        return Ordered(word, "known")
    repository = registry.registered(tx, said)
    if repository.state == "disabled" and word != "stop":
        raise RepositoryDisabled
    if word == "retry":
        again = orders.to_do_again(tx, repository.id, said)
        if again is not None:
            session_id, _ = registry.session(tx, said, repository)
            asked = msgspec.structs.replace(said, instruction=again)
            return Taken(_new_task(tx, asked, settings, repository, session_id), "new")
    orders.ask(tx, said, repository, word, may=_may(said))
    return Ordered(word, "new")


def _content_key(said: Normalised) -> dict[str, Any]:
    return {
        "instance_id": said.instance_id,
        "origin": said.origin,
        "native_id": said.comment.id,
        "version": said.version,
    }


def _may(said: Normalised) -> str | None:
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
    may = _may(said)
    return may is None or allows(settings.allow, may)


def _new_task(tx: Tx, said: Normalised, settings: GiteaSettings, repository: Repository, session_id: str) -> Task:
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
        sender_may=_may(said),
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
    _trigger(tx, said, task.id, None)
    return step(tx, task, "enqueue", settings)


def _continue(tx: Tx, said: Normalised, settings: GiteaSettings, task: Task) -> Task:
    """Continues a waiting task with a new comment; its budgets start again (GW-R-060, GW-R-110)."""
    number = len(store.follow_ups(tx, task.id)) + 1
    tx.run(
        Q.add_follow_up,
        task_id=task.id,
        number=number,
        delivery_key=said.delivery_key,
        comment_id=said.comment.id,
        author=said.comment.author_login,
        author_id=said.comment.author_id,
        sender_may=_may(said),
        body=said.instruction,
        at=tx.now,
        asked_at=said.comment.updated_at,
    )
    _trigger(tx, said, task.id, number)
    tx.event(
        "task.follow_up", refs={"task": task.id}, number=number, attempt=task.attempt, reply_attempt=task.reply_attempt
    )
    return step(tx, task, "follow_up", settings, attempt=0, reply_attempt=0, error_code=None, retry_purpose=None)


def _trigger(tx: Tx, said: Normalised, task_id: str, follow_up: int | None) -> None:
    added = tx.run(
        Q.add_trigger,
        **_content_key(said),
        task_id=task_id,
        follow_up=follow_up,
    )
    if added != 1:
        raise Stale("The same comment was taken at this moment.", code="already_exists", hint="Take it again.")
