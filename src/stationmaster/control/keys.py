"""The commands about operator keys; only the owner of the home gets them, never a network caller."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from stationmaster.clock import iso
from stationmaster.command import Cmd
from stationmaster.control import operators
from stationmaster.control.commands import Answer, Input, Nothing, Site, Text, command
from stationmaster.control.grants import Own

_PATH = "/api/stationmaster/operators"

Name = Annotated[Text, msgspec.Meta(description="The operator's name, as the audit will show it")]
Scope = Annotated[
    Literal["operate", "read"], msgspec.Meta(description="`operate` may change things, `read` may only look")
]


class Add(Input, frozen=True, kw_only=True):
    """A new key's name and reach."""

    name: Name
    scope: Scope = "operate"


class Named(Input, frozen=True, kw_only=True):
    """A key by its name."""

    name: Name


@command("operator.add", "POST", _PATH, cli="operator add")
async def add(site: Site, grant: Own, given: Add) -> Answer:
    """Makes an operator key and shows it this once."""
    key = operators.new_key()
    cmd = Cmd("operator.add", grant.principal.actor, "door", refs={"operator": given.name})
    key_id = await site.port.do(cmd, operators.add, given.name, given.scope, operators.key_hash(key))
    return Answer({"keyId": key_id, "name": given.name, "scope": given.scope, "key": key}, 201)


@command("operator.list", "GET", _PATH, cli="operator list")
async def every(site: Site, grant: Own, given: Nothing) -> Answer:
    """Lists every operator key that was ever made, without the keys themselves."""
    _ = grant, given
    rows = await site.port.read(operators.every)
    return Answer(
        {
            "operators": [
                {
                    "keyId": row["id"],
                    "name": row["name"],
                    "scope": row["scope"],
                    "state": row["state"],
                    "createdAt": iso(row["created_at"]),
                    "revokedAt": None if row["revoked_at"] is None else iso(row["revoked_at"]),
                }
                for row in rows
            ]
        }
    )


@command("operator.revoke", "POST", _PATH + "/{name}/revoke", cli="operator revoke")
async def revoke(site: Site, grant: Own, given: Named) -> Answer:
    """Revokes an operator key at once and for ever."""
    cmd = Cmd("operator.revoke", grant.principal.actor, "door", refs={"operator": given.name})
    key_id = await site.port.do(cmd, operators.revoke, given.name)
    return Answer({"keyId": key_id, "name": given.name, "state": "revoked"})
