"""Takes a task of a world from its mention to a prepared workplace, and on to what is published; no agent needed."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stationmaster.gitea import actions, prepare, publish, store
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import Branch, Task
from stationmaster.gitea.prepare import Workplace
from stationmaster.gitea.publish import Published
from stationmaster.ledger import history
from stationmaster.ledger.history import OpenIntent
from tests.gitea.world import ASKER, REPO, World

FIRST = "stationmaster/issue-1"


@dataclass
class Job:
    """A claimed task with its workplace and an open run."""

    world: World
    hold: Hold
    place: Workplace
    run_id: str

    @property
    def task(self) -> Task:
        return self.hold.task

    def write(self, name: str, text: str) -> None:
        """Does what an agent does."""
        path = self.place.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    async def publish(self, **given: Any) -> Published:
        """Publishes as `reply` and `publish` do."""
        return await publish.publish(self.world.gear, self.hold, self.task, self.run_id, self.place, **given)

    async def save(self, outcome: str = "completed") -> Any:
        """Saves as the end of a run does."""
        return await publish.save(self.world.gear, self.task, self.run_id, self.place, outcome)

    async def end(self) -> None:
        """Ends the run and the task well, and gives the lease back."""
        await self.save()
        await self.world.end_turn(self.task, self.run_id)
        await self.world.advance(self.hold, "verify")
        await self.world.do(
            "task.leave", self.task, actions.leave, self.task.id, "confirm", self.hold.lease, self.world.gear.settings
        )

    async def branch(self) -> Branch:
        """Returns the row of the current task branch."""
        found = await self.world.port.read(store.current_branch, self.task.session_id)
        assert found is not None
        return found


async def claimed(world: World, **mention: Any) -> Hold:
    """Lets alice ask, and claims the task."""
    return await world.claim(await world.mention(**mention))


async def begin(world: World, **mention: Any) -> Job:
    """Lets alice ask, and prepares everything for a run."""
    return await begin_claimed(world, await claimed(world, **mention))


async def begin_claimed(world: World, hold: Hold) -> Job:
    """Prepares a claimed task and opens its run."""
    place = await prepare.workplace(world.gear, hold, hold.task)
    return Job(world, hold, place, await world.turn(hold))


async def done(world: World, name: str = "a.txt", text: str = "one\n", **mention: Any) -> Job:
    """Does a whole task that changes one file and publishes it."""
    job = await begin(world, **mention)
    job.write(name, text)
    published = await job.publish()
    assert published.code is None, published
    await job.end()
    return job


def with_settings(world: World, **given: Any) -> Gear:
    """Changes what the operator chose."""
    world.gear = replace(world.gear, settings=replace(world.gear.settings, **given))
    return world.gear


def git(*args: str, cwd: Path) -> str:
    """Runs plain git as somebody at a prompt would."""
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{role}_{part}": f"ada{end}" for role in ("AUTHOR", "COMMITTER") for part, end in _PARTS},
    }
    done_ = subprocess.run(["git", *args], cwd=cwd, env=env, check=True, capture_output=True, text=True)
    return done_.stdout.strip()


_PARTS = (("NAME", ""), ("EMAIL", "@example.test"))


def at_forge(world: World) -> dict[str, str]:
    """Returns the forge's branches."""
    return world.admin.branches(REPO)


def person_commits(world: World, branch: str, name: str = "person.txt", text: str = "by hand\n") -> str:
    """Lets alice push one commit."""
    return world.admin.commit(REPO, ASKER, {name: text}, branch=branch)


async def open_intents(world: World) -> list[OpenIntent]:
    """Returns what has no result."""
    return await world.port.read(history.open_intents)


async def outcomes(world: World, task: Task, action: str) -> list[str | None]:
    """Returns the outcomes of one kind of act, in order."""
    return [entry.outcome for entry in await world.history(task, f"{action}.result")]
