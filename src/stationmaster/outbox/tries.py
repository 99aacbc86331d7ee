"""The tries of a row, as the history tells them: each is an intent, and perhaps a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stationmaster.ledger import history
from stationmaster.ledger.history import Entry
from stationmaster.ledger.tx import Reader, Tx

REF = "outbox"
_PAGE = 500
# Ways in which a try ends of which it is certain that nothing reached the other side.
_NOTHING = frozenset({"not_sent", "failed"})


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt to send a row; `outcome` is None while nobody wrote one.

    Outcomes: done, failed (refused), not_sent, unknown, and absent for one that was proven not to have happened.
    """

    seq: int
    at: int
    outcome: str | None = None
    code: str | None = None

    @property
    def left(self) -> bool:
        """Tells whether it may have reached the other side."""
        return self.outcome not in _NOTHING

    @property
    def doubtful(self) -> bool:
        """Tells whether it may have had its effect."""
        return self.left and self.outcome != "absent"


def of(reader: Reader, action: str, key: str) -> list[Try]:
    """Returns the tries of a row, oldest first."""
    found: dict[int, Try] = {}
    for entry in _entries(reader, key):
        if entry.name == f"{action}.intent":
            found[entry.seq] = Try(entry.seq, entry.at)
        elif entry.name == f"{action}.result" and entry.intent in found:
            first = found[entry.intent]
            # After an unknown outcome the known one may follow; the later entry is the better knowledge.
            found[entry.intent] = Try(first.seq, first.at, entry.outcome, (entry.data or {}).get("code", first.code))
    return list(found.values())


def alone(tx: Tx, action: str, key: str) -> list[Try]:
    """Returns the tries of a row, which nobody else settles before this command has committed."""
    tx.alone(f"{action}\n{key}")
    return of(tx, action, key)


def settle(tx: Tx, known: list[Try], outcome: str, **data: Any) -> None:
    """Writes what a read-back told about the tries of which nobody knew the outcome (GW-R-189)."""
    for each in known:
        if each.outcome is None or (each.outcome == "unknown" and outcome != "unknown"):
            tx.result(each.seq, outcome, read_back=True, **data)


def _entries(reader: Reader, key: str) -> list[Entry]:
    entries: list[Entry] = []
    after = 0
    while True:
        page = history.by_ref(reader, REF, key, after=after, limit=_PAGE)
        entries += page
        if len(page) < _PAGE:
            return entries
        after = page[-1].seq
