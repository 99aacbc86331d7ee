"""Puts the ledger's guards back after somebody changed them by hand; the history says who did it, why, and what it met.

An operator's own decision, never a start's: changed guards mean that somebody may have written past the program.
"""

from __future__ import annotations

from stationmaster.clock import SystemClock
from stationmaster.command import Cmd
from stationmaster.control import grants
from stationmaster.errors import NotFound
from stationmaster.ledger import checkup
from stationmaster.ledger.ledger import restore_guards
from stationmaster.ledger.tx import Tx
from stationmaster.ops import wiring
from stationmaster.ops.doctor import database
from stationmaster.ops.home import Home, locked
from stationmaster.ops.settings import Config

_MOST = 50


def restore(place: Home, config: Config, reason: str) -> list[str]:
    """Restores the guards of a ledger that no daemon holds; returns one sentence for each fault it had."""
    where = database.located(place, config)
    if where is None:
        raise NotFound("There is no database yet.", code="not_found", hint="The first start makes it, guards and all.")
    with locked(place, wait_s=wiring.LOCK_WAIT_S):
        with checkup.opened(where, wiring.SLICES, SystemClock()) as found:
            faults = found.faults()
        restore_guards(where, wiring.SLICES)
        with wiring.open_ledger(config, place, SystemClock()) as ledger:
            ledger.do(Cmd("guards.restore", grants.own().principal.actor, "door"), _told, reason, faults[:_MOST])
    return faults


def _told(tx: Tx, reason: str, faults: list[str]) -> None:
    tx.event("guards.restored", reason=reason, faults=faults)
