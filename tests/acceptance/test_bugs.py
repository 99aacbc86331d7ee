"""Bugs that hurt users of other systems, each as a story here; the numbers are those of docs/bugs.md."""

from __future__ import annotations

import json
import re
import socket
import time

import pytest

from stationmaster.clock import MICROS
from stationmaster.gitea import actions, claiming, reading, store, verify
from stationmaster.gitea.model import Task
from stationmaster.gitea.payload import Permissions
from stationmaster.gitea.receipts import Relay
from stationmaster.ledger import lease as leases
from tests.gitea.life import edited, life, mention, reply, rule
from tests.gitea.test_tools import bench
from tests.gitea.test_verify import ran
from tests.gitea.workshop import FIRST, at_forge, git
from tests.gitea.world import ASKER, BOT, REPO, World
from tests.support import eventually_async

CHANGE = rule("please fix", {"shell": "echo '# Better' > README.md"}, reply("Fixed."), "Done.")
LINE = 50_000_000


async def test_bug_2_a_worker_that_died_after_its_claim_holds_nobody_up(world: World) -> None:
    # GW-R-120, GW-R-122, GW-R-198: nothing but the lease's time tells that it died
    held = await world.claim(await mention(world, "please fix this"))
    waiting = await _another(world)
    async with life(world, CHANGE) as alive:
        await alive.recovery.tick(0)
        await alive.scheduler.tick(0)
        assert [(await world.task(each.id)).state for each in (held.task, waiting)] == ["preparing", "queued"]
        world.clock.advance(alive.gear.settings.ttl_s + 1)
        await alive.recovery.tick(0)
        ended = [await alive.until(each) for each in (held.task, waiting)]
    assert [(each.state, each.attempt) for each in ended] == [("succeeded", 1), ("succeeded", 0)]
    assert len([text for text in world.said() if "taskId=" in text]) == 1


async def test_bug_2_a_worker_that_died_before_it_let_go_holds_nobody_up(world: World) -> None:
    # GW-R-186, GW-R-198: the turn was over, the answer posted, the lease not given back
    hold, run_id = await ran(world)
    await world.advance(hold, "verify")
    world.admin.comment(REPO, world.issue, BOT, _answer(hold.task.id, run_id, hold.task.resource_key))
    waiting = await _another(world)
    async with life(world, CHANGE) as alive:
        world.clock.advance(alive.gear.settings.ttl_s + 1)
        await alive.recovery.tick(0)
        first, second = [await alive.until(each) for each in (hold.task, waiting)]
    assert (first.state, first.attempt, second.state) == ("succeeded", 0, "succeeded")
    assert len([text for text in world.said() if "taskId=" in text]) == 1


async def _another(world: World) -> Task:
    number = world.admin.issue(REPO, ASKER, "Another", "")
    return await world.mention("please fix that", number=number, permissions=Permissions(push=True, pull=True))


def _answer(task_id: str, run_id: str, resource_key: str) -> str:
    return f"It is fixed.\n\n<!-- ccweb taskId={task_id} turnId={run_id} resourceKey={resource_key} -->"


async def test_bug_5_submodules_that_hang_and_pointers_to_large_files_hold_nothing_up(world: World) -> None:
    # GW-R-132: a submodule is an address that a stranger wrote, and git-lfs may not be here
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/slow.git"
        modules = f'[submodule "slow"]\n\tpath = slow\n\turl = {address}\n[submodule "local"]\n\tpath = local\n'
        modules += "\turl = file:///etc\n"
        pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"
        files = {".gitmodules": modules, ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n"}
        world.admin.commit(REPO, ASKER, {**files, "big.bin": pointer})
        at = await bench(world)
        (at.place.tree / "more.txt").write_text("more\n")
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()
        assert (at.place.tree / "big.bin").read_text() == pointer
        said = json.loads((await at.call("reply", body="Added.")).text)
    assert said["accepted"]
    assert world.admin.file(REPO, FIRST, "big.bin") == pointer
    assert world.admin.file(REPO, FIRST, "more.txt") == "more\n"


async def test_bug_6_a_line_of_fifty_megabytes_and_a_large_file_are_neither_lost_nor_silent(world: World) -> None:
    noisy = {"shell": f"head -c {LINE} /dev/zero | tr '\\0' x; head -c {LINE} /dev/zero > large.bin"}
    async with life(world, rule("please fix", noisy, reply("Made it."), "Done.")) as alive:
        task = await alive.until(await mention(world, "please fix it"))
        assert task.state == "succeeded"
        told = max(len(output) for each in alive.model.requests for output in each["outputs"])
    assert 0 < told < 1_000_000
    [final] = [text for text in world.said() if "taskId=" in text]
    assert "Commit" in final
    assert "large.bin" in world.admin.files(REPO, FIRST)


async def test_bug_6_a_diff_above_the_limit_says_so_and_where_the_rest_is(world: World) -> None:
    world.admin.commit(REPO, ASKER, {"long.txt": "a line of it\n" * 60_000}, branch="long")
    number = world.admin.pull(REPO, ASKER, head="long", title="Long")
    task = await world.mention("please look", number=number, kind="pull_request")
    session = await world.port.read(store.session, task.session_id)

    async def page(number: int) -> str:
        return await world.gear.at(
            task.repository_id, lambda repo: reading.read(world.gear.forge, repo, session, "diff", number, "k")
        )

    told = re.search(r"Page 1 of (\d+)", await page(1))
    assert told is not None
    end = await page(int(told[1]))
    assert f"longer than the host reads. All of it: {world.standin.url}/{REPO}/pulls/{number}.diff" in end


async def test_bug_6_a_long_answer_is_posted_in_parts(world: World) -> None:
    # GW-R-176: one answer, and what follows it is no second one
    at = await bench(world)
    body = "\n".join(f"{number}: {'word ' * 20}" for number in range(1500))
    assert json.loads((await at.call("reply", body=body)).text)["accepted"]
    said = world.said()
    assert len(at.finals) == 1
    assert [text[:13] for text in said[1:]] == ["(part 2 of 3)", "(part 3 of 3)"]
    assert "(part 1 of 3; the rest follows below)" in said[0]
    for number in range(1500):
        assert sum(f"\n{number}: word" in f"\n{text}" for text in said) == 1
    rows = await world.comments(at.hold.task)
    assert {row.state for row in rows} == {"confirmed"}
    hold, task = at.hold, at.hold.task
    await world.end_turn(task, at.run_id, "Done.")
    await world.advance(hold, "verify")
    assert (await verify.settle(world.gear, hold, await world.task(task.id))).state == "succeeded"


async def test_bug_6_parts_that_their_worker_did_not_post_follow_the_answer_all_the_same(world: World) -> None:
    at = await bench(world)
    world.fault("answer", count=None, skip=1, status=503, match={"method": "POST", "path": "/comments$"})
    assert json.loads((await at.call("reply", body="word " * 20_000)).text)["accepted"]
    assert len(world.said()) == 1
    world.admin.clear_faults()
    world.clock.advance(3600)
    relay = Relay(world.gear)

    async def whole() -> bool:
        world.clock.advance(900)
        await relay.tick(0)
        return len(world.said()) == 2

    await eventually_async(whole)
    assert world.said()[1].startswith("(part 2 of 2)")
    await relay.tick(0)
    assert len(world.said()) == 2


async def test_bug_7_an_answer_follows_a_repository_to_its_new_owner_and_name(world: World) -> None:
    # GW-R-012: the number stays, the name does not
    at = await bench(world)
    (at.place.tree / "more.txt").write_text("more\n")
    world.admin.org("elsewhere", members={ASKER: "admin", BOT: "write"})
    new = world.admin.rename(REPO, owner="elsewhere", name="gadgets")
    assert new == "elsewhere/gadgets"
    assert json.loads((await at.call("reply", body="Moved with you.")).text)["accepted"]
    rows = world.admin.comments(new, world.issue)
    assert [row["body"].startswith("Moved with you.") for row in rows if row["user"]["login"] == BOT] == [True]
    assert world.admin.file(new, FIRST, "more.txt") == "more\n"
    repository = await world.port.read(store.repository, at.hold.task.repository_id)
    assert repository.repo_key == "default:elsewhere/gadgets"


async def test_bug_8_a_token_that_is_revoked_while_the_agent_works_loses_no_work(world: World) -> None:
    # GW-R-169: typed, visible, no storm of requests, the work kept
    slow = rule("please fix", {"shell": "echo '# Better' > README.md; sleep 2"}, reply("Fixed."), "Done.")
    async with life(world, slow) as alive:
        task = await mention(world, "please fix it")
        await alive.until(task, "running")
        await edited(alive, task)
        world.admin.revoke(login=BOT)
        before = len(world.admin.requests())
        ended = await alive.until(task)
        asked = len(world.admin.requests()) - before
    assert ended.state == "failed_reply"
    assert ended.error_code == "reply_status_unknown"
    assert asked < 40
    refusals = {entry.data.get("code") for entry in await world.history(task) if entry.kind == "result" and entry.data}
    assert "forge_auth" in refusals
    branch = await world.port.read(store.current_branch, task.session_id)
    assert branch is not None
    tree = alive.gear.layout.tree(task.repository_id, "issue-1")
    assert git("status", "--porcelain", cwd=tree) == ""
    assert "# Better" in git("show", "HEAD:README.md", cwd=tree)


async def test_bug_8_a_token_without_the_scope_is_told_to_the_agent_and_tried_once(world: World) -> None:
    at = await bench(world)
    words = {"message": "token does not have at least one of required scope(s): [write:issue]"}
    world.fault("answer", count=None, status=403, body=words, match={"method": "POST", "path": "/comments$"})
    said = json.loads((await at.call("reply", body="Fixed.")).text)
    assert said["accepted"] is False
    assert "unknown" not in said
    assert len(world.admin.requests(method="POST", path="/comments")) == 1
    [row] = [each for each in await world.comments(at.hold.task) if each.kind == "mcp_final"]
    assert row.state == "failed"


@pytest.mark.parametrize("jump_s", [-5, 300, -86_400])
async def test_bug_10_a_host_clock_that_jumps_moves_no_lease(
    world: World, monkeypatch: pytest.MonkeyPatch, jump_s: int
) -> None:
    # GW-R-118, GW-R-119: neither a second claim nor a zombie taken for one
    hold = await world.claim(await world.mention())
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + jump_s * 1_000_000_000)
    again = await world.port.do(
        actions.command("task.claim", hold.task, "test:jump"),
        claiming.claim, hold.task.repository_id, world.gear.station, world.gear.settings,
    )  # fmt: skip
    assert again is None
    beaten = await world.port.hot(leases.heartbeat, hold.lease, world.gear.settings.ttl_s)
    assert abs(beaten.expires_at - hold.lease.expires_at) < 60 * MICROS
    await hold.check()


async def test_bug_11_an_agents_own_commit_or_dirt_in_the_linked_worktree_ends_committed_by_the_host(
    world: World,
) -> None:
    # GW-R-130: whatever its sandbox lets it do there, nothing is left and nothing is claimed that is not there
    own = {"shell": "echo '# Better' > README.md; git add -A; git commit -qm mine; echo new > new.txt; true"}
    async with life(world, rule("please fix", own, reply("Fixed."), "Done.")) as alive:
        task = await alive.until(await mention(world, "please fix it"))
        assert task.state == "succeeded"
        tree = alive.gear.layout.tree(task.repository_id, "issue-1")
        assert git("status", "--porcelain", cwd=tree) == ""
        head = git("rev-parse", "HEAD", cwd=tree)
    assert at_forge(world)[FIRST] == head
    assert world.admin.file(REPO, FIRST, "new.txt") == "new\n"
    assert "# Better" in world.admin.file(REPO, FIRST, "README.md")
    [final] = [text for text in world.said() if "taskId=" in text]
    assert f"Commit {head}" in final
