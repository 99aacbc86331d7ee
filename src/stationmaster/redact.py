"""The one redactor (K11): secrets are references until the moment of use, and never reach a log, event or reply."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

MASK = "[redacted]"
_SHORTEST = 6

_known: set[str] = set()
_lock = threading.Lock()
_pattern: re.Pattern[str] | None = None


def register(value: str) -> None:
    """Makes `value` unprintable from now on; values under 6 characters would mask ordinary words and are skipped."""
    global _pattern  # noqa: PLW0603 - one compiled pattern for the whole process
    if len(value) < _SHORTEST:
        return
    with _lock:
        if value in _known:
            return
        _known.add(value)
        longest_first = sorted(_known, key=len, reverse=True)
        _pattern = re.compile("|".join(re.escape(secret) for secret in longest_first))


def clean(text: str) -> str:
    """Returns `text` with every known secret masked."""
    pattern = _pattern
    return text if pattern is None else pattern.sub(MASK, text)


class Secret:
    """A reference to a secret (`env:NAME`, `file:/path`); the value is read only where it is used (GW-R-239)."""

    __slots__ = ("_read", "ref")

    def __init__(self, ref: str, read: Callable[[], str]) -> None:
        self.ref = ref
        self._read = read

    def reveal(self) -> str:
        """Reads the value and registers it with the redactor; raises what the reader raises."""
        value = self._read()
        register(value)
        return value

    def __repr__(self) -> str:
        """Shows the reference, never the value."""
        return f"Secret({self.ref!r})"
