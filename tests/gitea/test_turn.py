"""The whole life of a task with the real Codex binary: from a mention to a proven reply."""

from __future__ import annotations

from stationmaster.gitea import store
from stationmaster.jobs import actions as jobs
from tests.gitea.life import abort, ask, edited, life, mention, read, reply, rule
from tests.gitea.world import World

PATCH = "*** Begin Patch\n*** Update File: README.md\n@@\n-# Widgets\n+# Better widgets\n*** End Patch\n"
REPO = "acme/widgets"


async def test_a_mention_becomes_a_commit_a_pull_request_and_a_proven_answer(world: World) -> None:
    # GW-R-019, GW-R-052, GW-R-150
    change = rule("please fix", [read("summary")], [{"patch": PATCH}], [reply("Fixed the title.")], "Done.")
    async with life(world, change) as alive:
        task = await mention(world, "please fix the title")
        ended = await alive.until(task)
        assert ended.state == "succeeded", ended  # GW-R-092, GW-R-248 AC-09
        assert "It is broken" in alive.requests()
    receipt, answer = world.said()  # GW-R-133, GW-R-134
    assert receipt.startswith("giteabot: 已收到")
    pull = world.admin.pulls(REPO)[0]
    sha = pull["head"]["sha"]
    assert f"Commit {sha} · #{pull['number']}" in answer
    assert answer.startswith("Fixed the title.")
    assert answer.index("Commit ") < answer.index("<!-- ccweb")  # GW-R-163
    assert pull["head"]["ref"] == "stationmaster/issue-1"
    final = [row for row in await world.comments(task) if row.kind == "mcp_final"]
    assert [row.state for row in final] == ["confirmed"]  # GW-R-168
    assert await world.lease(task) is None  # GW-R-106


async def test_a_silent_wait_posts_nothing(world: World) -> None:
    # GW-R-134, GW-R-151
    async with life(world, rule("please", "I need to know more.\nccweb-status: waiting_user")) as alive:
        waiting = await alive.until(await mention(world, "please fix it"))
        assert waiting.state == "waiting_user"
    assert len(world.said()) == 1


async def test_a_missing_reply_gets_one_turn_that_only_posts(world: World) -> None:
    # GW-R-170, GW-R-206
    forgetful = rule("please fix", [{"patch": PATCH}], "I fixed the title.")
    posting = rule("Your answer for", [{"shell": "echo again >> README.md"}], [reply("I fixed the title.")], "Posted.")
    async with life(world, forgetful, posting) as alive:
        ended = await alive.until(await mention(world, "please fix the title"))
        assert ended.state == "succeeded"
        assert (ended.reply_attempt, ended.attempt) == (1, 0)  # GW-R-108
        kinds = [turn.kind for turn in await world.port.read(store.turns, ended.id)]
        assert kinds == ["normal", "reply_retry"]
        assert "I fixed the title." in alive.requests()
    assert world.said()[-1].startswith("I fixed the title.")
    assert "Commit" in world.said()[-1]


async def test_the_first_of_reply_and_ask_decides(world: World) -> None:
    both = rule("please", [reply("The answer.")], [reply("Another answer.")], [ask("Or a question?")], "Done.")
    async with life(world, both) as alive:
        ended = await alive.until(await mention(world, "please answer"))
        assert ended.state == "succeeded"
        outputs = alive.requests()
        assert outputs.count("accepted") >= 3
    assert len(world.said()) == 2
    assert world.said()[-1].startswith("The answer.")


async def test_abort_ends_the_turn_saves_the_tree_and_tells_the_thread(world: World) -> None:
    # GW-R-178, GW-R-102, GW-R-104
    slow = rule("please", [{"patch": PATCH}], [{"hold": "forever"}])
    async with life(world, slow) as alive:
        task = await mention(world, "please fix it")
        await alive.until(task, "running")
        await edited(alive, task)
        await abort(world, task)
        ended = await alive.until(task)
        assert ended.state == "aborted"
        assert ended.error_code == "aborted_by_operator"
    assert world.said()[-1].startswith("giteabot:")  # GW-R-135
    assert len(world.said()) == 2
    runs = await world.port.read(jobs.of_subject, task.id)
    assert [run.state for run in runs] == ["interrupted"]


async def test_a_stopping_worker_saves_the_tree_and_the_next_one_goes_on(world: World) -> None:
    # GW-R-184, GW-R-203
    slow = rule("please", [{"patch": PATCH}], [{"hold": "forever"}])
    async with life(world, slow) as alive:
        task = await mention(world, "please fix it")
        await alive.until(task, "running")
        await edited(alive, task)
        await alive.scheduler.close()
        left = await world.task(task.id)
        assert (left.state, left.attempt, left.error_code) == ("retry_wait", 0, "interrupted_by_restart")
    finishing = rule("may have partially completed", [reply("It was done already.")], "Done.")
    async with life(world, finishing) as alive:
        ended = await alive.until(task)
        assert ended.state == "succeeded"
    assert "Commit" in world.said()[-1]
