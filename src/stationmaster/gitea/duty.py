"""A periodic duty that one process at a time has, under a lease of its own (K5)."""

from __future__ import annotations

import time

from stationmaster.command import Cmd, LedgerPort
from stationmaster.errors import Stale
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.tx import Tx

LEASE_KIND = "duty"


class Duty:
    """The lease of one duty as one process sees it: `lease` is None while somebody else has it, or nobody."""

    def __init__(self, port: LedgerPort, key: str, *, owner: str, incarnation: str, ttl_s: float) -> None:
        self.lease: Lease | None = None
        self._port = port
        self._key = key
        self._owner = owner
        self._incarnation = incarnation
        self._ttl_s = ttl_s
        self._beaten_at = 0.0

    async def on(self) -> bool:
        """Keeps the lease, or takes it when it is free; False while another process has it."""
        try:
            await self._beat()
        except Stale:
            self.lease = None
        if self.lease is None:
            self.lease = await self._port.do(self._cmd("take"), self._taken)
            self._beaten_at = time.monotonic()
        return self.lease is not None

    async def keep(self) -> None:
        """Keeps a lease that is held from expiring, as often as needed; raises Stale when it is lost."""
        if time.monotonic() - self._beaten_at > self._ttl_s / 4:
            await self._beat()

    async def _beat(self) -> None:
        if self.lease is not None:
            self.lease = await self._port.hot(leases.heartbeat, self.lease, self._ttl_s)
            self._beaten_at = time.monotonic()

    async def leave(self) -> None:
        """Gives the duty to whoever wants it."""
        lease, self.lease = self.lease, None
        if lease is not None:
            await self._port.do(self._cmd("leave"), _given_back, lease)

    def _taken(self, tx: Tx) -> Lease | None:
        return leases.acquire(
            tx,
            kind=LEASE_KIND,
            key=self._key,
            owner=self._owner,
            incarnation=self._incarnation,
            subject=self._owner,
            ttl_s=self._ttl_s,
        )

    def _cmd(self, verb: str) -> Cmd:
        return Cmd(f"duty.{verb}", "system", f"worker:{self._owner}")


def _given_back(tx: Tx, lease: Lease) -> None:
    leases.release(tx, lease)
