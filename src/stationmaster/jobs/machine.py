"""The life of a run: one execution by an agent (a Codex turn is a run)."""

from __future__ import annotations

from stationmaster.machine import Machine

RUN = Machine(
    "run",
    (
        ("", "open", "started"),
        # The agent's own id of the turn is known only after it began.
        ("started", "bind", "started"),
        ("started", "complete", "completed"),
        ("started", "interrupt", "interrupted"),
        ("started", "fail", "failed"),
        ("started", "cancel", "cancelled"),
    ),
    terminal=frozenset({"completed", "interrupted", "failed", "cancelled"}),
    moved=frozenset({"external_id", "thread_id", "ended_at", "error_code"}),
)
