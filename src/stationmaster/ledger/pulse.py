"""How the ledger of this process is doing: what its commits took and held, and whether the last one was kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from stationmaster.errors import Unavailable
from stationmaster.measure import FAST, Spread

_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


class Pulse:
    """One for each open ledger. `writable` is False from a failed commit to the next one that is kept."""

    def __init__(self) -> None:
        self.commit_s = Spread(FAST)
        self.group = Spread(_SIZES)
        self.failed = 0
        self.writable = True

    def kept(self, commit: Callable[[], None], jobs: int) -> None:
        """Commits and notes how long that took and how many jobs shared it."""
        began = time.perf_counter()
        commit()
        self.commit_s.add(time.perf_counter() - began)
        self.group.add(jobs)
        self.writable = True

    def heed(self, errors: Iterable[BaseException | None]) -> None:
        """Notes whether one of these says that the store could not take a write, for want of space above all."""
        if any(isinstance(error, Unavailable) and error.code == "store_unavailable" for error in errors):
            self.broke()

    def broke(self) -> None:
        """Notes that a transaction could not be kept."""
        self.failed += 1
        self.writable = False
