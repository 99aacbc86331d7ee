"""The life of an operator key."""

from __future__ import annotations

from stationmaster.machine import Machine

OPERATOR_KEY = Machine(
    "operator_key",
    (("", "add", "active"), ("active", "revoke", "revoked")),
    terminal=frozenset({"revoked"}),
    moved=frozenset({"revoked_at"}),
)
