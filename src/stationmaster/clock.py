"""The one clock (K11): integer microseconds since the Unix epoch, UTC, never running backwards within a process."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

MICROS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Tells the time; a lease, a deadline and a history row all read the same one."""

    def now(self) -> int:
        """Returns microseconds since the epoch."""
        ...


class SystemClock:
    """Wall time at start, advanced by the machine's steady clock.

    A host clock that jumps while we run moves no lease: only a restart reads the wall again, and then `not_before`
    (the newest time the ledger has seen) keeps time from going back.
    """

    def __init__(self, not_before: int = 0) -> None:
        self._wall = max(time.time_ns() // 1000, not_before)
        self._steady = _steady_micros()
        self._lock = threading.Lock()
        self._last = self._wall

    def now(self) -> int:
        """Returns microseconds since the epoch; two calls never give the same value."""
        reading = self._wall + _steady_micros() - self._steady
        with self._lock:
            self._last = max(reading, self._last + 1)
            return self._last

    def not_before(self, micros: int) -> None:
        """Moves the clock forward if it is behind `micros`: the ledger already holds that time."""
        with self._lock:
            behind = micros - self._last
            if behind > 0:
                self._wall += behind
                self._last = micros


class ManualClock:
    """A clock that a test moves by hand."""

    def __init__(self, start: int = 1_800_000_000 * MICROS) -> None:
        self._now = start

    def now(self) -> int:
        """Returns the time set, one microsecond later at each call so that no two moments are equal."""
        self._now += 1
        return self._now

    def advance(self, seconds: float) -> None:
        """Lets `seconds` pass."""
        self._now += int(seconds * MICROS)


def _steady_micros() -> int:
    # CLOCK_BOOTTIME also counts the time a machine was suspended; a lease must not survive a suspend.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def iso(micros: int) -> str:
    """Writes microseconds as ISO 8601 UTC with milliseconds and `Z`, the wire form (GW-R-024)."""
    moment = _EPOCH + timedelta(microseconds=micros)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_iso(text: str) -> int:
    """Reads ISO 8601 with a zone into microseconds; raises ValueError when it is not that."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        message = f"time without a zone: {text!r}"
        raise ValueError(message)
    return (moment - _EPOCH) // timedelta(microseconds=1)
