"""Orders by comment: stop, retry, status, help, each a word alone after the mention.

The webhook only stores them. This duty asks the forge who may, carries them out in one command each, and posts what is
to be said. Whoever may not ask is refused without a word in the thread. All of it may be done twice, or by two at a
time: the order's revision lets one command through, and a note has one row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from stationmaster.clock import MICROS
from stationmaster.command import Cmd
from stationmaster.errors import Denied, StationmasterError
from stationmaster.gitea import (
    actions,
    authors,
    codes,
    notes,
    order_texts,
    order_words,
    prepare,
    receipts,
    standing,
    steering,
    stopping,
    store,
)
from stationmaster.gitea.client import explain
from stationmaster.gitea.gear import Gear
from stationmaster.gitea.machine import NOTE, ORDER, TASK
from stationmaster.gitea.model import Asker, Order, Session, Task
from stationmaster.gitea.notes import NoteChannel
from stationmaster.gitea.order_texts import Status
from stationmaster.gitea.patience import Patience
from stationmaster.gitea.settings import GiteaSettings
from stationmaster.ledger.tx import Reader, Tx
from stationmaster.outbox.attempt import attempt

# A command changes at most 200 rows; a stopped task takes up to eight.
_MOST_TASKS = 20
_GIVE_UP = 86_400 * MICROS
_FIRST_PAUSE = 5 * MICROS
_LONGEST_PAUSE = 600 * MICROS

_log = structlog.get_logger("stationmaster.gitea")


# --- carrying it out: one command's body each -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Carried:
    """What is to be posted now: the key of a note, and the receipts of tasks on which nobody works."""

    note: str | None = None
    receipts: tuple[tuple[str, str], ...] = ()


def carry_out(tx: Tx, order_id: str, settings: GiteaSettings) -> Carried:
    """Carries an order out and says in rows what is to be said; a repeat finds it done and does nothing."""
    order = store.order(tx, order_id)
    if order.state != "asked":
        return Carried()
    session = store.session_of(tx, order.repository_id, order.kind, order.number)
    if order.word == "stop":
        return _stop(tx, order, session, settings)
    language = settings.language
    if order.word == "help":
        body = order_texts.help_text(order.id, settings.bot_login, language)
    elif order.word == "status":
        body = order_texts.status(order.id, _status(tx, session), language)
    else:
        body = order_texts.no_retry(order.id, _why_not(tx, session), language)
    return _done(tx, order, "carry_out", body)


def refuse(tx: Tx, order_id: str, code: str) -> Carried:
    """Ends an order that is not carried out; nothing is said in the thread."""
    order = store.order(tx, order_id)
    if order.state == "asked":
        tx.move(ORDER, order.id, "refuse", rev=order.rev, error_code=code, updated_at=tx.now)
        tx.refusal("order.refuse", code, word=order.word, author=order.author)
    return Carried()


def settle(tx: Tx, order_id: str, settings: GiteaSettings) -> Carried:
    """Ends a stop once all its tasks are at their end; nothing happens before."""
    order = store.order(tx, order_id)
    if order.state != "standing":
        return Carried()
    tasks = store.stopped_by(tx, order.id)
    return _settled(tx, order, "settle", tasks, settings) if all(_ended(task) for task in tasks) else Carried()


def _stop(tx: Tx, order: Order, session: Session | None, settings: GiteaSettings) -> Carried:
    """Stops every task of the conversation that was asked for before the order."""
    before = [] if session is None else steering.open_tasks(tx, session.id, settings)
    before = [task for task in before if store.asked_before(tx, task, order.asked_at, order.created_at)]
    fresh = [task for task in before if store.stop(tx, task.id) is None and task.state != "aborting"]
    for task in fresh[:_MOST_TASKS]:
        stopping.stop(tx, task.id, codes.STOPPED_BY_COMMENT, settings, order_id=order.id)
    if len(fresh) > _MOST_TASKS:
        return Carried()
    mine = store.stopped_by(tx, order.id)
    if mine:
        ended = all(_ended(task) for task in mine)
        if ended:
            return _settled(tx, order, "carry_out", mine, settings)
        tx.move(ORDER, order.id, "stand", rev=order.rev, updated_at=tx.now)
        return Carried(receipts=_receipts(tx, mine))
    if before:
        # An earlier order or an operator stops them already; that tells how it ends.
        return _done(tx, order, "carry_out", None)
    return _done(tx, order, "carry_out", order_texts.nothing_to_stop(order.id, settings.language))


def _settled(tx: Tx, order: Order, verb: str, tasks: list[Task], settings: GiteaSettings) -> Carried:
    """Ends a stop; what a task's own receipt tells is not told again."""
    told = _receipts(tx, tasks)
    if told or any(store.comment(tx, actions.status_key(task.id, task.state)) is not None for task in tasks):
        return Carried(_done(tx, order, verb, None).note, told)
    cancelled = sum(task.state in {"cancelled", "aborted"} for task in tasks)
    words = order_texts.stopped(order.id, len(tasks) - cancelled, cancelled, settings.language)
    return _done(tx, order, verb, words)


def _receipts(reader: Reader, tasks: list[Task]) -> tuple[tuple[str, str], ...]:
    """Returns the receipts of tasks that were cancelled: no worker is there to post them at once."""
    keys = [(task.id, actions.status_key(task.id, task.state)) for task in tasks if task.state == "cancelled"]
    return tuple((task_id, key) for task_id, key in keys if store.comment(reader, key) is not None)


def _done(tx: Tx, order: Order, verb: str, body: str | None) -> Carried:
    tx.move(ORDER, order.id, verb, rev=order.rev, updated_at=tx.now)
    tx.event("order.done", word=order.word, told=body is not None)
    return Carried(None if body is None else notes.intend(tx, order, body))


def _ended(task: Task) -> bool:
    return task.state in TASK.terminal


def _why_not(reader: Reader, session: Session | None) -> str:
    task = None if session is None else store.latest_allowed(reader, session.id)
    if task is None:
        return "none"
    return "busy" if task.state not in TASK.terminal or order_words.words(reader, task) else "gone"


def _status(reader: Reader, session: Session | None) -> Status | None:
    task = None if session is None else store.latest_task(reader, session.id)
    if session is None or task is None:
        return None
    under_way = store.open_tasks(reader, session.id)
    waits_for = standing.waits_for(reader, task) if task.state == "queued" else ""
    stops = not _ended(task) and store.stop(reader, task.id) is not None
    return Status(task, waits_for, len(under_way), stops)


# --- the duty -------------------------------------------------------------------------------------------------------


class Orders:
    """Carries out the orders of one forge and posts their notes."""

    def __init__(self, gear: Gear) -> None:
        self._gear = gear
        self._channel = NoteChannel(gear)
        self._patience = Patience(_FIRST_PAUSE, _LONGEST_PAUSE)

    async def tick(self, now: int) -> int:
        """Attends to what is due; returns how many orders it carried out."""
        _ = now
        carried = 0
        for order in await self._gear.port.read(self._due_orders):
            carried += await self._attend(order)
        for key in await self._gear.port.read(self._due_notes):
            await self._post(key)
        return carried

    def _due_orders(self, reader: Reader) -> list[Order]:
        found = store.open_orders(reader, self._gear.settings.instance_id)
        notes_of = {note.id for note in store.open_notes(reader, self._gear.settings.instance_id)}
        self._patience.keep(notes_of | {order.id for order in found})
        return [
            order
            for order in found
            if self._patience.over(order.id, reader.now)
            and (order.state == "asked" or all(_ended(task) for task in store.stopped_by(reader, order.id)))
        ]

    def _due_notes(self, reader: Reader) -> list[str]:
        found = store.open_notes(reader, self._gear.settings.instance_id)
        return [note.id for note in found if self._patience.over(note.id, reader.now)]

    async def _attend(self, order: Order) -> int:
        try:
            if order.state == "standing":
                carried = await self._do(order, "order.settle", settle, order.id, self._gear.settings)
            else:
                await self._check(order)
                carried = await self._do(order, "order.carry_out", carry_out, order.id, self._gear.settings)
            self._patience.forget(order.id)
            for task_id, key in carried.receipts:
                await receipts.post(self._gear, task_id, key, hold=None)
            if carried.note is not None:
                await self._post(carried.note)
        except Denied as error:
            if error.code not in {codes.AUTHOR_NOT_ALLOWED, codes.AUTHOR_NOT_VERIFIABLE}:
                return await self._put_off(order, error)
            await self._do(order, "order.refuse", refuse, order.id, explain(error))
        except StationmasterError as error:
            return await self._put_off(order, error)
        return 1

    async def _check(self, order: Order) -> None:
        """Returns when the author may ask here; the same rule as for a task (GW-R-055)."""
        gear = self._gear
        await prepare.identified(gear, order.repository_id, self._cmd(order, "repo.moved"))
        asker = Asker(order.author_id, order.author, order.sender_may)
        await authors.check_asker(gear, order.repository_id, asker, self._cmd(order, "author.check"))

    async def _put_off(self, order: Order, error: StationmasterError) -> int:
        _log.warning("order.postponed", order=order.id, code=error.code, error=str(error))
        now = await self._gear.port.read(_now)
        if order.state == "asked" and now - order.created_at >= _GIVE_UP:
            await self._do(order, "order.refuse", refuse, order.id, explain(error))
            return 1
        self._patience.put_off(order.id, now)
        return 0

    async def _post(self, key: str) -> None:
        """Brings a note as far as it can be brought now."""
        port = self._gear.port
        try:
            done = await attempt(port, self._channel, key)
        except StationmasterError as error:
            _log.warning("note.postponed", key=key, code=error.code, error=str(error))
            self._patience.put_off(key, await port.read(_now))
            return
        if done.row.state in {"confirmed", "failed"}:
            self._patience.forget(key)
            return
        now = await port.read(_now)
        if now - done.row.note.created_at >= _GIVE_UP:
            await port.do(self._channel.command(done.row, "note.give_up"), _give_up, key, done.code)
        self._patience.put_off(key, now, done.again_at)

    async def _do(self, order: Order, name: str, body: Callable[..., Carried], *args: object) -> Carried:
        return await self._gear.port.do(self._cmd(order, name), body, *args)

    def _cmd(self, order: Order, name: str) -> Cmd:
        return Cmd(name, f"gitea:user:{order.author}", f"order:{order.id}", refs=notes.refs(order))


def _give_up(tx: Tx, key: str, code: str | None) -> None:
    note = store.note(tx, key)
    if note is not None and note.state in {"pending", "sent"}:
        failed = code or codes.REPLY_STATUS_UNKNOWN
        tx.move(NOTE, note.id, "fail", rev=note.rev, error_code=failed, updated_at=tx.now)


def _now(reader: Reader) -> int:
    return reader.now
