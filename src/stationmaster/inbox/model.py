"""What the inbox remembers of one outside event."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Taken:
    """One event: `payload_hash` tells a true repeat from another payload under a known id."""

    source: str
    event_id: str
    payload_hash: str
    disposition: str
    received_at: int
    command: int
