"""Whether this process takes webhooks durably, and what of the rest it still waits for, in fixed words for programs.

Ready is about deliveries alone: what is taken is kept and worked on later. Recovery, the isolation of agents and the
forge are told beside it, because a balancer must not turn deliveries away for their sake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from stationmaster.command import LedgerPort
from stationmaster.control import operators
from stationmaster.errors import StationmasterError


@dataclass(frozen=True, slots=True)
class Standing:
    """How far this process is.

    `recovery` is done once what an earlier process left was looked at; `isolation` says whether agents may run here,
    and `runs_refused` why not; `forge` whether every forge has told who the bot is, and `silent` which of several have
    not. `none` means that there is no forge to work for. `writable` is False after a write that the store could
    not keep.
    """

    writable: bool = True
    recovery: Literal["pending", "done", "none"] = "none"
    isolation: Literal["pending", "proven", "refused", "none"] = "none"
    forge: Literal["pending", "reached", "none"] = "none"
    runs_refused: str | None = None
    silent: tuple[str, ...] = ()


async def told(port: LedgerPort, *, stopping: bool, standing: Callable[[], Standing]) -> tuple[dict[str, Any], int]:
    """Returns the answer of `/readyz` and its status."""
    now = standing()
    ledger = await _ledger(port, writable=now.writable)
    ready = ledger == "ok" and not stopping
    parts = {"ledger": ledger, "recovery": now.recovery, "isolation": now.isolation, "forge": now.forge}
    body: dict[str, Any] = {
        "status": "stopping" if stopping else "ready" if ready else "not_ready",
        "ready": ready,
        **parts,
        "waitsFor": [name for name, state in parts.items() if state not in {"ok", "done", "proven", "reached", "none"}],
    }
    if now.runs_refused is not None:
        body["runsRefused"] = now.runs_refused
    if now.silent:
        body["silentForges"] = list(now.silent)
    return body, 200 if ready else 503


async def _ledger(port: LedgerPort, *, writable: bool) -> Literal["ok", "unreadable", "unwritable"]:
    try:
        await port.read(operators.every)
    except StationmasterError:
        return "unreadable"
    return "ok" if writable else "unwritable"
