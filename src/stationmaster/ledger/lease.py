"""Leases: who may work on what, until when, and under which term (K5).

Terms. A row per (kind, key) stays for ever and its `term` only grows: the term is the fencing number, and a number once
given is never given again. `lease_id` names one holding; it is empty after a release.

Order. Acquire when the row is absent, released, expired (now >= expiry) or held by a dead incarnation: a worker keeps
its `worker_id` over restarts, one process per home, so a newer incarnation proves the older one dead. Then heartbeat
while working; call `held` just before every effect outside; release only when the run's processes are gone.

Failures. A holder that does not heartbeat in time has lost the lease even if nobody took it: an expired lease is never
revived, heartbeat and `held` raise Stale (`lease_lost`), and the worker stops. The next holder has a higher term.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from stationmaster import ids
from stationmaster.clock import MICROS
from stationmaster.errors import Bug, Stale
from stationmaster.ledger import queries
from stationmaster.ledger.session import Row
from stationmaster.ledger.tx import HotTx, Reader, Tx

_Q = queries.load("stationmaster.ledger")
_MOST_LAPSED = 50


@dataclass(frozen=True, slots=True)
class Lease:
    """One holding of (kind, key); `owner` is a worker id."""

    kind: str
    key: str
    lease_id: str
    owner: str
    incarnation: str
    term: int
    subject: str
    expires_at: int


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker's newest incarnation."""

    worker_id: str
    incarnation: str
    started_at: int
    seen_at: int


def acquire(
    tx: Tx, /, *, kind: str, key: str, owner: str, incarnation: str, subject: str, ttl_s: float
) -> Lease | None:
    """Takes the lease under a new term, or returns None while somebody holds it.

    Raises Stale (`worker_superseded`) when `owner` has a newer incarnation than the caller's.
    """
    _check_incarnation(tx, owner, incarnation)
    expires_at = tx.now + _micros(ttl_s)
    taken: dict[str, Any] = {
        "kind": kind,
        "key": key,
        "lease_id": ids.new("lease"),
        "owner": owner,
        "incarnation": incarnation,
        "subject": subject,
        "expires_at": expires_at,
    }
    row = tx.one(_Q.lease_locked, kind=kind, key=key)
    if row is None:
        if tx.run(_Q.lease_first, **taken) != 1:
            return None
        lease = Lease(**taken, term=1)
    else:
        if row["lease_id"] is not None:
            reason = _lapsed(tx, row)
            if reason is None:
                return None
            _tell(tx, "lease.expire", Lease(**row), reason=reason)
        if tx.run(_Q.lease_next, **taken, term=row["term"]) != 1:
            return None
        lease = Lease(**taken, term=row["term"] + 1)
    _tell(tx, "lease.acquire", lease, expires_at=expires_at)
    return lease


def heartbeat(hot: HotTx, lease: Lease, ttl_s: float) -> Lease:
    """Extends a lease that is still held; raises Stale (`lease_lost`) when it is not."""
    expires_at = hot.now + _micros(ttl_s)
    touched = hot.run(
        _Q.lease_heartbeat,
        kind=lease.kind,
        key=lease.key,
        lease_id=lease.lease_id,
        expires_at=expires_at,
        now=hot.now,
    )
    if touched != 1:
        raise _lost(lease)
    return replace(lease, expires_at=max(expires_at, lease.expires_at))


def release(tx: Tx, lease: Lease) -> bool:
    """Gives the lease back; returns False when it was already lost to somebody or released."""
    row = tx.one(_Q.lease_locked, kind=lease.kind, key=lease.key)
    if row is None or row["lease_id"] != lease.lease_id:
        return False
    tx.run(_Q.lease_free, kind=lease.kind, key=lease.key, lease_id=lease.lease_id)
    _tell(tx, "lease.release", lease)
    return True


def expire(tx: Tx, kind: str) -> list[Lease]:
    """Releases leases that are expired or of dead incarnations, at most 50; returns them."""
    gone: list[Lease] = []
    for found in tx.many(_Q.lease_lapsed, kind=kind, now=tx.now, limit=_MOST_LAPSED):
        row = tx.one(_Q.lease_locked, kind=kind, key=found["key"])
        if row is None or row["lease_id"] != found["lease_id"]:
            continue
        # A heartbeat may have come between the two reads on PostgreSQL.
        reason = _lapsed(tx, row)
        if reason is None:
            continue
        lease = Lease(**row)
        tx.run(_Q.lease_free, kind=kind, key=lease.key, lease_id=lease.lease_id)
        _tell(tx, "lease.expire", lease, reason=reason)
        gone.append(lease)
    return gone


def held(reader: Reader, lease: Lease) -> None:
    """Raises Stale (`lease_lost`) unless this very lease is current and not expired.

    Called just before every effect outside. Inside a command it also keeps the lease from changing hands until the
    commit, so what the command writes is fenced.
    """
    query = _Q.lease_locked if isinstance(reader, Tx) else _Q.lease_row
    row = reader.one(query, kind=lease.kind, key=lease.key)
    if row is None or row["lease_id"] != lease.lease_id or _lapsed(reader, row) is not None:
        raise _lost(lease)


def current(reader: Reader, kind: str, key: str) -> Lease | None:
    """Returns the lease that is held now, or None when it is absent, released or lapsed."""
    row = reader.one(_Q.lease_row, kind=kind, key=key)
    if row is None or row["lease_id"] is None or _lapsed(reader, row) is not None:
        return None
    return Lease(**row)


def term(reader: Reader, kind: str, key: str) -> int:
    """Returns the newest term of (kind, key); 0 before the first lease."""
    row = reader.one(_Q.lease_row, kind=kind, key=key)
    return 0 if row is None else int(row["term"])


def register_worker(hot: HotTx, worker_id: str, incarnation: str) -> None:
    """Makes `incarnation` the living one of `worker_id`: leases of its earlier ones are free at once.

    Call it under the home's file lock only; that lock is what proves the earlier process dead.
    """
    hot.run(_Q.register_worker, worker_id=worker_id, incarnation=incarnation, now=hot.now)


def seen_worker(hot: HotTx, worker_id: str, incarnation: str) -> None:
    """Says that the worker lives; raises Stale (`worker_superseded`) when a newer incarnation does."""
    if hot.run(_Q.seen_worker, worker_id=worker_id, incarnation=incarnation, now=hot.now) != 1:
        raise _superseded(worker_id)


def workers(reader: Reader) -> list[Worker]:
    """Returns every worker that ever registered."""
    return [Worker(**row) for row in reader.many(_Q.workers)]


def _check_incarnation(tx: Tx, owner: str, incarnation: str) -> None:
    row = tx.one(_Q.worker, worker_id=owner)
    if row is not None and row["incarnation"] != incarnation:
        raise _superseded(owner)


def _lapsed(reader: Reader, row: Row) -> str | None:
    if row["expires_at"] <= reader.now:
        return "expired"
    owner = reader.one(_Q.worker, worker_id=row["owner"])
    if owner is not None and owner["incarnation"] != row["incarnation"]:
        return "incarnation_dead"
    return None


def _tell(tx: Tx, action: str, lease: Lease, **data: Any) -> None:
    refs = {"lease": lease.lease_id, lease.kind: lease.key, "subject": lease.subject}
    tx.event(
        action,
        refs=refs,
        kind=lease.kind,
        key=lease.key,
        lease_id=lease.lease_id,
        owner=lease.owner,
        incarnation=lease.incarnation,
        term=lease.term,
        subject=lease.subject,
        **data,
    )


def _micros(ttl_s: float) -> int:
    if ttl_s <= 0:
        raise Bug(f"BUG: a lease of {ttl_s} s.")
    return int(ttl_s * MICROS)


def _lost(lease: Lease) -> Stale:
    return Stale(
        f"The lease of {lease.kind} {lease.key} under term {lease.term} is lost.",
        code="lease_lost",
        hint="Stop this run; whoever holds the lease now goes on.",
        term=lease.term,
    )


def _superseded(worker_id: str) -> Stale:
    return Stale(
        f"The worker {worker_id} runs as a newer process.",
        code="worker_superseded",
        hint="Stop this process; one process per home.",
    )
