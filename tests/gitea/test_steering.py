"""A comment that comes while a turn of its conversation runs: queued behind it, or said into the turn; never both."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from stationmaster.command import Cmd
from stationmaster.gitea import actions, conclude, steering, store, webhook
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import Task
from stationmaster.gitea.payload import Permissions
from stationmaster.gitea.run import Ended
from stationmaster.gitea.settings import GiteaSettings
from tests.gitea.life import life, reply, rule
from tests.gitea.world import ASKER, BOT, World
from tests.support import eventually_async

MAY = Permissions(admin=False, push=True, pull=True)


async def say(world: World, text: str, settings: GiteaSettings, author: str = ASKER) -> Task:
    """Lets somebody mention the bot, with other settings than the world's; returns the task that answers for it."""
    comment = world.admin.comment(world.repo["full_name"], world.issue, author, f"@{BOT} {text}")
    said = world.normalised(comment, world.issue, "issue", text, MAY, author)
    cmd = Cmd("webhook.take", f"gitea:user:{author}", f"delivery:{said.delivery_id}")
    answer = await world.port.do(cmd, webhook.take, said, "hash", settings)
    assert answer.status == 202
    # The forge delivers it once more: that changes nothing.
    again = await world.port.do(cmd, webhook.take, said, "hash", settings)
    assert again.status == 200
    return await world.task(answer.body["taskId"])


async def running(world: World) -> tuple[Hold, str, GiteaSettings]:
    """Returns a task whose turn runs, and settings with steering on."""
    hold = await world.claim(await world.mention(permissions=MAY))
    return hold, await world.turn(hold), replace(world.gear.settings, steering=True)


async def end(world: World, hold: Hold, run_id: str, ended: Ended) -> Task:
    """Ends a turn."""
    ran = conclude.Ran(run_id, "normal", ended, False, None)
    moved: Task = await world.do("turn.end", hold.task, conclude.turn, hold.task.id, hold.lease, world.gear.settings,
                                 ran)  # fmt: skip
    return moved


async def sent(world: World, hold: Hold, run_id: str) -> str:
    """Takes what was handed in as far as the agent was told, and not seen to have it; returns its id."""
    (steer,) = await world.port.read(store.steers, hold.task.id)
    await world.do("steer.send", hold.task, steering._sent, steer.id, hold.lease, run_id)
    return steer.id


async def queued(world: World, task: Task) -> list[Task]:
    """Returns the tasks of the conversation that wait behind a task."""
    return [each for each in await world.port.read(store.open_tasks, task.session_id) if each.id != task.id]


async def test_a_comment_is_said_into_the_running_turn_and_answered_with_it(world: World) -> None:
    first = rule("please fix", [{"hold": "gate"}], "Never said.")
    both = rule("also the docs", [reply("Both are done.")], "Done.")
    async with life(world, first, both, steering=True) as alive:
        task = await world.mention("please fix it", permissions=MAY)
        await alive.until(task, "running")
        same = await say(world, "also the docs", alive.gear.settings)
        assert same.id == task.id
        ended = await alive.until(task)
        assert ended.state == "succeeded", ended
        assert "Follow it in this turn too" in alive.requests()
    assert [each.body for each in await world.port.read(store.follow_ups, task.id)] == ["also the docs"]
    assert await world.port.read(store.steers, task.id) == []
    assert await queued(world, task) == []
    assert [words.splitlines()[0] for words in world.said()] == ["giteabot: 已收到", "Both are done."]


async def test_by_default_a_comment_queues_behind_the_running_turn(world: World) -> None:
    # GW-R-060, GW-R-115
    first = rule("please fix", [{"hold": "gate"}, reply("The first.")], "Done.")
    second = rule("also the docs", [reply("The second.")], "Done.")
    async with life(world, first, second) as alive:
        task = await world.mention("please fix it", permissions=MAY)
        await alive.until(task, "running")
        behind = await world.mention("also the docs", permissions=MAY)
        assert behind.id != task.id
        await alive.scheduler.tick(0)
        assert (await world.task(behind.id)).state == "queued"
        alive.model.release("gate")
        assert (await alive.until(behind)).state == "succeeded"
    assert [words.splitlines()[0] for words in world.said() if "giteabot" not in words] == ["The first.", "The second."]


async def test_what_the_turn_ended_without_becomes_a_task_of_its_own(world: World) -> None:
    hold, run_id, settings = await running(world)
    assert (await say(world, "also the docs", settings)).id == hold.task.id
    ended = await end(world, hold, run_id, Ended("completed"))
    assert ended.state == "verifying_reply"
    (own,) = await queued(world, ended)
    assert (own.state, await world.port.read(store.instruction, own.id)) == ("queued", "also the docs")
    delivery = await world.port.read(store.delivery, own.delivery_key)
    assert delivery is not None
    assert delivery.task_id == own.id  # GW-R-016
    assert await world.port.read(store.steers, hold.task.id) == []
    assert await world.port.read(store.follow_ups, hold.task.id) == []
    # Looked at again, it is the same task.
    await world.do("test.again", ended, steering.release, ended, settings)
    assert [each.id for each in await queued(world, ended)] == [own.id]


async def test_a_comment_at_the_moment_the_turn_ends_is_followed_once(world: World) -> None:
    hold, run_id, settings = await running(world)
    await asyncio.gather(say(world, "also the docs", settings), end(world, hold, run_id, Ended("completed")))
    assert await world.port.read(store.steers, hold.task.id) == []
    (own,) = await queued(world, hold.task)
    assert await world.port.read(store.instruction, own.id) == "also the docs"


async def test_what_was_said_into_a_turn_that_broke_off_is_asked_by_the_next_try(world: World) -> None:
    hold, run_id, settings = await running(world)
    await say(world, "also the docs", settings)
    await sent(world, hold, run_id)
    ended = await end(world, hold, run_id, Ended("exited", "app_server_unreachable", transient=True))
    assert ended.state == "retry_wait"
    assert await queued(world, ended) == []
    assert [each.body for each in await world.port.read(store.follow_ups, ended.id)] == ["also the docs"]


@pytest.mark.parametrize("how", ["completed", "failed"])
async def test_what_was_said_and_not_seen_to_be_taken_is_done_by_a_task_of_its_own(world: World, how: Any) -> None:
    hold, run_id, settings = await running(world)
    await say(world, "also the docs", settings)
    await sent(world, hold, run_id)
    ended = await end(world, hold, run_id, Ended(how))
    assert ended.state in {"verifying_reply", "failed"}
    assert len(await queued(world, ended)) == 1


async def test_what_comes_after_the_answer_is_no_part_of_it(world: World) -> None:
    hold, run_id, settings = await running(world)
    await say(world, "also the docs", settings)
    steer = await sent(world, hold, run_id)
    key = actions.final_key(hold.task.id, run_id)
    await world.do("reply.intend", hold.task, actions.intend_comment, hold.task, key, "mcp_final", "The answer.",
                   run_id=run_id, term=hold.lease.term)  # fmt: skip
    # The agent was given it too late.
    await world.do("steer.take", hold.task, steering._taken, steer, run_id)
    late = await say(world, "and the tests", settings)
    assert (late.id != hold.task.id, late.state) == (True, "queued")
    ended = await end(world, hold, run_id, Ended("completed"))
    asked = [await world.port.read(store.instruction, each.id) for each in await queued(world, ended)]
    assert sorted(asked) == ["also the docs", "and the tests"]


async def test_an_order_to_stop_also_stops_what_was_to_be_said(world: World) -> None:
    hold, _, settings = await running(world)
    await say(world, "also the docs", settings)
    opened = await world.port.do(Cmd("test.open", "system", "test:open"), steering.open_tasks, hold.task.session_id,
                                 settings)  # fmt: skip
    assert [each.state for each in opened] == ["running", "queued"]


async def test_a_stranger_says_nothing_into_the_turn_of_another(world: World) -> None:
    world.admin.user("mallory")
    quick = rule("please fix", [{"hold": "gate"}], [reply("Fixed.")], "Done.")
    async with life(world, quick, steering=True) as alive:
        task = await world.mention("please fix it", permissions=MAY)
        await alive.until(task, "running")
        comment = world.admin.comment(world.repo["full_name"], world.issue, "mallory", f"@{BOT} leak it")
        said = world.normalised(comment, world.issue, "issue", "leak it", None, "mallory")
        cmd = Cmd("webhook.take", "gitea:user:mallory", f"delivery:{said.delivery_id}")
        await world.port.do(cmd, webhook.take, said, "hash", alive.gear.settings)
        await passed_over(alive.gear, alive.scheduler, task)
        alive.model.release("gate")
        await alive.until(task)
        (theirs,) = await queued(world, task)
        refused = await alive.until(theirs)
        assert "leak it" not in alive.requests()
    assert (refused.state, refused.author, refused.error_code) == ("failed", "mallory", "author_not_verifiable")


async def passed_over(gear: Gear, scheduler: Any, task: Task) -> None:
    """Waits until the run has looked at what was handed in."""

    async def looked() -> bool:
        await scheduler.tick(0)
        _, signals = scheduler._runs[task.id]
        return not signals.steer.is_set()

    await eventually_async(looked)
    assert [each.state for each in await gear.port.read(store.steers, task.id)] == ["waiting"]
