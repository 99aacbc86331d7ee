"""Logins at the console: opened with an operator key, known by a random cookie, ended by logout, time or revocation."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from stationmaster.clock import MICROS
from stationmaster.command import Cmd, LedgerPort
from stationmaster.control import grants, operators
from stationmaster.control.grants import Read
from stationmaster.control.operators import Q
from stationmaster.errors import Denied
from stationmaster.ledger.tx import HotTx, Reader, Tx

# How often the last sight of a session is written down.
_SEEN_EVERY = 60 * MICROS


@dataclass(frozen=True, slots=True)
class Lasting:
    """How long a login lasts: without a request, and at most; seconds."""

    idle_s: float = 28_800.0
    max_s: float = 604_800.0


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who is logged in: what they may do, and the word that their forms must bring back."""

    id: str
    name: str
    grant: Read
    form_word: str


async def log_in(port: LedgerPort, key: str, lasting: Lasting) -> str:
    """Opens a session for an operator key and returns the cookie's value; raises Denied for a key that is none."""
    row = await port.read(operators.find, key.strip())
    if row is None:
        raise Denied("This operator key is not known or was revoked.", code="unauthenticated")
    cookie = secrets.token_urlsafe(32)
    cmd = Cmd("console.login", f"admin:{row['name']}", "console", refs={"operator": row["name"]})
    await port.do(cmd, _open, _hash(cookie), row["id"], lasting)
    return cookie


async def find(port: LedgerPort, cookie: str, lasting: Lasting) -> Session | None:
    """Returns the session of a cookie, or None when there is none or it is over."""
    if not cookie:
        return None
    found = await port.read(_find, _hash(cookie), lasting)
    if found is None:
        return None
    row, due = found
    if due:
        await port.hot(_seen, row["id"])
    word = hashlib.sha256(f"form\n{cookie}".encode()).hexdigest()
    return Session(row["id"], row["name"], grants.of_key(row["name"], row["scope"]), word)


async def log_out(port: LedgerPort, session: Session) -> None:
    """Ends a session."""
    cmd = Cmd("console.logout", session.grant.principal.actor, "console", refs={"operator": session.name})
    await port.do(cmd, _close, session.id)


def _hash(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()


def _open(tx: Tx, hashed: str, key_id: str, lasting: Lasting) -> None:
    tx.run(
        Q.close_old,
        opened_before=tx.now - int(lasting.max_s * MICROS),
        seen_before=tx.now - int(lasting.idle_s * MICROS),
    )
    tx.run(Q.open_session, id=hashed, key_id=key_id, at=tx.now)
    tx.event("console.login")


def _find(reader: Reader, hashed: str, lasting: Lasting) -> tuple[dict[str, str], bool] | None:
    row = reader.one(
        Q.session,
        id=hashed,
        opened_after=reader.now - int(lasting.max_s * MICROS),
        seen_after=reader.now - int(lasting.idle_s * MICROS),
    )
    return None if row is None else (row, reader.now - row["seen_at"] >= _SEEN_EVERY)


def _seen(hot: HotTx, hashed: str) -> None:
    hot.run(Q.seen, id=hashed, at=hot.now)


def _close(tx: Tx, hashed: str) -> None:
    tx.run(Q.close_session, id=hashed)
    tx.event("console.logout")
