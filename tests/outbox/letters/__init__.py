"""A made-up channel for the tests of the sender: letters in a real ledger, and a moody post office."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from stationmaster.command import Cmd
from stationmaster.ledger import queries
from stationmaster.ledger.slices import Slice
from stationmaster.ledger.tx import Reader, Tx
from stationmaster.machine import Machine
from stationmaster.outbox.channel import Absent, Done, Found, Outcome, Seen, State
from stationmaster.outbox.tries import Try

LETTER = Machine(
    "letter",
    (
        ("", "intend", "pending"),
        ("pending", "deliver", "sent"),
        ("pending", "confirm", "confirmed"),
        ("sent", "confirm", "confirmed"),
        ("pending", "fail", "failed"),
        ("sent", "fail", "failed"),
    ),
    terminal=frozenset({"confirmed", "failed"}),
    moved=frozenset({"native_id", "error_code"}),
)
SLICE = Slice("letters", "tests.outbox.letters", machines=(LETTER,))
Q = queries.load("tests.outbox.letters")

LEASE = ("round", "north")
SETTLE_S = 0.05
GRACE_S = 20.0


@dataclass(frozen=True)
class Letter:
    """One letter."""

    id: str
    state: State
    rev: int
    term: int | None
    native_id: int | None
    error_code: str | None


def write(tx: Tx, key: str, term: int | None = None) -> None:
    """Makes a letter that is to be sent."""
    tx.born(LETTER, key, "intend", term=term)


@dataclass
class Office:
    """The other side: what arrived, under which number; `during` happens while a letter is on its way."""

    arrived: list[str] = field(default_factory=list)
    answer: Callable[[int], Outcome] = Done
    takes: bool = True
    sight: Seen | None = None
    during: Callable[[], Awaitable[None]] | None = None
    sends: int = 0
    reads: int = 0

    async def take(self, key: str) -> Outcome:
        self.sends += 1
        if self.during is not None:
            await self.during()
        if self.takes:
            self.arrived.append(key)
        await asyncio.sleep(0)
        return self.answer(len(self.arrived))

    async def look(self, key: str) -> Seen:
        self.reads += 1
        if self.sight is not None:
            return self.sight
        found = [number for number, each in enumerate(self.arrived, 1) if each == key]
        return Found(found[0], tuple(found[1:])) if found else Absent()


@dataclass
class Letters:
    """The channel."""

    office: Office
    bar: str | None = None
    mine: bool = False
    most: int = 2
    action: str = "letter"
    lost: str = "lost_in_the_post"
    settle_s: float = SETTLE_S

    def load(self, reader: Reader, key: str) -> Letter:
        row = reader.one(Q.letter, id=key)
        assert row is not None
        return Letter(**row)

    def command(self, row: Letter, name: str) -> Cmd:
        return Cmd(name, "system", "test:letter", refs={"letter": row.id})

    def lease_of(self, row: Letter) -> tuple[str, str]:
        return LEASE

    def barred(self, row: Letter) -> str | None:
        return self.bar

    def again(self, row: Letter, tries: list[Try]) -> bool:
        return len(tries) < self.most

    def keeps(self, row: Letter) -> bool:
        return self.mine

    def grace_s(self, code: str | None) -> float:
        return 0.0 if code == "answered" else GRACE_S

    def deliver(self, tx: Tx, row: Letter, native: Any) -> None:
        tx.move(LETTER, row.id, "deliver", rev=row.rev, native_id=native)

    def confirm(self, tx: Tx, row: Letter, found: Found) -> None:
        tx.move(LETTER, row.id, "confirm", rev=row.rev, native_id=found.native)
        for native in found.also:
            tx.event("letter.doubled", native=native)

    def fail(self, tx: Tx, row: Letter, code: str) -> None:
        tx.move(LETTER, row.id, "fail", rev=row.rev, error_code=code)

    async def send(self, row: Letter) -> Outcome:
        return await self.office.take(row.id)

    async def read_back(self, row: Letter) -> Seen:
        return await self.office.look(row.id)
