"""After a restore: what the lost days wrote in a thread is found there before anything is written again (K7).

The ledger of a backup does not know what happened after it was made, but the forge does. Once for each task that is
worked on after a restore, the bot's own comments are read: an answer, a question, a receipt or the notice of an end
that is there already becomes the task's, and is never written a second time. A question that was taken again after
the restore has a task of another name; what the bot said there for tasks that nobody knows is taken to be about such
questions, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from stationmaster.clock import MICROS
from stationmaster.gitea import actions, codes, comments, marker, store, verify, wire
from stationmaster.gitea.comments import CommentChannel
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import CommentKind, Task
from stationmaster.gitea.settings import GiteaSettings
from stationmaster.gitea.store import Q
from stationmaster.jobs import actions as jobs
from stationmaster.ledger import history
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.tx import Reader, Tx
from stationmaster.outbox import channel, tries

_RESTORED, _LOOKED = "backup.restored", "restored.look"
# By then nobody delivers again what was said before.
_FOR = 30 * 86_400 * MICROS
_ENDS = frozenset({"failed", "failed_reply", "aborted", "cancelled"})
_OPEN = frozenset({"pending", "sent"})

What = Literal["answer", "question", "receipt", "end"]


@dataclass(frozen=True, slots=True)
class _Said:
    """One comment of the bot that carries a mark."""

    id: int
    at: int
    owner: str
    what: What
    about: str
    body: str


def tell(tx: Tx, *, made_at: str, last_seq: int, product: str) -> None:
    """Writes into the history that this ledger came out of a backup."""
    tx.event(_RESTORED, made_at=made_at, last_seq=last_seq, product=product)


async def earlier(gear: Gear, hold: Hold, task: Task) -> Task | None:
    """Looks for what was said for a held task before a restore; returns the task when nothing is left to do for it.

    Raises what a read of the forge raises: without it nobody may write.
    """
    if task.state not in {"preparing", "running"} or await gear.port.read(_since, task) is None:
        return None
    rows = await comments.bot_comments(gear, task)
    said = [found for row in sorted(rows, key=lambda row: row.id) if (found := _read(row)) is not None]
    cmd = actions.command("restored.settle", task, f"lease:{hold.lease.lease_id}")
    moved = await gear.port.do(cmd, _settled, task.id, hold.lease, gear.settings, gear.station.worker_id, said)
    if moved is not None and moved.state == "verifying_reply":
        moved = await verify.settle(gear, hold, moved)
    return moved


def _since(reader: Reader, task: Task) -> int | None:
    """Returns the number of the restore after which this task was not looked at; None when there is none."""
    found = history.by_action(reader, _RESTORED)
    if not found or reader.now - found[-1].at > _FOR:
        return None
    seq = found[-1].seq
    looked = history.by_ref(reader, "task", task.id, after=seq)
    return None if any(entry.name == _LOOKED for entry in looked) else seq


def _read(row: wire.Comment) -> _Said | None:
    number, at, body = row.id, row.created_at, row.body
    mark = marker.only(body)
    if mark is None:
        return None
    if mark.task_id and mark.turn_id:
        return _Said(number, at, mark.task_id, "answer", mark.turn_id, body)
    owner, _, rest = mark.comment_key.partition(":")
    kind, _, about = rest.partition(":")
    if kind == "ask":
        return _Said(number, at, owner, "question", about, body)
    if kind == "status" and about == "running":
        return _Said(number, at, owner, "receipt", about, body)
    return _Said(number, at, owner, "end", about, body) if kind == "status" and about in _ENDS else None


def _settled(
    tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings, worker_id: str, said: Sequence[_Said]
) -> Task | None:
    leases.held(tx, lease)
    task = store.task(tx, task_id)
    since = _since(tx, task)
    if since is None:
        return None
    mine = list(_mine(tx, task, since, said))
    tx.event(_LOOKED, refs=actions.refs(task), found=[f"{each.what}:{each.id}" for each in mine])
    for each in mine:
        if each.what == "receipt":
            _own(tx, task, actions.status_key(task.id, "running"), "status", each, None)
    ending = [each for each in mine if each.what != "receipt" and _is_new(tx, task, each)]
    if not ending:
        return None
    last = next((each for each in ending if each.what == "answer"), ending[-1])
    if last.what == "end":
        return _ended(tx, task, lease, settings, last)
    _as_run(tx, task, lease, settings, worker_id, last)
    if last.what == "question":
        _own(tx, task, actions.ask_key(task.id, last.about), "question", last, last.about)
        return actions.leave(tx, task.id, "wait", lease, settings, error_code=None)
    _own(tx, task, actions.final_key(task.id, last.about), "mcp_final", last, last.about)
    return actions.advance(tx, task.id, "verify", lease, settings)


def _mine(tx: Tx, task: Task, since: int, said: Sequence[_Said]) -> Iterator[_Said]:
    """Yields what was said for this task, under its own name or under the one that it had before the restore."""
    names = {task.id} | _former(tx, task, since, said)
    return (each for each in said if each.owner in names)


def _former(tx: Tx, task: Task, since: int, said: Sequence[_Said]) -> set[str]:
    restored = history.entry(tx, since)
    asked = tx.many(Q.asked_since, session_id=task.session_id, after=0 if restored is None else restored.at)
    at = next((at for at, row in enumerate(asked) if row["id"] == task.id), None)
    if at is None:
        return set()
    # By the forge's clock, which tells whole seconds.
    first = asked[0]["asked_at"] // MICROS
    strangers = dict.fromkeys(
        each.owner for each in said if each.at // MICROS >= first and store.find_task(tx, each.owner) is None
    )
    return set(list(strangers)[at : at + 1])


def _is_new(tx: Tx, task: Task, each: _Said) -> bool:
    """Tells whether the ledger has yet to learn of it: a turn that it knows and left behind decides nothing."""
    if each.what == "end":
        # An end that was followed by another question is no end.
        return _newest_word(tx, task) < each.id
    if jobs.find(tx, each.about) is None:
        return each.what == "answer" or _newest_word(tx, task) < each.id
    return each.what == "answer" and each.about in verify.accepted(tx, task.id)


def _newest_word(tx: Tx, task: Task) -> int:
    said = store.follow_ups(tx, task.id)
    return said[-1].comment_id if said else 0


def _as_run(tx: Tx, task: Task, lease: Lease, settings: GiteaSettings, worker_id: str, each: _Said) -> None:
    """Brings the task to where the run that spoke had brought it."""
    for run in jobs.of_subject(tx, task.id):
        if run.state == "started":
            actions.end_turn(tx, task, run.id, "interrupt", codes.INTERRUPTED_BY_RESTART, "")
    if jobs.find(tx, each.about) is None:
        actions.open_turn(tx, task.id, lease, each.about, worker_id, kind="normal", head=None)
        actions.end_turn(tx, task, each.about, "complete", None, "")
    if task.state == "preparing":
        cols = {"error_code": None, "next_retry_at": None, "retry_purpose": None}
        actions.advance(tx, task.id, "start", lease, settings, **cols)


def _ended(tx: Tx, task: Task, lease: Lease, settings: GiteaSettings, each: _Said) -> Task:
    code = codes.ENDED_BEFORE_RESTORE
    moved = actions.leave(tx, task.id, "fail", lease, settings, error_code=code, next_retry_at=None, retry_purpose=None)
    _own(tx, moved, actions.status_key(task.id, moved.state), "status", each, None)
    return moved


def _own(tx: Tx, task: Task, key: str, kind: CommentKind, each: _Said, run_id: str | None) -> None:
    """Makes a comment that is there the proven comment of this task."""
    row = actions.intend_comment(tx, task, key, kind, each.body, run_id=run_id)
    if row.state in _OPEN:
        tries.settle(tx, tries.alone(tx, CommentChannel.action, row.id), "done", native=each.id)
        comments.confirm(tx, row, channel.Found(each.id))
