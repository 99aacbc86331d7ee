"""What a write is (`Cmd`), who does it (`Principal`), and the flag that forbids effects inside one (K6)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from stationmaster.errors import Bug

P = ParamSpec("P")
R = TypeVar("R")

_here = threading.local()


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who may act: `system`, `admin:<name>`, `gitea:user:<login>`."""

    actor: str


SYSTEM = Principal("system")


@dataclass(frozen=True, slots=True)
class Cmd:
    """One write to the ledger: its name, who wants it, and why.

    `cause` names what made it happen (`delivery:<id>`, `request:<id>`, `run:<id>`, `tick:<loop>`). `dedupe` makes a
    repeat return the stored receipt. `refs` are correlation ids copied to the history (kind to value or values).
    """

    name: str
    actor: str
    cause: str
    dedupe: str | None = None
    refs: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)


class LedgerPort(Protocol):
    """The ledger as async code sees it; made in `control.dispatch`, handed down by `ops.wiring` (K12)."""

    async def do(self, cmd: Cmd, fn: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs one command and returns once it is durable."""
        ...

    async def hot(self, fn: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Writes hot tables only."""
        ...

    async def read(self, fn: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Reads a consistent view."""
        ...

    async def off(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs blocking work (git, files) on a thread that lives as long as the daemon."""
        ...


class inside_command:  # noqa: N801 - reads as a statement: `with inside_command():`
    """Marks this thread as running a command body; nesting is a Bug."""

    def __enter__(self) -> None:
        """Sets the flag."""
        if is_inside():
            raise Bug("BUG: a command was started inside a command.")
        _here.inside = True

    def __exit__(self, *_: object) -> None:
        """Clears the flag."""
        _here.inside = False


def is_inside() -> bool:
    """Tells whether this thread is running a command body."""
    return bool(getattr(_here, "inside", False))


def assert_outside(what: str) -> None:
    """Raises Bug when `what` (network, git, a process) is tried inside a command (K6)."""
    if is_inside():
        raise Bug(f"BUG: {what} inside a command.")
