"""The acceptance list of the specification as far as a worker shows it: real agent, real git, a misbehaving forge."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stationmaster.agents import process
from stationmaster.errors import Illegal
from stationmaster.gitea import operate, store
from stationmaster.gitea.machine import SESSION
from stationmaster.gitea.model import Task
from stationmaster.gitea.unblock import Unblocker
from stationmaster.jobs import actions as jobs
from stationmaster.ledger import lease as leases
from tests.gitea.life import Life, abort, ask, edited, life, mention, reply, rule
from tests.gitea.world import REPO, World
from tests.support import eventually_async

PATCH = "*** Begin Patch\n*** Update File: README.md\n@@\n-# Widgets\n+# Better widgets\n*** End Patch\n"
CHANGE = ([{"patch": PATCH}], [reply("Fixed.")], "Done.")
COMMENTS = "/issues/1/comments"


def posts(world: World) -> int:
    """Returns how many comments were written on the issue, whoever asked for it."""
    return len([each for each in world.admin.requests(method="POST") if each["path"].endswith(COMMENTS)])


async def request(world: World, verb: Any, target: str) -> dict[str, Any]:
    wish = operate.Wish(verb, target, "admin:op", "because")
    cmd = operate.command(wish, f"{verb}-{world.clock.now()}")
    return await world.port.do(cmd, operate.body(world.gear.settings), wish)


async def test_ac_05_one_task_a_repository_one_thread_an_issue(world: World) -> None:
    # GW-R-244, GW-R-002, GW-R-116
    other_repo = world.admin.repo(
        "acme", "gadgets", {"a.txt": "a\n"}, collaborators={"alice": "admin", "codebot": "write"}
    )
    elsewhere = replace(world, repo=other_repo, issue=world.admin.issue("acme/gadgets", "alice", "Other", ""))
    second_issue = world.admin.issue(REPO, "alice", "Second", "")
    waits = rule("please", [{"hold": "gate"}, reply("Done.")], "Said.")
    async with life(world, waits) as alive:
        first = await mention(world, "please one")
        second = await mention(replace(world, issue=second_issue), "please two")
        third = await mention(elsewhere, "please three")
        await alive.until(first, "running")
        await alive.until(third, "running")
        for _ in range(20):
            await alive.scheduler.tick(0)
        assert (await world.task(second.id)).state == "queued"
        alive.model.release("gate")
        ended = [await alive.until(task) for task in (first, second, third)]
        assert [task.state for task in ended] == ["succeeded"] * 3
        threads = {await alive.thread(task) for task in ended}
        assert len(threads) == 3
        again = await alive.until(await mention(world, "please more"))
        assert await alive.thread(again) == await alive.thread(ended[0])


async def test_ac_06_dirt_of_others_blocks_and_stays(world: World) -> None:
    # GW-R-245, GW-R-128, GW-R-109, GW-R-196
    async with life(world, rule("please", *CHANGE), rule("again", reply("Again."), "Said.")) as alive:
        first = await alive.until(await mention(world, "please fix"))
        tree = alive.gear.layout.tree(first.repository_id, "issue-1")
        (tree / "mine.txt").write_text("precious")
        (tree / "README.md").write_text("half an edit")
        before = contents(tree)
        said = len(world.said())
        blocked = await alive.until(await mention(world, "again please"))
        assert (blocked.state, blocked.error_code) == ("blocked_workspace", "workspace_dirty")
        assert contents(tree) == before
        assert len(world.said()) == said
        unblocker = Unblocker(alive.gear)
        await request(world, "unblock", blocked.id)
        assert await unblocker.tick(0) == 1
        assert (await world.task(blocked.id)).state == "blocked_workspace"
        (tree / "mine.txt").unlink()
        (tree / "README.md").write_text("# Better widgets\n")
        await request(world, "unblock", blocked.id)
        assert await unblocker.tick(0) == 1
        assert (await alive.until(blocked)).state == "succeeded"


async def test_ac_06_a_second_block_leaves_only_cancelling(world: World) -> None:
    # GW-R-109
    async with life(world, rule("please", *CHANGE)) as alive:
        first = await alive.until(await mention(world, "please fix"))
        tree = alive.gear.layout.tree(first.repository_id, "issue-1")
        (tree / "mine.txt").write_text("precious")
        task = await alive.until(await mention(world, "please fix more"))
        (tree / "mine.txt").rename(tree.parent / "kept.txt")
        await request(world, "unblock", task.id)
        await Unblocker(alive.gear).tick(0)
        (tree / "mine.txt").write_text("precious again")
        assert (await alive.until(task)).state == "blocked_workspace"
        with pytest.raises(Illegal, match="only be cancelled"):
            await request(world, "unblock", task.id)
        await request(world, "cancel", task.id)
        assert (await world.task(task.id)).state == "cancelled"
    assert (tree / "mine.txt").read_text() == "precious again"


def contents(tree: Path) -> dict[str, bytes]:
    return {str(path.relative_to(tree)): path.read_bytes() for path in sorted(tree.rglob("*")) if path.is_file()}


async def test_ac_09_a_tools_success_without_a_comment_is_none(world: World) -> None:
    # GW-R-248, GW-R-004: the forge says yes to every comment and shows none of them
    world.fault("hide_comment", count=None, match={"body": "Fixed|Posted|Done"})
    posting = rule("Your answer for", reply("Fixed."), "Posted.")
    async with life(world, rule("please", *CHANGE), posting) as alive:
        ended = await alive.until(await mention(world, "please fix"))
        assert ended.state == "failed_reply"
        assert "accepted" in alive.requests()


async def test_ac_10_a_missing_reply_is_posted_once_by_the_host(world: World) -> None:
    # GW-R-249, GW-R-170, GW-R-171, GW-R-105
    async with life(world, rule("please", "It is fixed."), rule("Your answer for", "No.")) as alive:
        ended = await alive.until(await mention(world, "please fix"))
        turns = await world.port.read(store.turns, ended.id)
    assert ended.state == "succeeded_with_rest_fallback"
    assert ended.reply_failure == "mcp_reply_missing"
    assert [turn.kind for turn in turns] == ["normal", "reply_retry"]
    assert len(world.said()) == 2


async def test_ac_11_a_thread_that_cannot_be_read_gets_no_second_answer(world: World) -> None:
    # GW-R-250, GW-R-169
    world.fault("answer", count=None, skip=1, match={"method": "GET", "path": "comments"}, status=500)
    async with life(world, rule("please", "It is fixed.")) as alive:
        ended = await alive.until(await mention(world, "please fix"))
    assert (ended.state, ended.error_code) == ("failed_reply", "reply_status_unknown")
    assert not [text for text in world.said() if "It is fixed" in text]


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "drop_after"},
        {"kind": "answer", "status": 502, "effect": True},
        {"kind": "delay", "seconds": 15, "when": "after"},
    ],
    ids=["dropped", "502", "hangs"],
)
async def test_a_comment_that_the_forge_took_without_saying_so_is_posted_once(
    world: World, fault: dict[str, Any]
) -> None:
    # GW-R-003, GW-R-124, GW-R-138
    given = dict(fault)
    world.fault(given.pop("kind"), match={"method": "POST", "path": "comments", "body": "Fixed"}, **given)
    async with life(world, rule("please", *CHANGE)) as alive:
        ended = await alive.until(await mention(world, "please fix"))
        assert ended.state == "succeeded"
    assert len([text for text in world.said() if "Fixed." in text]) == 1
    assert posts(world) == 2


async def test_ac_14_an_abort_that_nobody_confirms_ends_in_time(world: World) -> None:
    # GW-R-253, GW-R-179, GW-R-205
    slow = rule("please", [{"patch": PATCH}], [{"hold": "gate"}])
    async with life(world, slow, abort_timeout_s=0.5) as alive:
        task = await mention(world, "please fix")
        await alive.until(task, "running")
        await edited(alive, task)
        run = await newest_run(world, task)
        for pid in process.marked(run):
            os.kill(pid, signal.SIGSTOP)
        await abort(world, task)
        ended = await alive.until(task)
        assert (ended.state, ended.error_code) == ("failed", "abort_timeout")
        assert process.marked(run) == []
        assert await world.lease(task) is None
        assert committed(alive, task) == "# Better widgets\n"


async def newest_run(world: World, task: Task) -> str:
    return (await world.port.read(jobs.of_subject, task.id))[-1].id


def committed(alive: Life, task: Task, path: str = "README.md") -> str:
    """Returns a file as the task branch has it."""
    bare = alive.gear.layout.bare(task.repository_id)
    return alive.gear.git.bare(bare, "show", f"stationmaster/issue-1:{path}").stdout


async def test_a_question_after_half_the_work_leaves_it_committed(world: World) -> None:
    # GW-R-204; the agent makes a repository of its own inside; a person commits on the task branch meanwhile
    half = rule(
        "please",
        [{"patch": PATCH}],
        [{"shell": "mkdir sub && cd sub && git init -q . && echo two > two.txt"}],
        [ask("Go on?")],
        "Waiting.",
    )
    async with life(world, half, rule("yes", reply("Finished."), "Said.")) as alive:
        task = await mention(world, "please fix")
        assert (await alive.until(task)).state == "waiting_user"
        assert committed(alive, task) == "# Better widgets\n"
        assert committed(alive, task, "sub/two.txt") == "two\n"
        assert (await alive.until(await mention(world, "yes go on"))).state == "succeeded"
        world.admin.commit(REPO, "alice", {"person.txt": "mine\n"}, branch="stationmaster/issue-1", message="By hand")
        more = await alive.until(await mention(world, "yes once more"))
        assert more.state == "succeeded"
        assert committed(alive, task, "person.txt") == "mine\n"
    assert "nested repository set aside" in "\n".join(world.said())


async def test_a_model_that_fails_for_a_moment_costs_the_one_retry(world: World) -> None:
    # GW-R-212, GW-R-107
    broken = rule("may have partially completed", reply("Done at last."), "Said.")
    async with life(world, broken, rule("please", {"http": 503})) as alive:
        ended = await alive.until(await mention(world, "please fix"))
        assert (ended.state, ended.attempt) == ("succeeded", 1)


async def test_tool_set_of_another_birth_replaces_the_thread(world: World) -> None:
    # GW-R-036: a thread keeps the tools of its birth
    async with life(world, rule("please", reply("Done."), "Said.")) as alive:
        first = await alive.until(await mention(world, "please one"))
        old = await alive.thread(first)
        session = await world.port.read(store.session, first.session_id)
        await world.do("thread.forge", first, _reborn, session.id)
        second = await alive.until(await mention(world, "please two"))
        assert second.state == "succeeded"
        assert await alive.thread(second) != old
    replaced = await world.history(second, "thread.replaced")
    assert [entry.data["reason"] for entry in replaced if entry.data] == ["tools_changed"]


async def test_a_conversation_that_is_gone_is_begun_anew_and_says_so(world: World) -> None:
    # GW-R-211, GW-R-036: Codex no longer has what it wrote of the thread
    async with life(world, rule("please", reply("Done."), "Said.")) as alive:
        first = await alive.until(await mention(world, "please one"))
        old = await alive.thread(first)
        (kept,) = alive.gear.codex.home.rglob(f"rollout-*{old}.jsonl*")
        kept.unlink()
        second = await alive.until(await mention(world, "please two"))
        assert (second.state, second.attempt) == ("succeeded", 0)
        new = await alive.thread(second)
        assert new != old
        third = await alive.until(await mention(world, "please three"))
        assert await alive.thread(third) == new
    replaced = await world.history(second, "thread.replaced")
    assert [entry.data["reason"] for entry in replaced if entry.data] == ["session_unrecoverable"]


def _reborn(tx: Any, session_id: str) -> None:
    session = store.session(tx, session_id)
    tx.move(SESSION, session.id, "replace_thread", rev=session.rev, thread_id=session.thread_id, tool_set="scoped-old",
            updated_at=tx.now)  # fmt: skip


async def test_ac_13_a_lost_lease_ends_the_run_without_another_word(world: World) -> None:
    # GW-R-252, GW-R-121: another holder appears while the agent works
    slow = rule("please", [{"patch": PATCH}], [{"hold": "gate"}, reply("Too late.")], "Done.")
    async with life(world, slow, ttl_s=1.0, heartbeat_s=0.2) as alive:
        task = await mention(world, "please fix")
        await alive.until(task, "running")
        await edited(alive, task)
        lease = await world.lease(task)
        assert lease is not None
        await world.do("lease.take", task, _take_over, lease)
        await eventually_async(lambda: _idle(alive))
        assert (await world.task(task.id)).state == "running"
        assert process.marked(await newest_run(world, task)) == []
        alive.model.release("gate")
    assert len(world.said()) == 1


async def _idle(alive: Life) -> bool:
    return not alive.scheduler.task_ids


async def test_a_model_that_stays_broken_fails_the_task_once_and_says_so(world: World) -> None:
    # GW-R-212: the one retry is spent, and nobody is asked again
    async with life(world, rule("please|partially", {"http": 503})) as alive:
        ended = await alive.until(await mention(world, "please fix"))
        assert (ended.state, ended.attempt, ended.error_code) == ("failed", 1, "turn_failed")
        assert await world.lease(ended) is None


async def test_a_clone_that_is_refused_twice_fails_the_task_without_a_turn(world: World) -> None:
    # GW-R-195
    world.fault("answer", status=401, match={"path": "info/refs"}, count=None)
    async with life(world, rule("please", reply("Done."), "Said.")) as alive:
        ended = await alive.until(await mention(world, "please fix"))
        assert (ended.state, ended.attempt, ended.error_code) == ("failed", 1, "git_auth_failed")
        assert await world.lease(ended) is None
        assert await world.port.read(jobs.of_subject, ended.id) == []


def _take_over(tx: Any, lease: Any) -> None:
    leases.release(tx, lease)
    leases.acquire(tx, kind=lease.kind, key=lease.key, owner="worker_two", incarnation="other", subject=lease.subject,
                   ttl_s=60)  # fmt: skip


async def test_an_agent_that_does_not_answer_is_tried_once_more(world: World, tmp_path: Path) -> None:
    # GW-R-199, GW-R-153, GW-R-107
    silent = tmp_path / "bin" / "codex"
    silent.parent.mkdir()
    silent.write_text("#!/bin/sh\nexec sleep 600\n")
    silent.chmod(0o755)
    async with life(world, codex={"command": silent, "request_timeout_s": 0.3}) as alive:
        ended = await alive.until(await mention(world, "please fix"))
        assert (ended.state, ended.error_code, ended.attempt) == ("failed", "app_server_timeout", 1)
        runs = await world.port.read(jobs.of_subject, ended.id)
        assert [run.state for run in runs] == ["failed", "failed"]
        assert [process.marked(run.id) for run in runs] == [[], []]
    assert [text.split("\n")[0] for text in world.said()] == [
        "giteabot: 已收到",
        "giteabot: the task failed: the agent did not answer in time.",
    ]
