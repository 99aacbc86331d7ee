"""The channel of notes: what the product says about an order, posted once and proven like every other comment.

A note belongs to no task and needs no lease: whoever attends to orders may send it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stationmaster.command import Cmd
from stationmaster.errors import StationmasterError
from stationmaster.gitea import codes, comments, marker, store
from stationmaster.gitea.client import explain
from stationmaster.gitea.gear import Gear
from stationmaster.gitea.machine import NOTE
from stationmaster.gitea.model import Note, Order
from stationmaster.ledger.tx import Reader, Tx
from stationmaster.outbox.channel import Found, Outcome, Seen, State, Unreadable
from stationmaster.outbox.tries import Try

_MOST_SENDS = 2


@dataclass(frozen=True, slots=True)
class Said:
    """A note with the order that it answers."""

    note: Note
    order: Order

    @property
    def id(self) -> str:
        """The commentKey."""
        return self.note.id

    @property
    def state(self) -> State:
        """Where it is in its life (GW-R-138)."""
        return self.note.state

    @property
    def rev(self) -> int:
        """Its revision."""
        return self.note.rev

    @property
    def term(self) -> int | None:
        """None: anybody may send it."""
        return None


def intend(tx: Tx, order: Order, body: str) -> str:
    """Makes the row of what is said about an order, and returns its key; there is one for each order."""
    tx.born(
        NOTE,
        order.id,
        "intend",
        order_id=order.id,
        repository_id=order.repository_id,
        resource_key=order.resource_key,
        number=order.number,
        body=body,
        created_at=tx.now,
        updated_at=tx.now,
    )
    return order.id


class NoteChannel:
    """Posts and proves notes on one forge."""

    action = "note"
    lost = codes.REPLY_STATUS_UNKNOWN

    def __init__(self, gear: Gear) -> None:
        self._gear = gear
        self.settle_s = gear.settings.settle_s

    def load(self, reader: Reader, key: str) -> Said:
        """Returns a note that is known to exist."""
        note = store.note(reader, key)
        assert note is not None, f"BUG: no note {key}"  # noqa: S101 - whoever asks has intended it
        return Said(note, store.order(reader, note.order_id))

    def command(self, row: Said, name: str) -> Cmd:
        """Makes a command about a note."""
        return Cmd(name, "system", f"order:{row.order.id}", refs=refs(row.order))

    def lease_of(self, row: Said) -> tuple[str, str]:
        """Returns what no note needs, for none carries a term."""
        return "duty", row.id

    def barred(self, row: Said) -> str | None:
        """Returns None: what a note says was so when it was asked."""
        _ = row
        return None

    def again(self, row: Said, tries: list[Try]) -> bool:
        """Tells whether a note that is proven absent may be sent once more."""
        _ = row
        return len(tries) < _MOST_SENDS

    def keeps(self, row: Said) -> bool:
        """Returns False: nobody else decides about a note."""
        _ = row
        return False

    def grace_s(self, code: str | None) -> float:
        """Returns how long after a try the note may still appear."""
        return comments.grace_s(self._gear, code)

    def deliver(self, tx: Tx, row: Said, native: Any) -> None:
        """Notes that the forge took it."""
        tx.move(NOTE, row.id, "deliver", rev=row.rev, native_id=native, updated_at=tx.now)
        tx.event("note.sent", refs={"comment": str(native)}, key=row.id)

    def confirm(self, tx: Tx, row: Said, found: Found) -> None:
        """Notes the proof."""
        tx.move(NOTE, row.id, "confirm", rev=row.rev, native_id=found.native, error_code=None, updated_at=tx.now)
        tx.event("note.confirmed", refs={"comment": str(found.native)}, key=row.id)
        for native in found.also:
            tx.event("comment.duplicate_observed", refs={"comment": str(native)}, key=row.id)

    def fail(self, tx: Tx, row: Said, code: str) -> None:
        """Notes that it is not there and will not come."""
        tx.move(NOTE, row.id, "fail", rev=row.rev, error_code=code, updated_at=tx.now)
        tx.event("note.failed", key=row.id, code=code)

    async def send(self, row: Said) -> Outcome:
        """Posts it once."""
        return await comments.post(self._gear, row.note, row.note.body)

    async def read_back(self, row: Said) -> Seen:
        """Looks for it among the bot's comments on its issue or pull request."""
        try:
            said = await comments.bot_comments(self._gear, row.note)
        except StationmasterError as error:
            return Unreadable(explain(error))
        mine = [each.id for each in said if marker.is_receipt(each.body, comment_key=row.id)]
        return comments.chosen(mine, row.note.native_id)


def refs(order: Order) -> dict[str, str]:
    """Returns the correlation ids of everything done for an order."""
    found = {
        "repo": order.resource_key.rsplit(":", 2)[0],
        "resource": order.resource_key,
        "session": order.resource_key,
        "order": order.id,
    }
    return {**found, "delivery": order.delivery_id} if order.delivery_id else found
