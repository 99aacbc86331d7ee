"""A made-up slice for the tests of the kernel: parcels with a machine, hot notes beside them, and free labels."""

from __future__ import annotations

from stationmaster.ledger import queries
from stationmaster.ledger.slices import Slice
from stationmaster.machine import Machine

PARCEL = Machine(
    "parcel",
    (
        ("", "post", "posted"),
        ("posted", "collect", "travelling"),
        ("posted", "recall", "recalled"),
        ("travelling", "deliver", "delivered"),
        ("travelling", "lose", "posted"),
    ),
    terminal=frozenset({"recalled", "delivered"}),
    moved=frozenset({"carrier", "attempts", "berth"}),
)
SLICE = Slice("parcels", "tests.ledger.parcels", machines=(PARCEL,), hot=frozenset({"note"}))
Q = queries.load("tests.ledger.parcels")
