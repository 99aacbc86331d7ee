"""Counts and times that live in this process only: cheap to add to from any thread, read by whoever shows them.

Nothing here is the truth about anything: a new process begins at zero (K4 and the ledger keep what must last).
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass

# Upper ends in seconds. An agent may work for an hour, a commit takes a third of a millisecond.
FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
REQUEST = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
WORK = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a spread held at one moment: `counts[n]` values at most `bounds[n]`, one more count for what is above."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Spread:
    """How a value is spread over fixed ranges; each range includes its upper end."""

    __slots__ = ("_counts", "_lock", "_total", "bounds")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self._lock = threading.Lock()

    def add(self, value: float) -> None:
        """Counts one value."""
        at = bisect_left(self.bounds, value)
        with self._lock:
            self._counts[at] += 1
            self._total += value

    def taken(self) -> Taken:
        """Returns what was counted so far, all of one moment."""
        with self._lock:
            return Taken(self.bounds, tuple(self._counts), self._total)


class Tally:
    """How often something happened, by a few labels; whoever adds sees to it that they are few."""

    __slots__ = ("_counts", "_lock")

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], float] = {}
        self._lock = threading.Lock()

    def add(self, *labels: str, by: float = 1) -> None:
        """Counts one more, or `by` more."""
        with self._lock:
            self._counts[labels] = self._counts.get(labels, 0) + by

    def taken(self) -> dict[tuple[str, ...], float]:
        """Returns what was counted so far, by labels."""
        with self._lock:
            return dict(self._counts)
