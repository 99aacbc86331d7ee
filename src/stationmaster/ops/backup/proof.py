"""Proves a backup without touching anything: what is in it is whole, and the ledger in it tells one story."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stationmaster.clock import Clock
from stationmaster.errors import Invalid, StationmasterError, Unavailable
from stationmaster.ledger import checkup
from stationmaster.ledger.ledger import PostgresSettings, Slice
from stationmaster.ops.backup import archive, postgres, trees
from stationmaster.ops.backup.archive import Manifest
from stationmaster.ops.backup.create import LEDGER, RUNS, THREADS, bundle_name
from stationmaster.workspaces import bundles
from stationmaster.workspaces.git import Git

_MOST = 3


@dataclass(frozen=True, slots=True)
class Judge:
    """What a proof needs: the program's slices, a git, and where the programs of PostgreSQL are."""

    slices: tuple[Slice, ...]
    git: Git
    clock: Clock
    env: Mapping[str, str]


def verify(judge: Judge, file: Path) -> dict[str, Any]:
    """Proves a backup and returns what it holds; raises Invalid with one sentence when it is not to be trusted."""
    with tempfile.TemporaryDirectory(prefix="stationmaster-verify-") as name:
        folder = Path(name)
        manifest = archive.unpack(file, folder)
        checked = contents(judge, file, folder, manifest)
    return {
        "file": str(file),
        "madeAt": manifest.made_at,
        "product": manifest.product,
        "workerId": manifest.worker_id,
        "database": manifest.database,
        "schema": manifest.schema,
        "lastSeq": manifest.last_seq,
        "rows": sum(manifest.counts.values()),
        "tasks": manifest.counts.get("gitea_task", 0),
        "repositories": len(manifest.repositories),
        "checked": checked,
        "leftOut": list(manifest.left_out),
    }


def contents(judge: Judge, file: Path, folder: Path, manifest: Manifest) -> list[str]:
    """Proves the unpacked files of a backup; returns what was looked at."""
    checked = ["hashes"]
    ledger = folder / LEDGER[manifest.database]
    if not ledger.is_file():
        raise archive.damaged(file, "it has no ledger")
    if manifest.database == "sqlite":
        same(file, ledger_of(judge, file, ledger), manifest)
        checked += ["integrity", "journal", "counts"]
        if manifest.schema == checkup.newest_versions(judge.slices):
            checked.append("guards")
    else:
        _readable(file, judge, ledger)
        # The rest needs a server: a restore does it before it ends.
        checked.append("dump")
    _bundles(judge, file, folder, manifest)
    for name in (RUNS, THREADS):
        if not (folder / name).is_file():
            raise archive.damaged(file, f"{name} is missing")
        trees.check(folder / name)
    return [*checked, "bundles", "files"]


@dataclass(frozen=True, slots=True)
class Told:
    """What a ledger says of itself."""

    schema: dict[str, int]
    counts: dict[str, int]
    last_seq: int


def ledger_of(judge: Judge, file: Path, database: Path | PostgresSettings) -> Told:
    """Reads a ledger as it is, without a change, and raises Invalid when it contradicts itself."""
    try:
        with _opened(judge, database) as found:
            versions = found.versions()
            newer = [name for name, (have, want) in versions.items() if have > want]
            if newer:
                raise Invalid(
                    f"The backup {file} was made by a newer program ({', '.join(newer)}).",
                    code="database_newer",
                    hint="Use that program, or a newer one.",
                )
            wrong = [*found.damage(thorough=True), *found.broken()]
            if all(have == want for have, want in versions.values()):
                wrong += found.faults()
            told = Told({name: have for name, (have, _) in versions.items()}, found.counts(), found.newest())
    except Unavailable as error:
        raise archive.damaged(file, f"its ledger cannot be read ({error.message})") from error
    if wrong:
        raise archive.damaged(file, f"its ledger is not whole: {' '.join(wrong[:_MOST])}")
    return told


def _opened(judge: Judge, database: Path | PostgresSettings) -> AbstractContextManager[checkup.Checkup]:
    return checkup.opened(database, judge.slices, judge.clock)


def same(file: Path, told: Told, manifest: Manifest) -> None:
    """Raises Invalid unless a ledger holds what was copied."""
    if (told.schema, told.counts, told.last_seq) != (manifest.schema, manifest.counts, manifest.last_seq):
        raise archive.damaged(file, "its ledger holds other rows than were copied")


def _readable(file: Path, judge: Judge, ledger: Path) -> None:
    try:
        postgres.check(judge.env, ledger)
    except Unavailable as error:
        if error.code == "backup_failed":
            raise archive.damaged(file, error.message.rstrip(".")) from error
        raise


def _bundles(judge: Judge, file: Path, folder: Path, manifest: Manifest) -> None:
    for name, repository in manifest.repositories.items():
        if not repository.heads:
            continue
        bundle = folder / bundle_name(name)
        if not bundle.is_file():
            raise archive.damaged(file, f"the branches of {name} are missing")
        try:
            heads = bundles.plant(judge.git, folder / "planted" / f"{name}.git", repository.url, bundle)
        except StationmasterError as error:
            raise archive.damaged(file, error.message.rstrip(".")) from error
        if heads != repository.heads:
            raise archive.damaged(file, f"the branches of {name} are not those that were copied")
