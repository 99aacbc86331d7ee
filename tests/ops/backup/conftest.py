"""An installation at work: a forge, a ledger, a repository with saved work, a conversation and a kept repository."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from stationmaster.clock import SystemClock
from stationmaster.ops.backup.create import Source
from stationmaster.ops.backup.proof import Judge
from stationmaster.ops.home import Home, prepare
from stationmaster.ops.wiring import SLICES
from stationmaster.workspaces.paths import Layout
from tests.gitea import workshop
from tests.gitea.conftest import world  # noqa: F401 - the fixture
from tests.gitea.workshop import Job
from tests.gitea.world import World


@dataclass
class House:
    """What is copied, who proves it, and the task that runs meanwhile."""

    world: World
    source: Source
    job: Job
    folder: Path

    @property
    def judge(self) -> Judge:
        return Judge(SLICES, self.source.git, SystemClock(), dict(os.environ))

    def elsewhere(self, name: str = "other") -> Source:
        """Returns an empty home to restore into."""
        home = prepare(self.folder / name)
        layout = Layout(root=home.path / "workspaces", runs=home.runs)
        return replace(self.source, home=home, database=home.database, layout=layout, codex_home=home.path / "codex")


@pytest.fixture
async def house(world: World, tmp_path: Path) -> House:  # noqa: F811 - the fixture is meant
    home = Home(tmp_path)
    (tmp_path / "worker_id").write_text("worker_one\n")
    (tmp_path / "stationmaster.toml").write_text('[gitea]\ntoken_ref = "file:/run/secrets/token"\n')
    job = await workshop.begin(world)
    job.write("work.txt", "half done\n")
    await job.save()
    runs = tmp_path / "runs" / job.run_id
    for place, text in (("nested/lib/.git/HEAD", "ref"), ("codex.log", "log"), ("work/scratch.txt", "gone")):
        (runs / place).parent.mkdir(parents=True, exist_ok=True)
        (runs / place).write_text(text)
    (runs / "nested" / "outside").symlink_to("/etc/hostname")
    codex = tmp_path / "codex"
    threads = codex / "repos" / job.task.repository_id
    for place in ("sessions/2026/rollout-1.jsonl", "auth.json", "config.toml"):
        (threads / place).parent.mkdir(parents=True, exist_ok=True)
        (threads / place).write_text(place)
    (codex / "auth.json").write_text("a login")
    source = Source(
        home=home,
        database=tmp_path / "ledger.db",
        slices=SLICES,
        layout=world.gear.layout,
        codex_home=codex,
        git=world.gear.git,
        clock=SystemClock(),
        env=dict(os.environ),
    )
    return House(world, source, job, tmp_path)
