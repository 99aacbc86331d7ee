"""A run as the ledger holds it."""

from __future__ import annotations

from typing import Literal

import msgspec

State = Literal["started", "completed", "interrupted", "failed", "cancelled"]
End = Literal["complete", "interrupt", "fail", "cancel"]


class Run(msgspec.Struct, frozen=True):
    """One execution by an agent; `external_id` is the agent's own id of it, None until known (GW-R-148)."""

    id: str
    state: State
    rev: int
    agent: str
    subject: str
    worker_id: str
    external_id: str | None
    thread_id: str | None
    error_code: str | None
    started_at: int
    ended_at: int | None


class RunEvent(msgspec.Struct, frozen=True):
    """One thing an agent did; `body` is canonical JSON, redacted."""

    seq: int
    at: int
    kind: str
    body: str
