"""What a worker that died left behind: its intents are opened for real and never closed, its leavings made by hand."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from stationmaster.errors import Busy
from stationmaster.gitea import acts, codes, prepare, publish
from stationmaster.gitea.gear import Hold
from stationmaster.gitea.prepare import Blocked
from stationmaster.workspaces import mirror, worktree
from tests.gitea.workshop import FIRST, Job, at_forge, begin, claimed, done, git, open_intents, outcomes
from tests.gitea.world import REPO, World
from tests.support import eventually_async


async def died_in(world: World, hold: Hold, action: str, **about: Any) -> int:
    """Opens an intent and leaves it so; returns its seq."""
    bare = world.gear.layout.bare(hold.task.repository_id)
    subject = hold.task.id if action in {"git.commit", "git.push", "pull.create"} else hold.task.repository_id
    told = about if action == "pull.create" else {"bare": str(bare), **about}
    seq = 0
    with contextlib.suppress(asyncio.CancelledError):
        async with acts.act(world.gear, hold.task, action, subject=subject, hold=hold, about=told) as doing:
            seq = doing.seq
            raise asyncio.CancelledError
    assert [intent.seq for intent in await open_intents(world)] == [seq]
    return seq


async def closed(world: World, hold: Hold, action: str) -> dict[str, Any]:
    """Returns what the one compensation of an action says; no intent is open any more."""
    assert await open_intents(world) == []
    (entry,) = [row for row in await world.history(hold.task, f"{action}.result") if "recovery" in (row.data or {})]
    return {"outcome": entry.outcome, **(entry.data or {})}


async def test_a_half_made_clone_is_renamed_and_made_again(world: World) -> None:  # GW-R-189 GW-R-190
    hold = await claimed(world)
    bare = world.gear.layout.bare(hold.task.repository_id)
    part = mirror.part_of(bare)
    seq = await died_in(world, hold, "git.clone", part=str(part))
    part.mkdir(parents=True)
    (part / "HEAD").write_text("half")
    place = await prepare.workplace(world.gear, hold, hold.task)
    assert place.head == at_forge(world)["main"]
    orphan = part.with_name(f"{part.name}.orphan-{seq}")
    assert (orphan / "HEAD").read_text() == "half"
    told = await closed(world, hold, "git.clone")
    assert (told["outcome"], told["recovery"], told["moved"]) == ("unknown", "put_away", [str(orphan)])
    # Once more: nothing is left to do.
    assert await prepare.reclaim(world.gear, hold.task) == ()


async def test_a_half_made_worktree_is_renamed_and_made_again(world: World) -> None:
    job = await begin(world)
    await job.end()
    tree, bare = job.place.tree, job.place.bare
    hold = await claimed(world, text="again")
    seq = await died_in(world, hold, "git.branch", tree=str(tree), branch_step="cut")
    (bare / "worktrees" / "issue-1" / "locked").write_text("initializing\n")
    (tree / "README.md").unlink()
    place = await prepare.workplace(world.gear, hold, hold.task)
    assert (place.tree / "README.md").exists()
    assert (tree.with_name(f"issue-1.orphan-{seq}") / "src" / "app.py").exists()
    assert (bare / "orphaned" / f"issue-1.orphan-{seq}").is_dir()
    assert (await closed(world, hold, "git.branch"))["recovery"] == "put_away"


async def test_a_switch_that_was_broken_off_leaves_no_dirt(world: World) -> None:
    job = await done(world)
    hold = await claimed(world, text="again")
    seq = await died_in(world, hold, "git.branch", tree=str(job.place.tree), branch_step="forward")
    (job.place.tree / "half-checked-out.txt").write_text("half\n")
    (job.place.bare / "worktrees" / "issue-1" / "index.lock").touch()
    place = await prepare.workplace(world.gear, hold, hold.task)
    assert git("status", "--porcelain", cwd=place.tree) == ""
    assert (place.branch.name, place.head) == (FIRST, at_forge(world)[FIRST])
    assert (place.tree.with_name(f"issue-1.orphan-{seq}") / "half-checked-out.txt").exists()
    assert (place.bare / "orphaned" / f"index.lock.orphan-{seq}").exists()


async def test_a_step_that_left_nothing_wrong_keeps_its_worktree(world: World) -> None:
    job = await done(world)
    hold = await claimed(world, text="again")
    await died_in(world, hold, "git.branch", tree=str(job.place.tree), branch_step="forward")
    assert (await prepare.workplace(world.gear, hold, hold.task)).tree.stat().st_ino == job.place.tree.stat().st_ino
    assert (await closed(world, hold, "git.branch"))["recovery"] == "done_again"


async def test_locks_born_under_our_act_are_put_away(world: World) -> None:
    job = await done(world)
    bare = job.place.bare
    hold = await claimed(world, text="again")
    seq = await died_in(world, hold, "git.fetch")
    ours = [bare / "packed-refs.lock", bare / "refs" / "remotes" / "origin" / "main.lock"]
    for lock in ours:
        lock.touch()
    await prepare.workplace(world.gear, hold, hold.task)
    assert not any(lock.exists() for lock in ours)
    assert {path.name for path in (bare / "orphaned").iterdir()} == {f"{lock.name}.orphan-{seq}" for lock in ours}


async def test_a_lock_that_was_there_before_our_act_is_foreign(world: World) -> None:  # GW-R-128
    job = await done(world)
    lock = job.place.bare / "packed-refs.lock"
    lock.touch()
    hold = await claimed(world, text="again")
    await died_in(world, hold, "git.fetch")
    with pytest.raises(Blocked) as blocked:
        await prepare.workplace(world.gear, hold, hold.task)
    assert blocked.value.code == codes.WORKSPACE_LOCKED
    assert lock.exists()


async def test_a_save_that_was_broken_off_is_done_by_recovery(world: World) -> None:
    job = await begin(world)
    job.write("half.txt", "half\n")
    tree, bare = job.place.tree, job.place.bare
    await died_in(world, job.hold, "git.commit", tree=str(tree))
    lock = bare / "worktrees" / "issue-1" / "index.lock"
    lock.touch()
    # An agent's repository had taken the place of the tree's own `.git`, and was just moved away.
    (tree / ".git").unlink()
    await prepare.reclaim(world.gear, job.task)
    assert not lock.exists()
    place = await prepare.standing(world.gear, job.task)
    assert place is not None
    saved = await publish.save(world.gear, job.task, job.run_id, place, "interrupted")
    assert saved is not None
    assert saved.changed
    assert git("show", f"{FIRST}:half.txt", cwd=bare) == "half"
    assert (await closed(world, job.hold, "git.commit"))["outcome"] == "unknown"


async def pushed_by_hand(job: Job) -> str:
    job.write("a.txt", "one\n")
    saved = await job.save()
    assert saved is not None
    return str(saved.after)


async def test_a_push_that_arrived_is_found(world: World) -> None:  # GW-R-189
    job = await begin(world)
    sha = await pushed_by_hand(job)
    await died_in(world, job.hold, "git.push", branch=FIRST, sha=sha)
    gear = world.gear
    assert mirror.push(gear.git, job.place.bare, gear.credential, sha, FIRST).kind == "done"
    await prepare.reclaim(gear, job.task)
    assert (await closed(world, job.hold, "git.push"))["outcome"] == "done"
    assert (await job.branch()).published_sha == sha
    # A retry that changes nothing opens the pull request, and names the work.
    published = await job.publish()
    assert published.footer == (f"Commit {sha} · #{published.pull}",)
    assert len(world.admin.pulls(REPO)) == 1


async def test_a_push_that_did_not_arrive_is_told_and_done_again(world: World) -> None:
    job = await begin(world)
    sha = await pushed_by_hand(job)
    await died_in(world, job.hold, "git.push", branch=FIRST, sha=sha)
    await prepare.reclaim(world.gear, job.task)
    assert (await closed(world, job.hold, "git.push"))["outcome"] == "not_done"
    assert (await job.branch()).published_sha is None
    assert (await job.publish()).sha == sha == at_forge(world)[FIRST]


async def test_a_push_that_cannot_be_read_back_stays_unknown(world: World) -> None:
    job = await begin(world)
    sha = await pushed_by_hand(job)
    await died_in(world, job.hold, "git.push", branch=FIRST, sha=sha)
    world.fault("drop_before", count=None)
    await prepare.reclaim(world.gear, job.task)
    assert (await closed(world, job.hold, "git.push"))["outcome"] == "unknown"


@pytest.mark.parametrize("arrived", [True, False])
async def test_an_opening_is_read_back(world: World, *, arrived: bool) -> None:
    job = await begin(world)
    sha = await pushed_by_hand(job)
    gear = world.gear
    assert mirror.push(gear.git, job.place.bare, gear.credential, sha, FIRST).kind == "done"
    await died_in(world, job.hold, "pull.create", head=FIRST, base="main")
    number = world.admin.pull(REPO, "codebot", head=FIRST, title="Ours") if arrived else None
    await prepare.reclaim(gear, job.task)
    told = await closed(world, job.hold, "pull.create")
    assert (told["outcome"], told["number"]) == ("done" if arrived else "not_done", number)
    assert (await job.branch()).pull_number == number


async def test_what_still_goes_on_is_left_alone(world: World) -> None:
    job = await done(world)
    hold = await claimed(world, text="again")
    bare, go = job.place.bare, threading.Event()

    async def fetching() -> None:
        about = {"bare": str(bare)}
        async with acts.act(
            world.gear, hold.task, "git.fetch", subject=hold.task.repository_id, hold=hold, about=about
        ) as doing:
            begun.set()
            await doing.off(go.wait)

    begun = asyncio.Event()
    work = asyncio.create_task(fetching())
    await begun.wait()
    await asyncio.sleep(0)
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work
    # Nobody waits for it any more, but it goes on in its thread.
    with pytest.raises(Busy):
        await prepare.reclaim(world.gear, hold.task)
    go.set()

    async def reclaimed() -> bool:
        try:
            await prepare.reclaim(world.gear, hold.task)
        except Busy:
            return False
        return True

    assert await eventually_async(reclaimed)
    assert await outcomes(world, hold.task, "git.fetch") == ["unknown"]


async def test_a_git_process_of_the_dead_worker_is_waited_for(world: World, tmp_path: Path) -> None:
    job = await done(world)
    hold = await claimed(world, text="again")
    await died_in(world, hold, "git.fetch")
    program = tmp_path / "git"
    program.symlink_to(sys.executable)
    wait = "import sys; sys.stdin.read()"
    alive = await asyncio.create_subprocess_exec(
        str(program), "-c", wait, f"--git-dir={job.place.bare}", stdin=asyncio.subprocess.PIPE
    )
    try:
        with pytest.raises(Busy):
            await prepare.reclaim(world.gear, hold.task)
    finally:
        await alive.communicate(b"")
    await prepare.reclaim(world.gear, hold.task)
    assert await outcomes(world, hold.task, "git.fetch") == ["unknown"]
    assert worktree.is_registered(job.place.bare, job.place.tree)
