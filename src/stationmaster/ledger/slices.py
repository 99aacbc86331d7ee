"""A slice as the kernel sees it: a name, the package that holds its `schema.sql`, its machines and its hot tables."""

from __future__ import annotations

from dataclasses import dataclass, field

from stationmaster.machine import Machine


@dataclass(frozen=True, slots=True)
class Slice:
    """One part of the schema; `migrations/` stands beside the `schema.sql` of its package."""

    name: str
    package: str
    machines: tuple[Machine, ...] = ()
    hot: frozenset[str] = field(default_factory=frozenset)


KERNEL = Slice("ledger", "stationmaster.ledger", hot=frozenset({"worker", "lease"}))
