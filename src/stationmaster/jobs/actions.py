"""Opens, binds and ends runs, and keeps what happened in them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stationmaster.jobs.machine import RUN
from stationmaster.jobs.model import End, Run, RunEvent
from stationmaster.ledger import queries
from stationmaster.ledger.slices import Slice
from stationmaster.ledger.tx import HotTx, Reader, Tx

SLICE = Slice("jobs", "stationmaster.jobs", machines=(RUN,), hot=frozenset({"run_event"}))

Q = queries.load("stationmaster.jobs")


def open_run(tx: Tx, run_id: str, *, agent: str, subject: str, worker_id: str) -> None:
    """Makes a run before the agent is asked for anything."""
    tx.born(RUN, run_id, "open", agent=agent, subject=subject, worker_id=worker_id, started_at=tx.now)


def bind(tx: Tx, run: Run, *, external_id: str, thread_id: str) -> None:
    """Stores the agent's own id of the turn."""
    tx.move(RUN, run.id, "bind", rev=run.rev, external_id=external_id, thread_id=thread_id)


def end(tx: Tx, run_id: str, verb: End, *, error_code: str | None = None) -> bool:
    """Ends a run; returns False when it had ended before."""
    run = find(tx, run_id)
    if run is None or run.state != "started":
        return False
    tx.move(RUN, run.id, verb, rev=run.rev, ended_at=tx.now, error_code=error_code)
    return True


def append(hot: HotTx, run_id: str, events: Sequence[RunEvent]) -> None:
    """Keeps a chunk of what happened; a repeat of a sequence number changes nothing (GW-R-149)."""
    for event in events:
        hot.run(Q.add_event, run_id=run_id, seq=event.seq, at=event.at, kind=event.kind, body=event.body)


def find(reader: Reader, run_id: str) -> Run | None:
    """Returns a run, or None."""
    row = reader.one(Q.by_id, id=run_id)
    return None if row is None else msgspec.convert(row, Run)


def of_subject(reader: Reader, subject: str) -> list[Run]:
    """Returns every run of a subject, oldest first."""
    return [msgspec.convert(row, Run) for row in reader.many(Q.of_subject, subject=subject)]


def open_of_worker(reader: Reader, worker_id: str) -> list[Run]:
    """Returns the runs of a worker that have not ended."""
    return [msgspec.convert(row, Run) for row in reader.many(Q.open_of_worker, worker_id=worker_id)]


def events(reader: Reader, run_id: str, *, after: int = 0, limit: int = 200) -> list[RunEvent]:
    """Returns what happened in a run after a sequence number."""
    rows = reader.many(Q.events, run_id=run_id, after=after, limit=limit)
    return [msgspec.convert(row, RunEvent) for row in rows]


def last_event(reader: Reader, run_id: str) -> int:
    """Returns the highest sequence number kept (`eventSeq` of GW-R-040)."""
    row = reader.one(Q.last_event, run_id=run_id)
    return 0 if row is None else int(row["seq"])


def kept_events(reader: Reader, run_id: str) -> int:
    """Returns how many events of a run are kept."""
    row = reader.one(Q.count_events, run_id=run_id)
    return 0 if row is None else int(row["n"])


def drop_events(tx: Tx, run_id: str, *, limit: int) -> int:
    """Lets go of the first events of a run that is over; returns how many."""
    return tx.run(Q.drop_events, run_id=run_id, limit=limit)
