"""Where the time of a delivery goes: the ledger's port with a stopwatch at every hand-over.

Only a server that is asked for it runs with these stopwatches, and never the one whose speed is told.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from stationmaster.command import Cmd
from stationmaster.control import rest
from stationmaster.control.dispatch import Dispatch

P = ParamSpec("P")
R = TypeVar("R")
Handle = Callable[[rest.Delivery], Awaitable[rest.Reply]]

_now = time.perf_counter_ns


@dataclass(slots=True)
class Span:
    """The moments of one delivery, in nanoseconds."""

    entered: int
    asked: int = 0
    queued: int = 0
    began: int = 0
    ended: int = 0
    kept: int = 0
    back: int = 0
    left: int = 0


_here: ContextVar[Span] = ContextVar("span")


class Traced(Dispatch):
    """A port that notes when a command was asked for, began, ended, was durable and came back."""

    async def do(self, cmd: Cmd, fn: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs one command and returns once it is durable."""
        span = _here.get()

        def timed(tx: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
            span.began = _now()
            try:
                return fn(tx, *args, **kwargs)
            finally:
                span.ended = _now()

        def kept(_: Any) -> None:
            span.kept = _now()

        span.asked = _now()
        future = self.ledger.submit(cmd, timed, *args, **kwargs)
        span.queued = _now()
        future.add_done_callback(kept)
        result: R = await asyncio.wrap_future(future)
        span.back = _now()
        return result


@dataclass(slots=True)
class Trace:
    """The spans of one server; `shared` when several deliveries share a commit."""

    shared: bool
    spans: list[Span] = field(default_factory=list)

    def around(self, handle: Handle) -> Handle:
        """Returns the door with a stopwatch on either side."""

        async def handled(delivery: rest.Delivery) -> rest.Reply:
            span = Span(_now())
            _here.set(span)
            reply = await handle(delivery)
            span.left = _now()
            self.spans.append(span)
            return reply

        return handled

    def take(self) -> dict[str, float]:
        """Returns the mean microseconds of every part since the last time, and how many shared a commit."""
        spans, self.spans = [span for span in self.spans if span.kept], []
        if not spans:
            return {}
        groups = _groups(spans) if self.shared else [[span] for span in spans]
        commits = [(group, group[-1].ended, min(span.kept for span in group)) for group in groups]
        return {
            "inside": _mean([span.left - span.entered for span in spans]),
            "check": _mean([span.asked - span.entered for span in spans]),
            "hand_over": _mean([span.queued - span.asked for span in spans]),
            "wait": _mean([span.began - span.queued for span in spans]),
            "body": _mean([span.ended - span.began for span in spans]),
            "others": _mean([last - span.ended for group, last, _ in commits for span in group]),
            "commit": _mean([kept - last for group, last, kept in commits for _ in group]),
            "back": _mean([span.back - kept for group, _, kept in commits for span in group]),
            "answer": _mean([span.left - span.back for span in spans]),
            "group": round(statistics.fmean(map(len, groups)), 1),
        }


def _groups(spans: list[Span]) -> list[list[Span]]:
    """Puts together what one commit made durable: no body begins before the group before it was answered."""
    groups: list[list[Span]] = []
    durable = 0
    for span in sorted(spans, key=lambda span: span.began):
        if not groups or span.began > durable:
            groups.append([])
            durable = span.kept
        groups[-1].append(span)
        durable = min(durable, span.kept)
    return groups


def _mean(nanoseconds: list[int]) -> float:
    return round(statistics.fmean(nanoseconds) / 1000, 1)
