"""A mention on a pull request of the same repository is worked on from its current head."""

from __future__ import annotations

from stationmaster.gitea.model import Task
from stationmaster.gitea.payload import Permissions
from tests.gitea.life import life, read, reply, rule
from tests.gitea.world import REPO, World

MAY = Permissions(admin=False, push=True, pull=True)


async def mention(world: World, pull: int, text: str) -> Task:
    return await world.mention(text, number=pull, kind="pull_request", permissions=MAY)


async def test_work_on_a_pull_request_begins_at_its_head_and_follows_it(world: World) -> None:
    # GW-R-129, GW-R-050
    head = world.admin.commit(REPO, "alice", {"feature.txt": "one\n"}, branch="feature", base="main")
    pull = world.admin.pull(REPO, "alice", head="feature", title="A feature")
    finish = rule(
        "finish", [read("summary")], [read("diff")], {"shell": "echo two >> feature.txt"}, reply("Finished."), "Done."
    )
    explain = rule("explain", {"shell": "cat feature.txt"}, reply("It says: ${last_output}"), "Said.")
    async with life(world, finish, explain) as alive:
        first = await alive.until(await mention(world, pull, "finish it"))
        assert first.state == "succeeded", first.error_code
        assert "feature.txt" in alive.requests()
        assert "+one" in alive.requests()
        name = f"stationmaster/pull_request-{pull}"
        assert world.admin.file(REPO, name, "feature.txt") == "one\ntwo\n"
        [ours] = [each for each in world.admin.pulls(REPO) if each["head"]["ref"] == name]
        assert ours["base"]["ref"] == "feature"
        answer = world.said(pull)[-1]
        assert f"Based on {head}" in answer
        assert f"#{ours['number']}" in answer
        # The head moves on; what we had published is not part of it, so the next work begins anew from there.
        moved = world.admin.commit(REPO, "alice", {"other.txt": "x\n"}, branch="feature")
        second = await alive.until(await mention(world, pull, "explain it"))
        assert second.state == "succeeded", second.error_code
        assert f"Based on {moved}" in world.said(pull)[-1]
