"""Brings a backup back into an empty home: proven first, put in place, proven again, and told in the history.

A restore that was broken off leaves a note; with it nothing starts, and the next restore takes away what the first one
had put there, which is all that the home held.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stationmaster import canonical
from stationmaster.command import Cmd
from stationmaster.errors import Illegal, Invalid, NotFound, Unavailable
from stationmaster.gitea.restored import tell as tell_restored
from stationmaster.ledger import checkup
from stationmaster.ledger.ledger import Ledger, PostgresSettings
from stationmaster.ops.backup import archive, postgres, proof, trees
from stationmaster.ops.backup.archive import Manifest
from stationmaster.ops.backup.create import LEDGER, RUNS, SETTINGS, THREADS, WORKER, Source, bundle_name
from stationmaster.ops.backup.proof import Judge
from stationmaster.ops.home import Home
from stationmaster.workspaces import bundles

_NOTE = "restore.unfinished"
_STAGE = "restore.part"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a backup goes, as the home's configuration says, and how its ledger is opened afterwards."""

    source: Source
    open: Callable[[], Ledger]
    actor: str


def unfinished(home: Home) -> None:
    """Raises Invalid while a restore into this home has begun and not ended."""
    if (home.path / _NOTE).exists():
        raise Invalid(
            f"A restore into {home.path} did not end.",
            code="restore_unfinished",
            hint="Run `stationmaster backup restore` again; it begins anew.",
        )


def settings(home: Home, file: Path) -> None:
    """Puts the settings of a backup into a home that has none, so that they decide where everything goes."""
    if home.config_file.exists():
        return
    stage = _fresh(home)
    try:
        archive.unpack(file, stage)
        if (stage / SETTINGS).is_file():
            (stage / SETTINGS).replace(home.config_file)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def restore(judge: Judge, target: Target, file: Path) -> dict[str, Any]:
    """Restores `file`; the caller holds the home's lock. Raises before anything is put there when it cannot be."""
    source = target.source
    home = source.home
    _clear_broken_off(home)
    _require_empty(source)
    stage = _fresh(home)
    try:
        manifest = archive.unpack(file, stage)
        if (manifest.database == "sqlite") != isinstance(source.database, Path):
            raise Invalid(
                f"The backup is one of a {manifest.database} ledger, and the settings name another kind.",
                code="restore_refused",
                hint="Set database.url to what the ledger is to be restored into, or leave it empty for SQLite.",
            )
        proof.contents(judge, file, stage, manifest)
        _place(judge, target, file, stage, manifest)
    except OSError as error:
        raise Unavailable(
            f"The backup could not be restored: {error.strerror or error}.",
            code="restore_failed",
            hint="Check rights and space, then run it again.",
        ) from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return {"restored": True, "home": str(home.path), "madeAt": manifest.made_at, "lastSeq": manifest.last_seq}


def _fresh(home: Home) -> Path:
    stage = home.path / _STAGE
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(mode=0o700)
    return stage


def _places(source: Source) -> list[Path]:
    """What a restore fills and what must be empty before it."""
    home = source.home
    found = [
        home.path / WORKER,
        home.runs,
        source.codex_home / "repos",
        source.layout.root / "repositories",
        *(home.database.with_name(home.database.name + end) for end in ("", "-wal", "-shm")),
    ]
    # The ledger goes first when all is taken away: without it nobody looks for the rest.
    return found[::-1]


def _require_empty(source: Source) -> None:
    held = [path for path in _places(source) if path.is_file() or (path.is_dir() and any(path.iterdir()))]
    if held:
        raise Illegal(
            f"The home {source.home.path} is not empty: {held[-1]} is there.",
            code="restore_refused",
            hint="Restore into a new home (--home), or move this one aside first.",
        )
    if isinstance(source.database, PostgresSettings):
        with checkup.opened(source.database, source.slices, source.clock) as found:
            if found.installed():
                raise Illegal(
                    "The database holds a ledger already.",
                    code="restore_refused",
                    hint="Make an empty database and let database.url name it.",
                )


def _place(judge: Judge, target: Target, file: Path, stage: Path, manifest: Manifest) -> None:
    source, home = target.source, target.source.home
    note = home.path / _NOTE
    note.write_text(json.dumps([str(path) for path in _places(source)]))
    for folder in (source.codex_home, source.layout.root):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    trees.unpack(stage / RUNS, home.runs)
    trees.unpack(stage / THREADS, source.codex_home / "repos")
    for name, repository in manifest.repositories.items():
        if repository.heads:
            bare = source.layout.bare(name)
            bundles.plant(source.git, bare, repository.url, stage / bundle_name(name))
    if (stage / WORKER).is_file():
        shutil.copyfile(stage / WORKER, home.path / WORKER)
    ledger = stage / LEDGER[manifest.database]
    if isinstance(source.database, PostgresSettings):
        with checkup.opened(source.database, source.slices, source.clock) as found:
            server = found.server()
        postgres.load(source.database, source.env, ledger, server)
    else:
        ledger.replace(home.database)
    try:
        proof.same(file, proof.ledger_of(judge, file, source.database), manifest)
        _tell(target, manifest)
    except Exception:
        if isinstance(source.database, Path):
            _take_away(_places(source))
            note.unlink()
        raise
    os.sync()
    note.unlink()


def _tell(target: Target, manifest: Manifest) -> None:
    """Brings the ledger up to this program and writes into its history where it came from."""
    with target.open() as ledger:
        cmd = Cmd("backup.restore", target.actor, "door")
        ledger.do(cmd, tell_restored, made_at=manifest.made_at, last_seq=manifest.last_seq, product=manifest.product)


def _clear_broken_off(home: Home) -> None:
    note = home.path / _NOTE
    try:
        _take_away([Path(path) for path in canonical.load(note.read_text())])
    except FileNotFoundError:
        return
    note.unlink()


def _take_away(places: list[Path]) -> None:
    for path in places:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def require_file(file: Path) -> None:
    """Raises NotFound when there is no such backup."""
    if not file.is_file():
        raise NotFound(f"There is no backup {file}.", code="not_found", hint="Check the name.")
