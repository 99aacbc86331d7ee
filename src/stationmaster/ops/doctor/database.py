"""Checks of the ledger: that it opens, is whole and guarded as the code wants it, and what in it waits for people."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stationmaster.clock import MICROS, SystemClock
from stationmaster.ledger import checkup, queries
from stationmaster.ledger.checkup import Checkup
from stationmaster.ledger.ledger import PostgresSettings
from stationmaster.ledger.tx import Reader
from stationmaster.ops import wiring
from stationmaster.ops.doctor.report import Finding, fail, ok, warn
from stationmaster.ops.home import Home
from stationmaster.ops.settings import Config

_Q = queries.load("stationmaster.ops.doctor", "waiting.sql")
_MOST = 10
_LATE = 600 * MICROS
_LATELY = 86_400 * MICROS
_AHEAD = 30 * MICROS
_MOST_REPOSITORIES = 20


@dataclass(frozen=True, slots=True)
class Known:
    """A repository that the ledger knows."""

    state: str
    owner: str
    name: str
    native_id: int
    instance_id: str = "default"


def located(place: Home, config: Config) -> Path | PostgresSettings | None:
    """Returns where the ledger is; None when there is none yet."""
    if config.database.url is not None:
        return PostgresSettings(config.database.url.reveal())
    return place.database if place.database.exists() else None


def opens(place: Home, config: Config) -> Iterator[Finding]:
    """Tells whether the database opens and has the schema of this program."""
    database = located(place, config)
    if database is None:
        yield ok("database", "There is no database yet; the first start makes it.")
        return
    with _opened(database) as found:
        if not found.installed():
            yield warn("database", "The database is empty.", "Start Stationmaster once: it puts its tables there.")
            return
        versions = found.versions()
        newest = int(found.read(_newest))
    newer = [name for name, (have, want) in versions.items() if have > want]
    older = [name for name, (have, want) in versions.items() if have < want]
    if newer:
        yield fail(
            "database",
            f"The database is newer than this program ({', '.join(newer)}).",
            "Run the newer program, or restore a backup that this one made.",
        )
    elif older:
        yield warn(
            "database", f"The database is older than this program ({', '.join(older)}).", "The next start migrates it."
        )
    else:
        yield ok("database", "It opens, and its schema is this program's.")
    ahead = newest - time.time_ns() // 1000
    if ahead > _AHEAD:
        yield warn(
            "database clock",
            f"The newest record is {ahead // MICROS} s ahead of this machine's clock.",
            "Set the clock right; until then time stands still in the ledger.",
        )


def guards(place: Home, config: Config) -> Iterator[Finding]:
    """Tells whether edges, guards and tables are as the code wants them."""
    database = located(place, config)
    if database is None:
        return
    with _opened(database) as found:
        if not found.installed() or any(have != want for have, want in found.versions().values()):
            return
        faults, owner = found.faults(), found.owner()
    advice = (
        "Somebody changed the database past the program: compare it with a backup;"
        " `stationmaster restore-guards` puts guards back."
    )
    for sentence in faults[:_MOST]:
        yield fail("guards", sentence, advice)
    if len(faults) > _MOST:
        yield fail("guards", f"{len(faults) - _MOST} more of the kind were found.", advice)
    if owner is not None:
        yield warn(
            "guards",
            f"The role {owner} owns the tables that it writes, and could switch the guards off.",
            "Let another role own them, and give this one its rights only.",
        )
    if not faults:
        yield ok("guards", "Tables, moves and guards are those of this program.")


def integrity(place: Home, config: Config) -> Iterator[Finding]:
    """Tells whether the database file is whole."""
    database = located(place, config)
    if not isinstance(database, Path):
        return
    with _opened(database) as found:
        damage = found.damage()
    if damage:
        yield fail(
            "integrity",
            f"SQLite finds the file damaged: {damage[0][:200]}.",
            "Stop Stationmaster, keep the file aside and restore a backup; look at the disk.",
        )
    else:
        yield ok("integrity", "SQLite finds the file whole.")


def waiting(place: Home, config: Config) -> Iterator[Finding]:
    """Tells what an operator should look at."""
    database = located(place, config)
    if database is None:
        return
    with _opened(database) as found:
        if not _readable(found):
            return
        yield from found.read(_waiting)


def repositories(place: Home, config: Config) -> list[Known]:
    """Returns the repositories that were seen last; none when the ledger cannot tell."""
    database = located(place, config)
    if database is None:
        return []
    with _opened(database) as found:
        return found.read(_repositories) if _readable(found) else []


def readings(place: Home, config: Config) -> list[dict[str, Any]]:
    """Returns how each forge is read for what no webhook brought; nothing when the ledger cannot tell."""
    database = located(place, config)
    if database is None:
        return []
    with _opened(database) as found:
        return found.read(_readings) if _readable(found) else []


def _opened(database: Path | PostgresSettings) -> AbstractContextManager[Checkup]:
    return checkup.opened(database, wiring.SLICES, SystemClock())


def _readable(found: Checkup) -> bool:
    return found.installed() and all(have > 0 for have, _ in found.versions().values())


def _newest(reader: Reader) -> int:
    return int(_one(reader.one(_Q.newest))["at"])


def _repositories(reader: Reader) -> list[Known]:
    return [Known(**row) for row in reader.many(_Q.repositories, limit=_MOST_REPOSITORIES)]


def _readings(reader: Reader) -> list[dict[str, Any]]:
    return [{**row, "now": reader.now} for row in reader.many(_Q.readings)]


def _waiting(reader: Reader) -> list[Finding]:
    before, since = reader.now - _LATE, reader.now - _LATELY
    tasks = {row["state"]: row for row in reader.many(_Q.tasks)}
    leases = _one(reader.one(_Q.leases, now=reader.now))
    intents = _one(reader.one(_Q.intents, before=before))
    found = [*_stopped(reader), *_tasks(tasks, before), *_unfinished(reader, before, since)]
    if leases["lapsed"]:
        found.append(
            warn(
                "leases",
                f"{leases['lapsed']} of {leases['held']} leases are past their end.",
                "A running daemon takes them over within a minute; start it if none runs.",
            )
        )
    if intents["late"]:
        found.append(
            warn(
                "intents",
                f"{intents['late']} effects began more than {_LATE // MICROS // 60} minutes ago and have no result.",
                "The next start reads them back; `stationmaster audit` shows whose they are.",
            )
        )
    if not found:
        asked = tasks.get("waiting_user", {"tasks": 0})["tasks"]
        found.append(
            ok(
                "waiting",
                f"Nothing waits for an operator: {leases['held']} leases held, {intents['intents']} effects under way,"
                f" {asked} tasks wait for an answer in their thread.",
            )
        )
    return found


def _stopped(reader: Reader) -> Iterator[Finding]:
    paused = reader.one(_Q.paused)
    if paused is not None:
        yield warn(
            "waiting",
            f"Work is paused by {paused['updated_by']}.",
            "`stationmaster resume` goes on when you are ready.",
        )
    blocked = [row["repo_key"] for row in reader.many(_Q.blocked_repositories)]
    if blocked:
        yield warn(
            "repositories",
            f"{len(blocked)} repositories are blocked, such as {blocked[0]}.",
            "`stationmaster repo list` shows them; put their bare repository in order, then unblock their tasks.",
        )


def _tasks(tasks: dict[str, dict[str, Any]], before: int) -> Iterator[Finding]:
    blocked = tasks.get("blocked_workspace")
    if blocked is not None:
        yield warn(
            "tasks",
            f"{blocked['tasks']} tasks are blocked by their workspace.",
            "`stationmaster task list --state blocked_workspace`, look at each with `task show`, then `task unblock`.",
        )
    aborting = tasks.get("aborting")
    if aborting is not None and aborting["oldest"] <= before:
        yield warn(
            "tasks",
            f"{aborting['tasks']} tasks are being aborted and do not end.",
            "Restart the daemon: it ends what is left of their agents.",
        )


def _unfinished(reader: Reader, before: int, since: int) -> Iterator[Finding]:
    comments = _one(reader.one(_Q.comments, before=before))["comments"]
    if comments:
        yield warn(
            "comments",
            f"{comments} comments are older than {_LATE // MICROS // 60} minutes and not proven.",
            "See below whether the forge answers; the relay of a running daemon reads them back.",
        )
    receipts = _one(reader.one(_Q.receipts, before=before))["receipts"]
    if receipts:
        yield warn(
            "requests", f"{receipts} requests of operators are accepted and not finished.", "Start the daemon: it does."
        )
    unknown = {row["action"]: row["effects"] for row in reader.many(_Q.unknowns, since=since)}
    if unknown:
        yield warn(
            "outcomes",
            f"The outcome of {sum(unknown.values())} effects of the last day stayed unknown: {', '.join(unknown)}.",
            f"`stationmaster audit --action {next(iter(unknown))}` shows them; compare with the forge.",
        )
    alerts = {row["action"]: row["alerts"] for row in reader.many(_Q.alerts, since=since)}
    if alerts:
        yield warn(
            "alerts",
            f"{sum(alerts.values())} alerts were raised in the last day: {', '.join(alerts)}.",
            "`stationmaster audit --action alert.` shows them with their tasks.",
        )


def _one(row: dict[str, Any] | None) -> dict[str, Any]:
    return row or {}
