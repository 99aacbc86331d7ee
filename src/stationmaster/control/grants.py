"""The only maker of grants: values without which a handler cannot be called, so that authority is in its signature.

A grant says who acts. It is made from proof of identity (a peer on the control socket, an operator key), never from
anything a caller says about itself (GW-R-223).
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from stationmaster.command import Principal
from stationmaster.errors import Bug, Denied

_MINT = object()


@dataclass(frozen=True, slots=True)
class Read:
    """May look at tasks, the overview and the audit."""

    principal: Principal
    mint: object

    def __post_init__(self) -> None:
        """Refuses a grant that somebody made up."""
        if self.mint is not _MINT:
            raise Bug("BUG: a grant was made outside control.grants.")


@dataclass(frozen=True, slots=True)
class Operate(Read):
    """May also pause, resume, disable, enable, cancel, abort and unblock."""


@dataclass(frozen=True, slots=True)
class Own(Operate):
    """The user whose daemon this is: may also make and revoke operator keys. Never given to a network caller."""


def own() -> Own:
    """Grants everything to the user who runs this process: whoever can open the home owns it."""
    return Own(Principal(f"admin:{_unix_name(os.geteuid())}"), _MINT)


def of_peer(uid: int) -> Own:
    """Grants everything to the peer of the control socket when it is the daemon's own user."""
    if uid != os.geteuid():
        raise Denied(
            "Only the user that runs Stationmaster may use the control socket.",
            code="forbidden",
            hint="Use an operator key over HTTP instead.",
        )
    return Own(Principal(f"admin:{_unix_name(uid)}"), _MINT)


def of_key(name: str, scope: str) -> Read:
    """Grants what an active operator key stands for; the key itself was checked by `operators`."""
    made = {"read": Read, "operate": Operate}[scope]
    return made(Principal(f"admin:{name}"), _MINT)


def need(grant: Read | None, wanted: type[Read]) -> Read:
    """Returns the grant when it is enough; raises Denied otherwise."""
    if grant is None:
        raise Denied(
            "Log in with an operator key.",
            code="unauthenticated",
            hint="Send `Authorization: Bearer <key>`; `stationmaster operator add NAME` makes one.",
        )
    if not isinstance(grant, wanted):
        raise Denied(f"{grant.principal.actor} may not do this.", code="forbidden", hint="Use a key made to operate.")
    return grant


def _unix_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
