"""What the sender asks of a channel, and what a channel answers; a channel owns its table, its states and its proof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from stationmaster.command import Cmd
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.tx import Reader, Tx
from stationmaster.outbox.tries import Try

State = Literal["pending", "sent", "confirmed", "failed"]


class Row(Protocol):
    """A row to be sent; `term` is set when only the holder of that term may send it."""

    @property
    def id(self) -> str:
        """The key."""
        ...

    @property
    def state(self) -> State:
        """Where it is in its life."""
        ...

    @property
    def rev(self) -> int:
        """Its revision."""
        ...

    @property
    def term(self) -> int | None:
        """The term it was written under, or None when anybody may send it."""
        ...


class Holder(Protocol):
    """Somebody who holds the lease under which a row is sent."""

    @property
    def lease(self) -> Lease:
        """The lease."""
        ...

    async def check(self) -> None:
        """Raises Stale unless the lease is still held."""
        ...


@dataclass(frozen=True, slots=True)
class Done:
    """The other side says that it did it, and under which id; only a read-back proves it."""

    native: Any


@dataclass(frozen=True, slots=True)
class Refused:
    """The other side definitely did not do it."""

    code: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may or may not have happened; with `sent` False it did not."""

    code: str
    sent: bool = True


Outcome = Done | Refused | Unknown


@dataclass(frozen=True, slots=True)
class Found:
    """It is there, under this id; `also` are further ones that carry the same identity."""

    native: Any
    also: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Absent:
    """A complete read did not show it."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """No complete read was possible."""

    code: str


Seen = Found | Absent | Unreadable

R = TypeVar("R", bound=Row)


class Channel(Protocol[R]):
    """One kind of effect: where its rows are, how it is sent, and how it is known again.

    `action` names its events, such as `<action>.intent`; `settle_s` bounds the reads after a send.
    """

    @property
    def action(self) -> str:
        """The name of the effect."""
        ...

    @property
    def settle_s(self) -> float:
        """How long an effect may take to be seen."""
        ...

    @property
    def lost(self) -> str:
        """The code of what was accepted and is not there."""
        ...

    def load(self, reader: Reader, key: str) -> R:
        """Returns a row that is known to exist."""
        ...

    def command(self, row: R, name: str) -> Cmd:
        """Makes a command about a row, with its correlation ids."""
        ...

    def lease_of(self, row: R) -> tuple[str, str]:
        """Returns kind and key of the lease whose term a row may carry."""
        ...

    def barred(self, row: R) -> str | None:
        """Returns the code of why a row must not be sent any more, or None."""
        ...

    def again(self, row: R, tries: list[Try]) -> bool:
        """Tells whether a row that is proven absent may be sent once more; `tries` are those that left us."""
        ...

    def keeps(self, row: R) -> bool:
        """Tells whether a row that is absent and not sent again stays as it is, because its owner decides about it."""
        ...

    def grace_s(self, code: str | None) -> float:
        """Returns how long after a try nothing proves absence: the effect may still come. None: no answer is known."""
        ...

    def deliver(self, tx: Tx, row: R, native: Any) -> None:
        """Moves a pending row to `sent`."""
        ...

    def confirm(self, tx: Tx, row: R, found: Found) -> None:
        """Moves a row to `confirmed`, and notes what else carries its identity."""
        ...

    def fail(self, tx: Tx, row: R, code: str) -> None:
        """Moves a row to `failed`."""
        ...

    async def send(self, row: R) -> Outcome:
        """Makes one attempt and never raises for what the other side does."""
        ...

    async def read_back(self, row: R) -> Seen:
        """Looks once, by identity and never by content; never raises for what the other side does."""
        ...
