"""An issue or pull request that is closed or merged while its tasks wait or run."""

from __future__ import annotations

from dataclasses import replace

from stationmaster.agents import process
from stationmaster.clock import MICROS
from stationmaster.command import Cmd
from stationmaster.gitea import closing, store
from stationmaster.gitea.closing import Close
from stationmaster.gitea.model import Task
from stationmaster.gitea.payload import Permissions
from stationmaster.jobs import actions as jobs
from stationmaster.ledger import history
from tests.gitea.life import edited, life, rule
from tests.gitea.world import REPO, World

MAY = Permissions(admin=False, push=True, pull=True)
PATCH = "*** Begin Patch\n*** Update File: README.md\n@@\n-# Widgets\n+# Better widgets\n*** End Patch\n"


async def close(world: World, *, seconds: float = 1.0) -> list[Task]:
    """Lets the issue be closed, some seconds from now by the forge's clock."""
    at = world.clock.now() + int(seconds * MICROS)
    closed = Close("default", world.repo["id"], "issue", world.issue, at)
    return await world.port.do(Cmd("test.close", "system", "test:close"), closing.close, closed, world.gear.settings)


async def test_bug_3_a_close_ends_the_run_and_keeps_its_work(world: World) -> None:
    """Bug 3: closed while the agent runs: the run ends, its process group is gone, its dirty work kept and named."""
    # GW-R-178, GW-R-102, GW-R-104
    slow = rule("please", [{"patch": PATCH}], [{"shell": "sleep 600"}])
    async with life(world, slow) as alive:
        task = await world.mention("please fix it", permissions=MAY)
        await alive.until(task, "running")
        await edited(alive, task)
        assert [each.state for each in await close(world)] == ["aborting"]
        ended = await alive.until(task)
    assert (ended.state, ended.error_code) == ("aborted", "resource_closed")
    (run,) = await world.port.read(jobs.of_subject, task.id)
    assert process.sweep(run.id) == 0
    branch = await world.port.read(store.current_branch, task.session_id)
    assert branch is not None
    bare = alive.gear.layout.bare(task.repository_id)
    tip = alive.gear.git.bare(bare, "rev-parse", branch.name).stdout.strip()
    assert "Better" in alive.gear.git.bare(bare, "show", f"{tip}:README.md").stdout
    assert f"kept as {tip} on `{branch.name}`" in world.said()[-1]
    assert "was closed" in world.said()[-1]
    assert world.admin.pulls(REPO) == []
    moves = await world.port.read(history.by_entity, "gitea_task", task.id)
    assert [entry.actor for entry in moves if entry.to_state == "aborting"] == ["system"]


async def test_a_close_cancels_what_was_asked_before_and_lets_run_what_was_asked_after(world: World) -> None:
    before = await world.mention(permissions=MAY)
    stopped = await close(world)
    assert [(task.id, task.state, task.error_code) for task in stopped] == [(before.id, "cancelled", "resource_closed")]
    world.clock.advance(5)
    after = await world.mention("on purpose", permissions=MAY)
    # The close is told late, or twice: the forge's clock says what came first.
    assert await close(world, seconds=-2) == []
    assert (await world.task(after.id)).state == "queued"


async def test_a_comment_that_also_closes_is_meant(world: World) -> None:
    """The button "comment and close" does both within one second of the forge's clock."""
    task = await world.mention("write the summary", permissions=MAY)
    asked = await world.port.read(store.asked_at, task.id)
    assert asked is not None
    closed = Close("default", world.repo["id"], "issue", world.issue, asked)
    cmd = Cmd("test.close", "system", "test:close")
    assert await world.port.do(cmd, closing.close, closed, world.gear.settings) == []
    assert (await world.task(task.id)).state == "queued"
    stranger = replace(closed, number=99, at=asked + MICROS)
    assert await world.port.do(cmd, closing.close, stranger, world.gear.settings) == []


async def test_an_answer_on_its_way_outlives_the_close(world: World) -> None:
    hold = await world.claim(await world.mention(permissions=MAY))
    await world.turn(hold)
    await world.advance(hold, "verify")
    assert await close(world) == []
    assert await world.port.read(store.stop, hold.task.id) is None
