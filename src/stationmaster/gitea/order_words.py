"""Takes an order in: which words are one, its row, and what a retry does again; bodies of whoever takes the comment."""

from __future__ import annotations

from stationmaster.gitea import store
from stationmaster.gitea.machine import ORDER, TASK
from stationmaster.gitea.model import Repository, Task, Word
from stationmaster.gitea.normalise import Normalised
from stationmaster.ledger.tx import Reader, Tx

_WORDS: dict[str, Word] = {
    "stop": "stop",
    "停止": "stop",
    "retry": "retry",
    "重试": "retry",
    "status": "status",
    "状态": "status",
    "help": "help",
    "帮助": "help",
}


def word_of(instruction: str) -> Word | None:
    """Returns the order that an instruction is; anything longer than the word is an ordinary instruction."""
    return _WORDS.get(instruction.strip().casefold())


def ask(tx: Tx, said: Normalised, repository: Repository, word: Word, *, may: str | None) -> None:
    """Stores an order; the content key of its comment is the order's."""
    tx.born(
        ORDER,
        f"{said.instance_id}:order:{said.origin}:{said.comment.id}:{said.version}",
        "ask",
        instance_id=said.instance_id,
        origin=said.origin,
        native_id=said.comment.id,
        version=said.version,
        word=word,
        delivery_id=said.delivery_id,
        repository_id=repository.id,
        resource_key=said.resource_key,
        kind=said.resource.kind,
        number=said.resource.number,
        author=said.comment.author_login,
        author_id=said.comment.author_id,
        sender_may=may,
        asked_at=said.comment.updated_at,
        created_at=tx.now,
        updated_at=tx.now,
    )
    tx.event("order.ask", word=word, author=said.comment.author_login)


def to_do_again(reader: Reader, repository_id: str, said: Normalised) -> str | None:
    """Returns the words of the newest task of an issue or pull request when it has ended; None when there are none.

    Tasks whose author was refused do not count: with a retry nobody lends a stranger's words their own rights.
    """
    session = store.session_of(reader, repository_id, said.resource.kind, said.resource.number)
    task = None if session is None else store.latest_allowed(reader, session.id)
    return None if task is None or task.state not in TASK.terminal else words(reader, task) or None


def words(reader: Reader, task: Task) -> str:
    """Returns everything that a task was asked, in order; empty once pruned."""
    said = [store.instruction(reader, task.id), *(each.body for each in store.follow_ups(reader, task.id))]
    return "\n\n".join(each for each in said if each.strip())
