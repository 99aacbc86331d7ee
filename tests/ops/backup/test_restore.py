"""Backup, wipe, restore: the ledger, the branches, the kept files and the conversations are there, and work goes on."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from stationmaster.clock import SystemClock
from stationmaster.command import Cmd
from stationmaster.control.dispatch import Dispatch
from stationmaster.errors import Illegal, Invalid, StationmasterError
from stationmaster.gitea import store
from stationmaster.gitea.recovery import Recovery
from stationmaster.ledger import history
from stationmaster.ledger import lease as leases
from stationmaster.ledger.ledger import Ledger
from stationmaster.ops.backup import archive, create, proof, restore
from stationmaster.ops.backup.create import Source
from stationmaster.ops.backup.restore import Target
from stationmaster.ops.home import Home
from stationmaster.ops.wiring import SLICES
from tests.gitea import workshop
from tests.gitea.world import WORKER, World
from tests.ops.backup.conftest import House


def _target(source: Source) -> Target:
    assert isinstance(source.database, Path)
    where = source.database
    return Target(source, lambda: Ledger.open(where, SLICES, clock=SystemClock()), "admin:op")


async def test_a_copy_made_under_load_brings_everything_back_and_work_goes_on(house: House) -> None:
    # GW-R-183, GW-R-184, K5
    world = house.world
    busy = asyncio.Event()

    async def load() -> int:
        written = 0
        while not busy.is_set():
            await world.port.do(Cmd("load", "system", "test"), lambda tx: tx.event("load.written"))
            written += 1
        return written

    loading = asyncio.create_task(load())
    made = await world.port.off(create.make, house.source, house.folder / "one.tar")
    busy.set()
    assert await loading > 0
    told = await world.port.off(proof.verify, house.judge, made.file)
    assert told["checked"] == ["hashes", "integrity", "journal", "counts", "guards", "bundles", "files"]
    assert (told["workerId"], told["tasks"], told["repositories"]) == ("worker_one", 1, 1)

    shutil.rmtree(house.source.layout.root)
    there = house.elsewhere()
    await world.port.off(restore.restore, house.judge, _target(there), made.file)
    run = there.home.runs / house.job.run_id
    assert (run / "nested/lib/.git/HEAD").read_text() == "ref"
    assert (run / "nested/outside").readlink() == Path("/etc/hostname")
    assert not (run / "work").exists()
    threads = there.codex_home / "repos" / house.job.task.repository_id
    assert sorted(path.name for path in threads.rglob("*") if path.is_file()) == ["rollout-1.jsonl"]
    assert (there.home.path / "worker_id").read_text() == "worker_one\n"
    assert not (there.home.path / "restore.unfinished").exists()
    assert {path.stat().st_mode & 0o777 for path in there.home.path.iterdir() if path.is_dir()} == {0o700}
    await _goes_on(house, there)


async def _goes_on(house: House, there: Source) -> None:
    assert isinstance(there.database, Path)
    world, old = house.world, house.job
    with Ledger.open(there.database, SLICES, clock=world.clock) as ledger:
        assert ledger.verify() == []
        port = Dispatch(ledger, threads=2)
        station = replace(world.gear.station, incarnation="second", runs=there.home.runs)
        gear = replace(world.gear, port=port, layout=there.layout, station=station)
        again = World(**{**vars(world), "ledger": ledger, "port": port, "gear": gear})
        await port.hot(leases.register_worker, WORKER, "second")
        assert await Recovery(gear).tick(0) == 1
        task = await again.task(old.task.id)
        assert (task.state, task.error_code) == ("retry_wait", "interrupted_by_restart")
        world.clock.advance(1)
        job = await workshop.begin_claimed(again, await again.claim(task))
        assert (job.place.tree / "work.txt").read_text() == "half done\n"  # what was saved is gone on with
        job.write("work.txt", "done\n")
        assert (await job.publish()).code is None
        await job.end()
        assert (await again.task(task.id)).state == "succeeded"
        [told] = ledger.read(history.by_action, "backup.restored")
        assert told.actor == "admin:op"
        port.close()


async def test_no_secret_and_no_login_travels(house: House) -> None:
    made = create.make(house.source, house.folder / "one.tar")
    with tarfile.open(made.file) as tar:
        names = tar.getnames()
    assert sorted(names) == sorted(
        [
            "ledger.db",
            f"git/{house.job.task.repository_id}.bundle",
            "runs.tar",
            "threads.tar",
            "worker_id",
            "stationmaster.toml",
            "manifest.json",
            "manifest.sha256",
        ]
    )
    raw = made.file.read_bytes()
    assert b"a login" not in raw
    assert house.world.gear.settings.token.reveal().encode() not in raw
    assert b"webhook-secret" not in raw
    assert any("Codex" in words for words in made.manifest.left_out)
    assert made.file.stat().st_mode & 0o777 == 0o600


def _flip(file: Path, at: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[at] ^= 1
    file.write_bytes(raw)


async def test_a_damaged_backup_is_refused_with_a_sentence(house: House) -> None:
    made = create.make(house.source, house.folder / "one.tar")
    with tarfile.open(made.file) as tar:
        where = {entry.name: (entry.offset_data, entry.size) for entry in tar}
    places = [offset + size // 2 for offset, size in where.values()]
    broken = house.folder / "broken.tar"
    there = house.elsewhere()
    for place in places:
        shutil.copy(made.file, broken)
        _flip(broken, place)
        with pytest.raises(Invalid, match="is damaged") as refused:
            proof.verify(house.judge, broken)
        assert refused.value.code == "backup_damaged"
    for size in (0, 700, where["manifest.json"][0], made.size - 20_000):
        broken.write_bytes(made.file.read_bytes()[:size])
        with pytest.raises(Invalid, match="is damaged"):
            restore.restore(house.judge, _target(there), broken)
    assert sorted(path.name for path in there.home.path.iterdir()) == []


async def test_a_ledger_that_contradicts_itself_is_no_backup(house: House) -> None:
    # K2, K9: with hashes that fit, only the journal can tell
    made = create.make(house.source, house.folder / "one.tar")
    stage = house.folder / "stage"
    stage.mkdir()
    manifest = archive.unpack(made.file, stage)
    with closing(sqlite3.connect(stage / "ledger.db", isolation_level=None)) as beside:
        triggers = beside.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            beside.execute(f'DROP TRIGGER "{name}"')
        beside.execute("UPDATE gitea_task SET state = 'succeeded'")
        for _, text in triggers:
            beside.execute(text)
    forged = house.folder / "forged.tar"
    with archive.Writer(forged) as out:
        for name in manifest.files:
            out.add(name, stage / name)
        out.seal(msgspec.structs.replace(manifest, files=out.files))
    with pytest.raises(Invalid, match="not where their journal ends"):
        proof.verify(house.judge, forged)


async def test_a_kill_in_the_middle_leaves_nothing_that_verifies(house: House, tmp_path: Path) -> None:
    script = tmp_path / "make.py"
    script.write_text(
        "import os, sys\n"
        "from pathlib import Path\n"
        "from stationmaster import faults\n"
        "from stationmaster.clock import SystemClock\n"
        "from stationmaster.ops.backup import create\n"
        "from stationmaster.ops.home import Home\n"
        "from stationmaster.ops.wiring import SLICES\n"
        "from stationmaster.workspaces.git import Git\n"
        "from stationmaster.workspaces.paths import Layout\n"
        "home = Path(sys.argv[1])\n"
        "git = Git(timeout_s=60, lock_wait_s=1, home=home / 'git')\n"
        "source = create.Source(Home(home), home / 'ledger.db', SLICES, Layout(home / 'work', home / 'runs'),\n"
        "  home / 'codex', git, SystemClock(), dict(os.environ))\n"
        "faults.arm('backup.before_rename')\n"
        "create.make(source, home / 'one.tar')\n"
    )
    killed = [sys.executable, str(script), str(tmp_path)]
    done = await asyncio.to_thread(lambda: subprocess.run(killed, check=False))
    assert done.returncode == -9
    assert not (tmp_path / "one.tar").exists()
    with pytest.raises(StationmasterError):
        proof.verify(house.judge, tmp_path / "one.tar")
    # What it left is in nobody's way but its own name's.
    (tmp_path / "one.tar.part").rename(tmp_path / "aside")
    assert create.make(house.source, tmp_path / "one.tar").file.exists()


async def test_only_an_empty_home_is_filled_and_only_by_a_program_that_is_not_older(house: House) -> None:
    made = create.make(house.source, house.folder / "one.tar")
    there = house.elsewhere()
    assert made.manifest.schema["gitea"] > 1
    older = tuple(
        replace(part, package="stationmaster.inbox" if part.name == "gitea" else part.package, machines=())
        for part in SLICES
    )
    with pytest.raises(Invalid, match="newer program") as refused:
        restore.restore(replace(house.judge, slices=older), _target(there), made.file)
    assert refused.value.code == "database_newer"
    restore.restore(house.judge, _target(there), made.file)
    assert isinstance(there.database, Path)
    before = there.database.read_bytes()
    with pytest.raises(Illegal, match="is not empty"):
        restore.restore(house.judge, _target(there), made.file)
    assert there.database.read_bytes() == before


async def test_a_restore_that_was_broken_off_begins_anew_and_nothing_starts_before(house: House) -> None:
    made = create.make(house.source, house.folder / "one.tar")
    there = house.elsewhere()

    def dies() -> Ledger:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore.restore(house.judge, replace(_target(there), open=dies), made.file)
    with pytest.raises(Invalid, match="did not end"):
        restore.unfinished(there.home)
    restore.restore(house.judge, _target(there), made.file)
    restore.unfinished(there.home)
    assert isinstance(there.database, Path)
    with Ledger.open(there.database, SLICES, clock=SystemClock()) as ledger:
        assert ledger.read(store.find_task, house.job.task.id) is not None


async def test_a_name_that_is_taken_or_impossible_is_said(house: House) -> None:
    taken = house.folder / "taken.tar"
    taken.touch()
    with pytest.raises(Illegal, match="is there already"):
        create.make(house.source, taken)
    with pytest.raises(StationmasterError, match="no folder"):
        create.make(house.source, house.folder / "nowhere" / "one.tar")
    with pytest.raises(Invalid, match="not an absolute path"):
        create.make(house.source, Path("one.tar"))
    first = create.make(house.source, None)
    assert first.file.parent == Home(house.folder).path / "backups"
    assert [path.name for path in first.file.parent.iterdir()] == [first.file.name]
