"""An issue or pull request that is closed or merged while its tasks wait or run."""

from __future__ import annotations

import msgspec

from stationmaster.agents import process
from stationmaster.clock import MICROS
from stationmaster.command import Cmd
from stationmaster.gitea import closed_event, closing, store, webhook
from stationmaster.gitea.closed_event import Closed
from stationmaster.gitea.model import Task
from stationmaster.gitea.payload import Permissions
from stationmaster.jobs import actions as jobs
from stationmaster.ledger import history
from tests.gitea.life import edited, life, rule
from tests.gitea.world import ASKER, BOT, REPO, World
from tests.support import eventually_async

MAY = Permissions(admin=False, push=True, pull=True)
PATCH = "*** Begin Patch\n*** Update File: README.md\n@@\n-# Widgets\n+# Better widgets\n*** End Patch\n"


async def close(world: World, *, seconds: float = 1.0) -> list[Task]:
    """Lets the issue be closed, some seconds from now by the forge's clock."""
    at = world.clock.now() + int(seconds * MICROS)
    closed = Closed("default", "a-close", "issues", world.repo["id"], "issue", world.issue, at)
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
    closed = Closed("default", "a-close", "issues", world.repo["id"], "issue", world.issue, asked)
    cmd = Cmd("test.close", "system", "test:close")
    assert await world.port.do(cmd, closing.close, closed, world.gear.settings) == []
    assert (await world.task(task.id)).state == "queued"
    stranger = msgspec.structs.replace(closed, number=99, at=asked + MICROS)
    assert await world.port.do(cmd, closing.close, stranger, world.gear.settings) == []


async def test_an_answer_on_its_way_outlives_the_close(world: World) -> None:
    hold = await world.claim(await world.mention(permissions=MAY))
    await world.turn(hold)
    await world.advance(hold, "verify")
    assert await close(world) == []
    assert await world.port.read(store.stop, hold.task.id) is None


async def asked(world: World, number: int, kind: str) -> Task:
    """Lets somebody mention the bot, some seconds ago by the forge's clock."""
    comment = world.admin.comment(REPO, number, ASKER, f"@{BOT} please")
    said = world.normalised(comment, number, kind, "please", MAY, ASKER)
    earlier = msgspec.structs.replace(said.comment, updated_at=said.comment.updated_at - 5 * MICROS)
    said = msgspec.structs.replace(said, comment=earlier)
    cmd = Cmd("webhook.take", f"gitea:user:{ASKER}", f"delivery:{said.delivery_id}")
    answer = await world.port.do(cmd, webhook.take, said, "hash", world.gear.settings)
    return await world.task(answer.body["taskId"])


async def test_the_forges_own_deliveries_of_a_close_and_a_merge_stop_what_waits(world: World) -> None:
    # GW-R-053, GW-R-059
    hook = world.admin.hook(
        "http://127.0.0.1:9/", repo=REPO, secret="webhook-secret", events=["issues", "pull_request"]
    )
    world.admin.commit(REPO, ASKER, {"new.txt": "new"}, branch="feature")
    pull = world.admin.pull(REPO, ASKER, head="feature", title="A feature")
    tasks = [await asked(world, world.issue, "issue"), await asked(world, pull, "pull_request")]
    world.admin.edit_issue(REPO, world.issue, ASKER, title="It is very broken")
    world.admin.edit_issue(REPO, world.issue, ASKER, state="closed")
    world.admin.merge(REPO, pull, ASKER)
    door = webhook.Webhook(world.port, world.gear.settings)
    answers = []
    await eventually_async(lambda: nothing_on_its_way(world))
    for row in world.admin.deliveries(hook=hook):
        sent = row["request"]
        answers.append(await door(sent["headers"], sent["body"].encode(), "127.0.0.1"))
        if '"closed"' in sent["body"]:
            again = await door(sent["headers"], sent["body"].encode(), "127.0.0.1")
            assert (again.status, again.body) == (answers[-1].status, answers[-1].body)
    stopped = [answer.body["tasks"] for answer in answers if answer.status == 202]
    assert stopped == [[task.id] for task in tasks]
    assert [(await world.task(task.id)).error_code for task in tasks] == ["resource_closed"] * 2
    moves = await world.port.read(history.by_entity, "gitea_task", tasks[1].id)
    assert moves[-1].actor == "system"


async def nothing_on_its_way(world: World) -> bool:
    """Tells whether the forge has tried every delivery."""
    return world.admin.on_their_way() == 0


def test_only_a_close_with_a_time_is_one() -> None:
    def read(route: str, **fields: object) -> Closed | None:
        what = {"number": 3, "closed_at": "2026-01-02T03:04:05Z", **fields}
        key = "pull_request" if route == "pull_request" else "issue"
        payload = {"action": "closed", "repository": {"id": 7}, key: what}
        return closed_event.read(route, "id", msgspec.json.encode(payload), "default")

    found = read("issues")
    assert found is not None
    assert (found.kind, found.number, found.native_id) == ("issue", 3, 7)
    seen_as_issue = read("issues", pull_request={"merged": True})
    assert seen_as_issue is not None
    assert seen_as_issue.kind == "pull_request"
    assert read("issues", closed_at="0001-01-01T00:00:00Z") is None
    assert read("issues", closed_at="yesterday") is None
    assert read("issues", number=0) is None
    assert read("push") is None
    assert closed_event.read("issues", "id", b"[" * 100_000, "default") is None
    assert closed_event.read("issues", "id", b'{"action": "closed"}', "default") is None
