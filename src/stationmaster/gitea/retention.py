"""Forgets deliveries that are past their time: what they were answered, never what they started (GW-R-027, K9)."""

from __future__ import annotations

from stationmaster.clock import MICROS
from stationmaster.command import Cmd, LedgerPort
from stationmaster.gitea import store
from stationmaster.inbox import actions as inbox
from stationmaster.ledger.tx import Tx

_DAY = 86_400 * MICROS


class Retention:
    """The duty; any number of processes may do it, for what is forgotten twice is forgotten."""

    def __init__(self, port: LedgerPort, *, delivery_days: float) -> None:
        self._port = port
        self._keep = int(delivery_days * _DAY)

    async def tick(self, now: int) -> int:
        """Forgets some; returns how many, so that the loop comes again while there are more."""
        _ = now
        if not await self._port.read(store.old_deliveries):
            return 0
        return await self._port.do(Cmd("retention.deliveries", "system", "tick:retention"), _forget, self._keep)


def _forget(tx: Tx, keep: int) -> int:
    gone = store.prune_deliveries(tx, limit=90)
    # The inbox holds one row beside each; both stay within the rows of one command.
    inbox.prune(tx, before=tx.now - keep, limit=90)
    return gone
