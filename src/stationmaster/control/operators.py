"""Operator keys: made once, shown once, kept as a hash, revoked for ever."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any

from stationmaster import ids
from stationmaster.control.machine import OPERATOR_KEY
from stationmaster.errors import Invalid, NotFound
from stationmaster.ledger import queries
from stationmaster.ledger.tx import Reader, Tx

Q = queries.load("stationmaster.control")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_PREFIX = "smk_"


def new_key() -> str:
    """Makes a key: 256 bits, so that its plain hash cannot be guessed back."""
    return _PREFIX + secrets.token_urlsafe(32)


def key_hash(key: str) -> str:
    """Returns what is stored of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def add(tx: Tx, name: str, scope: str, hashed: str) -> str:
    """Makes an active key called `name`; a name has one active key at a time."""
    if not _NAME.fullmatch(name):
        raise Invalid(
            "An operator's name is 1 to 40 letters, digits, dots, dashes or underscores.", code="invalid_operator"
        )
    if tx.one(Q.active_by_name, name=name):
        raise Invalid(
            f"There is an active key called {name}.",
            code="operator_exists",
            hint=f"Revoke it first: stationmaster operator revoke {name}",
        )
    made = ids.new("key")
    tx.born(OPERATOR_KEY, made, "add", name=name, scope=scope, key_hash=hashed, created_at=tx.now)
    return made


def revoke(tx: Tx, name: str) -> str:
    """Revokes the active key called `name`."""
    row = tx.one(Q.active_by_name, name=name)
    if row is None:
        raise NotFound(
            f"There is no active key called {name}.",
            code="operator_not_found",
            hint="`stationmaster operator list` shows the names.",
        )
    tx.move(OPERATOR_KEY, row["id"], "revoke", rev=row["rev"], revoked_at=tx.now)
    return str(row["id"])


def every(reader: Reader) -> list[dict[str, Any]]:
    """Returns every key that ever was, without its hash."""
    return reader.many(Q.all_keys)


def find(reader: Reader, key: str) -> dict[str, Any] | None:
    """Returns the active key that `key` is, or None."""
    return reader.one(Q.active_by_hash, key_hash=key_hash(key))
