"""What several tests need: waiting on a condition with a deadline, never on the clock alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
_PAUSE = 0.02


def eventually(probe: Callable[[], T], timeout: float = 20.0) -> T:
    """Returns the first truthy answer of `probe`; fails with its last answer when the deadline passes."""
    end = time.monotonic() + timeout
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout} s; last answer: {answer!r}")
        time.sleep(_PAUSE)


async def eventually_async(
    probe: Callable[[], Awaitable[T | None]],
    timeout: float = 20.0,  # noqa: ASYNC109 - one that cancelled the probe could not tell its last answer
) -> T:
    """Does the same for a coroutine function."""
    end = time.monotonic() + timeout
    while True:
        answer = await probe()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout} s; last answer: {answer!r}")
        await asyncio.sleep(_PAUSE)
