"""Receipts: the stored answer of a command that carried a dedupe key, replayed to every repeat (K1).

A refusal that a client could see (Invalid, Denied, NotFound, Stale, Illegal) is remembered and replayed like a result;
Busy, Unavailable and Bug say nothing about the request itself, so the same request may be tried again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from stationmaster import canonical, redact
from stationmaster.command import Cmd
from stationmaster.errors import Bug, Busy, Denied, Illegal, Invalid, NotFound, Stale, StationmasterError
from stationmaster.ledger import queries
from stationmaster.ledger.session import Row, Session
from stationmaster.ledger.tx import Reader, Tx

REMEMBERED: tuple[type[StationmasterError], ...] = (Invalid, Denied, NotFound, Stale, Illegal)

_Q = queries.load("stationmaster.ledger")
_KINDS: dict[str, type[StationmasterError]] = {kind.kind: kind for kind in REMEMBERED}


@dataclass(frozen=True, slots=True)
class Receipt:
    """What is stored for one (command name, dedupe): `result` is JSON data, or the refusal as data."""

    name: str
    dedupe: str
    args_hash: str
    status: str
    result: Any
    command: int
    finished: int | None


class Replay(Exception):
    """Carries a stored answer out of the engine's way: there is nothing to roll back or to remember."""

    def __init__(self, value: Any, error: StationmasterError | None = None) -> None:
        super().__init__()
        self.value = value
        self.error = error


def args_hash(cmd: Cmd, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Returns the hash of a command's arguments in canonical form."""

    def foreign(value: Any) -> Any:
        if isinstance(value, set | frozenset):
            return sorted(value)
        if cmd.dedupe is not None:
            raise Bug(f"BUG: {cmd.name}: an argument of type {type(value).__name__} cannot be compared with a repeat.")
        return type(value).__name__

    return canonical.sha256(msgspec.json.encode((args, kwargs), enc_hook=foreign, order="sorted"))


def receipt(reader: Reader, name: str, dedupe: str) -> Receipt | None:
    """Returns the receipt of a command, or None."""
    row = reader.one(_Q.receipt, name=name, dedupe=dedupe)
    return None if row is None else _receipt(row)


def unfinished(reader: Reader, limit: int = 100) -> list[Receipt]:
    """Returns the oldest receipts whose command was accepted and not yet finished."""
    return [_receipt(row) for row in reader.many(_Q.pending_receipts, limit=limit)]


def pending(tx: Tx) -> None:
    """Marks this command as accepted only: its result is what a caller gets now, `finish` says how it ended.

    Until then a repeat is refused with `request_in_progress`.
    """
    if tx.cmd.dedupe is None:
        raise Bug(f"BUG: {tx.cmd.name} cannot stay pending without a dedupe key.")
    tx.receipt_status = "pending"


def finish(tx: Tx, name: str, dedupe: str, result: Any) -> None:
    """Stores how an accepted command ended; raises Stale when it is not pending."""
    _finish(tx, name, dedupe, "done", canonical.dump(result))


def refuse(tx: Tx, name: str, dedupe: str, error: StationmasterError) -> None:
    """Stores that an accepted command was refused in the end; raises Stale when it is not pending."""
    if not isinstance(error, REMEMBERED):
        raise Bug(f"BUG: a refusal of kind {error.kind} is not remembered.")
    _finish(tx, name, dedupe, "refused", _dump(error))


def recall(session: Session, cmd: Cmd, digest: str) -> None:
    """Raises Replay when this command was answered before; returns when it is new, and nobody else can answer it."""
    if cmd.dedupe is None:
        return
    session.lock(f"{cmd.name}\n{cmd.dedupe}")
    row = session.one(_Q.receipt, {"name": cmd.name, "dedupe": cmd.dedupe})
    if row is None:
        return
    if row["args_hash"] != digest:
        raise Replay(
            None,
            Stale(
                f"The request id was already used for another {cmd.name}.",
                code="request_id_conflict",
                hint="Use a new request id for a new request.",
                command=row["command"],
            ),
        )
    if row["status"] == "pending":
        raise Replay(
            None,
            Busy(
                f"The first {cmd.name} with this request id is still in progress.",
                code="request_in_progress",
                hint="Ask again later with the same request id.",
                command=row["command"],
            ),
        )
    stored = canonical.load(row["result"])
    raise Replay(None, _load(stored)) if row["status"] == "refused" else Replay(stored)


def store(tx: Tx, session: Session, digest: str, result: Any) -> Any:
    """Writes the receipt of a body that returned; returns the result as a repeat would see it."""
    text = canonical.dump(result)
    _store(tx, session, digest, tx.receipt_status, text)
    return canonical.load(text)


def store_refusal(tx: Tx, session: Session, digest: str, error: StationmasterError) -> None:
    """Writes the receipt of a body that was refused, as a command of its own, after the rollback."""
    tx.refusal(tx.cmd.name, error.code, kind=error.kind, message=error.message)
    _store(tx, session, digest, "refused", _dump(error))


def _store(tx: Tx, session: Session, digest: str, status: str, text: str) -> None:
    session.run(
        _Q.add_receipt,
        {
            "name": tx.cmd.name,
            "dedupe": tx.cmd.dedupe,
            "args_hash": digest,
            "status": status,
            "result": text,
            "command": tx.seq,
        },
    )


def _finish(tx: Tx, name: str, dedupe: str, status: str, text: str) -> None:
    touched = tx.run(_Q.finish_receipt, name=name, dedupe=dedupe, status=status, result=text, finished=tx.seq)
    if touched != 1:
        raise Stale(f"The {name} of this request id is not pending.", code="receipt_not_pending", dedupe=dedupe)


def _receipt(row: Row) -> Receipt:
    return Receipt(**{**row, "result": canonical.load(row["result"])})


def _dump(error: StationmasterError) -> str:
    return canonical.dump(
        {
            "kind": error.kind,
            "code": error.code,
            "message": redact.clean(error.message),
            "hint": redact.clean(error.hint),
            "ids": {key: redact.clean(str(value)) for key, value in error.ids.items()},
        }
    )


def _load(stored: Row) -> StationmasterError:
    return _KINDS[stored["kind"]](stored["message"], code=stored["code"], hint=stored["hint"], **stored["ids"])
