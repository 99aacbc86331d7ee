"""Takes outside events exactly once per (source, event id)."""

from __future__ import annotations

from stationmaster.inbox.model import Taken
from stationmaster.ledger import queries
from stationmaster.ledger.slices import Slice
from stationmaster.ledger.tx import Reader, Tx

SLICE = Slice("inbox", "stationmaster.inbox")

_Q = queries.load("stationmaster.inbox")


def take(tx: Tx, *, source: str, event_id: str, payload_hash: str, disposition: str) -> Taken | None:
    """Takes an event and returns None, or returns the row of the first time.

    A known id with another payload hash is the caller's to answer as the first and to audit (K1).
    """
    touched = tx.run(
        _Q.add,
        source=source,
        event_id=event_id,
        payload_hash=payload_hash,
        disposition=disposition,
        received_at=tx.now,
        command=tx.seq,
    )
    # Not looked for first: a new event is the rule, and a look would not stop a rival on PostgreSQL anyway.
    return None if touched == 1 else find(tx, source, event_id)


def find(reader: Reader, source: str, event_id: str) -> Taken | None:
    """Returns what is known of an event, or None."""
    row = reader.one(_Q.by_id, source=source, event_id=event_id)
    return None if row is None else Taken(**row)


def prune(tx: Tx, *, before: int, limit: int = 200) -> int:
    """Forgets events received before a time; returns how many."""
    return tx.run(_Q.prune, before=before, limit=limit)


def old(reader: Reader, *, before: int) -> int:
    """Returns how many events were received before a time."""
    row = reader.one(_Q.old, before=before)
    return 0 if row is None else int(row["n"])
