"""What a review found: clocks that differ, names that change hands, and the moments in between."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from stationmaster.gitea import actions, operate, publish, receipts, store, texts, turn, verify
from stationmaster.gitea.model import Task
from stationmaster.gitea.payload import Permissions
from stationmaster.gitea.scheduler import Scheduler
from stationmaster.gitea.unblock import Unblocker
from stationmaster.jobs import actions as jobs
from tests.gitea.life import life, mention, reply, rule
from tests.gitea.test_receipts import asked
from tests.gitea.test_verify import ran, replied, settled
from tests.gitea.workshop import FIRST, begin, git
from tests.gitea.world import BOT, REPO, World
from tests.support import eventually_async


async def test_a_name_that_changed_hands_leads_to_the_repository_that_was_meant(world: World) -> None:
    # Another repository takes the name over: nothing is read, posted or pushed there.
    task = await mention(world, "please fix it")
    world.admin.rename(REPO, name="moved-away")
    who = {"alice": "admin", BOT: "write"}
    world.admin.repo("acme", "widgets", {"README.md": "# Strangers\n"}, collaborators=who)
    world.admin.issue(REPO, "alice", "Another issue", "")
    change = rule("please fix", {"shell": "echo more >> README.md"}, reply("Fixed."), "Done.")
    async with life(world, change) as alive:
        ended = await alive.until(task)
        assert ended.state == "succeeded"
    assert world.admin.comments(REPO, 1) == []
    assert FIRST not in world.admin.branches(REPO)
    assert FIRST in world.admin.branches("acme/moved-away")
    said = [row["body"] for row in world.admin.comments("acme/moved-away", world.issue)]
    assert [text.split("\n")[0] for text in said[1:]] == ["giteabot: 已收到", "Fixed."]


async def test_a_clock_ahead_of_the_forges_posts_nothing_twice(world: World) -> None:
    # GW-R-167: what is there is seen, whatever the clocks say
    world.clock.advance(3600)
    hold, run_id = await ran(world)
    row = await replied(world, hold, run_id)
    assert row.state == "confirmed"
    assert (await settled(world, hold)).state == "succeeded"
    assert len(world.said()) == 1


async def test_turns_are_told_in_the_order_of_the_ledgers_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # GW-R-166: ids are made by the machine's clock, which may go back
    hold, first = await ran(world)
    await settled(world, hold)
    hold = await world.claim(await world.task(hold.task.id))
    monkeypatch.setattr(actions, "new_run_id", lambda: "run_0000")
    second = await world.turn(hold, "reply_retry")
    assert second < first
    assert [each.run_id for each in await world.port.read(store.turns, hold.task.id)] == [first, second]
    assert await world.port.read(verify.accepted, hold.task.id) == (first, second)


def test_a_comment_of_brackets_and_blanks_is_read_at_once() -> None:
    # Were the pattern quadratic, this would take hours.
    hostile = "<<<" + " " * 300_000
    assert hostile in texts.untrusted("Comment", hostile, "run_of_a_turn")
    asked_for = texts.turn_prompt(_about(), "x" * 1_000_000)
    assert len(asked_for) < 70_000
    assert "cut by the host: 940000 more characters" in asked_for


def _about() -> texts.Correlation:
    return texts.Correlation("task", "run_of_a_turn", "default:a/b:issue:1", "a/b", "issue", 1, "alice")


async def test_a_task_that_comes_back_at_once_is_still_known(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its last run is tidied away while the next one begins: an abort reaches the new one.
    task = await mention(world, "please fix it")
    tidied, began = asyncio.Event(), []

    async def work(gear: Any, given: Task, lease: Any, signals: Any) -> None:
        began.append(signals)
        if len(began) == 1:
            await world.do("x", given, actions.leave, given.id, "retry", lease, gear.settings, attempt=1,
                           next_retry_at=0, retry_purpose="execution")  # fmt: skip
            await tidied.wait()
        else:
            await signals.stop.wait()

    monkeypatch.setattr(turn, "work", work)
    scheduler = Scheduler(world.gear)

    async def twice_claimed() -> bool:
        await scheduler.tick(0)
        return (await world.task(task.id)).rev >= 4

    await eventually_async(twice_claimed)
    tidied.set()

    async def again() -> bool:
        return len(began) == 2

    await eventually_async(again)
    assert scheduler.task_ids == {task.id}
    await scheduler.close()
    assert began[1].stop.is_set()
    assert scheduler.task_ids == frozenset()


async def test_nothing_is_published_once_the_task_is_being_stopped(world: World) -> None:
    job = await begin(world)
    job.write("a.txt", "one\n")
    wish = operate.Wish("abort", job.task.id, "admin:op", "enough")
    await world.port.do(operate.command(wish, "r"), operate.body(world.gear.settings), wish)
    published = await publish.publish(world.gear, job.hold, job.task, job.run_id, job.place)
    assert published.code == "invalid_state"
    assert FIRST not in world.admin.branches(REPO)
    assert world.admin.pulls(REPO) == []


async def test_a_refused_question_is_told_to_the_operator(world: World) -> None:
    hold, _ = await asked(world)
    world.fault("answer", count=None, match={"method": "POST", "path": "comments"}, status=403)
    relay = receipts.Relay(world.gear)
    world.clock.advance(60)
    await relay.tick(0)
    assert await world.history(hold.task, "alert.question_unknown")


async def test_unblocking_looks_at_what_the_claim_will_look_at(world: World) -> None:
    # GW-R-100: a first task has no branch yet, and yet somebody may stand on it
    first = await begin(world)
    await first.end()
    git("worktree", "add", "-q", "-b", "stationmaster/issue-2", "elsewhere", FIRST, cwd=first.place.bare)
    second = replace(world, issue=world.admin.issue(REPO, "alice", "Second", ""))
    async with life(world) as alive:
        blocked = await alive.until(await second.mention("please", permissions=Permissions(push=True, pull=True)))
        assert blocked.state == "blocked_workspace"
        wish = operate.Wish("unblock", blocked.id, "admin:op", "looked")
        await world.port.do(operate.command(wish, "r"), operate.body(world.gear.settings), wish)
        await Unblocker(alive.gear).tick(0)
        still = await world.task(blocked.id)
        assert (still.state, still.unblock_attempt) == ("blocked_workspace", 0)


async def test_nothing_is_claimed_while_no_agent_may_run(world: World) -> None:
    task = await mention(world, "please fix it")
    unfit = [True]
    scheduler = Scheduler(world.gear, unfit=lambda _forge: unfit[0])
    assert await scheduler.tick(0) == 0
    assert (await world.task(task.id)).state == "queued"
    assert await world.port.read(jobs.of_subject, task.id) == []
