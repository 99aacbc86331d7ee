"""Makes a backup beside a product that runs: the ledger of one moment first, then what it refers to on disk.

In this order, because branches, threads and kept files only grow: whatever the ledger names is there when it is packed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from stationmaster.clock import MICROS, Clock, iso
from stationmaster.errors import Illegal, Invalid, NotFound, StationmasterError, Unavailable
from stationmaster.ledger import checkup
from stationmaster.ledger.copy import copy
from stationmaster.ledger.ledger import PostgresSettings, Slice
from stationmaster.ops.backup import postgres, trees
from stationmaster.ops.backup.archive import Manifest, Repository, Writer
from stationmaster.ops.home import Home
from stationmaster.workspaces import bundles, mirror
from stationmaster.workspaces.git import Git
from stationmaster.workspaces.paths import Layout

LEDGER: Mapping[str, str] = {"sqlite": "ledger.db", "postgres": "ledger.pgdump"}
RUNS, THREADS, SETTINGS, WORKER = "runs.tar", "threads.tar", "stationmaster.toml", "worker_id"
# Of a repository's CODEX_HOME only the conversations travel: the rest is made anew, or is a login.
_CONVERSATIONS = frozenset({"sessions", "archived_sessions"})
_SCRATCH = frozenset({"host", "work"})
LEFT_OUT = (
    "secrets (what gitea.token_ref, gitea.webhook_secret_ref, codex.api_key and database.url refer to)",
    "the login of Codex: make it again with `stationmaster codex login`",
    "worktrees and what is not committed in them: they are made again from their branches",
    "branches of the forge: they are fetched again",
)


@dataclass(frozen=True, slots=True)
class Source:
    """The installation that is copied; `env` finds the programs of PostgreSQL."""

    home: Home
    database: Path | PostgresSettings
    slices: tuple[Slice, ...]
    layout: Layout
    codex_home: Path
    git: Git
    clock: Clock
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Made:
    """A finished backup."""

    file: Path
    manifest: Manifest
    size: int

    def wire(self) -> dict[str, Any]:
        """Returns what is told of it."""
        manifest = self.manifest
        return {
            "file": str(self.file),
            "bytes": self.size,
            "madeAt": manifest.made_at,
            "database": manifest.database,
            "lastSeq": manifest.last_seq,
            "tasks": manifest.counts.get("gitea_task", 0),
            "repositories": len(manifest.repositories),
            "branches": sum(len(each.heads) for each in manifest.repositories.values()),
            "leftOut": list(manifest.left_out),
        }


def make(source: Source, wanted: Path | None) -> Made:
    """Makes one backup: `wanted` is a new file or an existing folder, by default `<home>/backups`."""
    now = source.clock.now()
    file = _target(source, wanted, now)
    try:
        with _staging(file.parent) as staging, Writer(file) as out:
            manifest = _write(source, out, staging, iso(now))
            out.seal(manifest)
    except FileExistsError as error:
        raise _exists(file) from error
    except OSError as error:
        raise Unavailable(
            f"The backup {file} could not be written: {error.strerror or error}.",
            code="backup_failed",
            hint="Nothing is left of it. Check rights and space of that folder.",
        ) from error
    return Made(file, manifest, file.stat().st_size)


def _target(source: Source, wanted: Path | None, now: int) -> Path:
    if wanted is None:
        wanted = source.home.path / "backups"
        wanted.mkdir(mode=0o700, exist_ok=True)
    if not wanted.is_absolute():
        raise Invalid(f"{wanted} is not an absolute path.", code="invalid_request", hint="Begin it with a slash.")
    if wanted.is_dir():
        moment = iso(now - now % MICROS).replace("-", "").replace(":", "").replace(".000", "")
        wanted /= f"stationmaster-{moment}.tar"
    if wanted.exists():
        raise _exists(wanted)
    if not wanted.parent.is_dir():
        raise NotFound(f"There is no folder {wanted.parent}.", code="not_found", hint="Make it first.")
    return wanted


def _exists(file: Path) -> Illegal:
    return Illegal(f"{file} is there already.", code="already_exists", hint="Choose another name.")


@contextmanager
def _staging(beside: Path) -> Iterator[Path]:
    # Beside the backup, where space for it must be anyway.
    folder = Path(tempfile.mkdtemp(prefix=".stationmaster-backup-", dir=beside))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(source: Source, out: Writer, staging: Path, made_at: str) -> Manifest:
    kind, found = _ledger(source, out, staging)
    repositories = _repositories(source, out, staging)
    for name, root, wanted in ((RUNS, source.home.runs, _kept), (THREADS, source.codex_home / "repos", _conversation)):
        trees.pack(root, staging / name, wanted)
        _move(out, name, staging / name)
    for name, path in ((WORKER, source.home.path / "worker_id"), (SETTINGS, source.home.config_file)):
        if path.is_file():
            out.add(name, Path(shutil.copyfile(path, staging / name)))
    return Manifest(
        made_at=made_at,
        product=metadata.version("stationmaster"),
        worker_id=_worker(source.home),
        database=kind,
        schema=found.schema,
        counts=found.counts,
        last_seq=found.last_seq,
        repositories=repositories,
        left_out=LEFT_OUT,
        files=out.files,
    )


@dataclass(frozen=True, slots=True)
class _Found:
    schema: dict[str, int]
    counts: dict[str, int]
    last_seq: int


def _ledger(source: Source, out: Writer, staging: Path) -> tuple[Literal["sqlite", "postgres"], _Found]:
    if isinstance(source.database, PostgresSettings):
        file = staging / LEDGER["postgres"]
        with checkup.opened(source.database, source.slices, source.clock) as found:
            seen = _seen(found)
            # The dump is of the very snapshot that was just counted.
            postgres.dump(source.database, source.env, found.exported(), file, found.server())
        _move(out, LEDGER["postgres"], file)
        return "postgres", seen
    file = staging / LEDGER["sqlite"]
    copy(source.database, file)
    with checkup.opened(file, source.slices, source.clock) as found:
        seen = _seen(found)
    _move(out, LEDGER["sqlite"], file)
    return "sqlite", seen


def _seen(found: checkup.Checkup) -> _Found:
    return _Found({name: have for name, (have, _) in found.versions().items()}, found.counts(), found.newest())


def _repositories(source: Source, out: Writer, staging: Path) -> dict[str, Repository]:
    found: dict[str, Repository] = {}
    for bare in sorted((source.layout.root / "repositories").glob("*/bare.git")):
        name = bare.parent.name
        file = staging / f"{name}.bundle"
        try:
            heads = bundles.write(source.git, bare, file)
        except StationmasterError as error:
            raise Unavailable(
                f"The branches of {bare} could not be copied: {error.message}", code="backup_failed", hint=error.hint
            ) from error
        found[name] = Repository(mirror.address(source.git, bare), heads)
        if heads:
            _move(out, bundle_name(name), file)
    return found


def bundle_name(repository_id: str) -> str:
    """Returns where the bundle of a repository is in a backup."""
    return f"git/{repository_id}.bundle"


def _move(out: Writer, name: str, file: Path) -> None:
    out.add(name, file)
    file.unlink()


def _kept(path: Path) -> bool:
    return len(path.parts) != 2 or path.parts[1] not in _SCRATCH  # noqa: PLR2004 - a run, and a name in it


def _conversation(path: Path) -> bool:
    return len(path.parts) < 2 or path.parts[1] in _CONVERSATIONS  # noqa: PLR2004 - a repository, and a name in it


def _worker(home: Home) -> str:
    try:
        return (home.path / "worker_id").read_text().strip()
    except FileNotFoundError:
        return ""
