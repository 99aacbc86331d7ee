"""The commands of upkeep: a copy of everything, and letting old payloads go. Only the owner of the home gets them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from stationmaster.command import Cmd
from stationmaster.control.commands import Answer, Input, Site, Text, command
from stationmaster.control.grants import Own
from stationmaster.errors import Unavailable
from stationmaster.ledger.tx import Tx

_PATH = "/api/stationmaster"


class Backup(Input, frozen=True, kw_only=True):
    """Where the backup goes."""

    path: Annotated[
        Text | None, msgspec.Meta(description="A new file or an existing folder, absolute; else <home>/backups")
    ] = None


class Retention(Input, frozen=True, kw_only=True):
    """Whether anything is let go."""

    dry_run: Annotated[bool, msgspec.Meta(description="Only tell what would be let go now")] = False


@command("backup.create", "POST", f"{_PATH}/backups", slow=True)
async def backup(site: Site, grant: Own, given: Backup) -> Answer:
    """Makes a copy of the ledger and of what it refers to on disk, while everything runs."""
    if site.backup is None:
        raise _nothing("backup")
    told = await site.backup(None if given.path is None else Path(given.path))
    await site.port.do(Cmd("backup.create", grant.principal.actor, "door"), _made, told)
    return Answer(told, 201)


@command("retention.run", "POST", f"{_PATH}/retention", cli="retention run", slow=True)
async def retention(site: Site, grant: Own, given: Retention) -> Answer:
    """Lets go of what is past its days now, as the daemon does by itself every hour."""
    if site.retain is None:
        raise _nothing("retention")
    _ = grant
    return Answer(await site.retain(given.dry_run))


def _made(tx: Tx, told: dict[str, Any]) -> None:
    tx.event("backup.created", file=told["file"], bytes=told["bytes"], last_seq=told["lastSeq"])


def _nothing(what: str) -> Unavailable:
    return Unavailable(f"There is nothing here that makes a {what}.", code="unavailable")
