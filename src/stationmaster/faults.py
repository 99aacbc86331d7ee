"""Named places where a process may die; a test kills a real process at every one (K10).

`point` costs one dictionary look-up while nothing is armed. Only `ops` arms points, from the configuration it was
started with.
"""

from __future__ import annotations

import os
import signal
import threading

_armed: dict[str, int] = {}
_lock = threading.Lock()


def arm(name: str, *, nth: int = 1) -> None:
    """Makes the `nth` pass through `name` kill this process with SIGKILL."""
    with _lock:
        _armed[name] = nth


def disarm() -> None:
    """Forgets every armed point."""
    with _lock:
        _armed.clear()


def point(name: str) -> None:
    """Marks a place; dies there when it is armed."""
    if not _armed:
        return
    with _lock:
        left = _armed.get(name)
        if left is None:
            return
        _armed[name] = left - 1
        if left > 1:
            return
    os.kill(os.getpid(), signal.SIGKILL)
