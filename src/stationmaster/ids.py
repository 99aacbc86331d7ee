"""The one id maker (K11): a prefix and a UUID version 7, so that ids sort by the time they were made."""

from __future__ import annotations

import os
import time
import uuid

_RANDOM_BITS_A = 0x0FFF
_VERSION_7 = 0x7000
_VARIANT = 0x8000


def uuid7() -> uuid.UUID:
    """Makes a UUID version 7 (RFC 9562): 48 bits of Unix milliseconds, the rest random."""
    millis = time.time_ns() // 1_000_000
    tail = bytearray(os.urandom(10))
    high = _VERSION_7 | (int.from_bytes(tail[:2]) & _RANDOM_BITS_A)
    low = _VARIANT | (int.from_bytes(tail[2:4]) & 0x3FFF)
    raw = millis.to_bytes(6) + high.to_bytes(2) + low.to_bytes(2) + bytes(tail[4:])
    return uuid.UUID(bytes=raw)


def new(prefix: str) -> str:
    """Makes an id such as `run_0199…`; the prefix names the kind of thing."""
    return f"{prefix}_{uuid7().hex}"
