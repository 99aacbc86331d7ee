"""Wishes to read one issue or pull request, whose event said too little: kept until the forge has answered.

A review's event names no review, and a remark on a line of code comes without its words. The webhook leaves a wish in
its own command and answers; `catchup` reads, admits what it finds, and only then calls the wish done. A crash in
between reads again, and the content key keeps what was taken from being taken twice.
"""

from __future__ import annotations

import msgspec

from stationmaster import ids
from stationmaster.clock import MICROS
from stationmaster.gitea.model import Kind, read
from stationmaster.gitea.normalise import Repo
from stationmaster.ledger import queries
from stationmaster.ledger.tx import HotTx, Reader, Tx

Q = queries.load("stationmaster.gitea", "reading.sql")

# Ends the reason of a wish whose text was changed, which may be older than what is read otherwise.
EDITED = "edited"

_FIRST_DELAY_S = 5
_LONGEST_DELAY_S = 600


class Look(msgspec.Struct, frozen=True):
    """One wish; `native_id` is the repository's, `owner` and `name` what it was called when it was asked."""

    id: str
    native_id: int
    owner: str
    name: str
    kind: Kind
    number: int
    reason: str
    delivery_id: str | None
    asked_at: int
    attempts: int


def ask(
    tx: Tx, *, instance_id: str, repo: Repo, kind: Kind, number: int, reason: str, delivery_id: str | None = None
) -> str:
    """Leaves a wish to read an issue or pull request soon, in the caller's command; returns its id.

    `reason` is what happened there, such as the event's type. Each call is a look of its own: one that is under way may
    have read past what is meant.
    """
    look_id = ids.new("look")
    tx.run(
        Q.add_look,
        id=look_id,
        instance_id=instance_id,
        native_id=repo.id,
        owner=repo.owner,
        name=repo.name,
        kind=kind,
        number=number,
        reason=reason,
        delivery_id=delivery_id,
        at=tx.now,
    )
    tx.event("look.ask", look=look_id, kind=kind, number=number, reason=reason)
    return look_id


def due(reader: Reader, instance_id: str, limit: int = 50) -> list[Look]:
    """Returns the wishes whose time has come, oldest first."""
    return [read(row, Look) for row in reader.many(Q.due_looks, instance_id=instance_id, now=reader.now, limit=limit)]


def waiting(reader: Reader, instance_id: str) -> int:
    """Returns how many wishes are open."""
    row = reader.one(Q.open_looks, instance_id=instance_id)
    return 0 if row is None else int(row["n"])


def done(tx: Tx, looks: list[Look], error_code: str | None = None) -> None:
    """Closes wishes after everything found there was admitted, or when there is nothing left to read."""
    for look in looks:
        tx.run(Q.look_done, id=look.id, at=tx.now, error_code=error_code)


def later(hot: HotTx, looks: list[Look], error_code: str) -> None:
    """Puts wishes off that the forge did not answer; each time for longer, never for good."""
    for look in looks:
        delay_s = min(_LONGEST_DELAY_S, _FIRST_DELAY_S << min(look.attempts, 10))
        hot.run(Q.look_later, id=look.id, due_at=hot.now + delay_s * MICROS, error_code=error_code)


def old(reader: Reader, before: int) -> bool:
    """Tells whether wishes were done before a time."""
    return reader.one(Q.old_look, before=before) is not None


def prune(tx: Tx, *, before: int, limit: int = 90) -> int:
    """Forgets wishes that were done before a time; returns how many."""
    return tx.run(Q.prune_looks, before=before, limit=limit)
