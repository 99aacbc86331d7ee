from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from stationmaster.errors import NotFound, Stale, Unavailable
from stationmaster.gitea import codes, prepare, store
from stationmaster.gitea.prepare import Blocked
from stationmaster.gitea.store import Q
from stationmaster.ledger.tx import Reader
from stationmaster.workspaces import mirror, worktree
from tests.gitea.workshop import (
    FIRST,
    Job,
    at_forge,
    begin,
    begin_claimed,
    claimed,
    done,
    git,
    open_intents,
    outcomes,
    person_commits,
    with_settings,
)
from tests.gitea.world import ASKER, BOT, REPO, World
from tests.workspaces.conftest import picture


def last_fetch(reader: Reader, repository_id: str) -> int | None:
    row = reader.one(Q.last_fetch, repository_id=repository_id)
    return None if row is None else int(row["last_fetch_at"])


def remote(job: Job, branch: str = FIRST) -> str | None:
    return at_forge(job.world).get(branch)


# --- clone, fetch, the resource ---------------------------------------------------------------------------------------


async def test_the_first_task_clones_and_cuts_a_branch_from_the_default_tip(world: World) -> None:  # GW-R-126 GW-R-129
    job = await begin(world)
    place, tip = job.place, at_forge(world)["main"]
    assert (place.head, place.branch.name, place.branch.base_sha) == (tip, FIRST, tip)
    assert (place.tree / "src" / "app.py").read_text() == "print('a')\n"
    assert git("status", "--porcelain", cwd=place.tree) == ""
    assert git("symbolic-ref", "HEAD", cwd=place.tree) == f"refs/heads/{FIRST}"
    assert place.notes == ()
    assert await outcomes(world, job.task, "git.clone") == ["done"]
    assert await outcomes(world, job.task, "git.branch") == ["done"]
    assert await world.port.read(last_fetch, job.task.repository_id)
    assert await open_intents(world) == []
    assert await prepare.standing(world.gear, job.task) == place


async def test_no_credential_stays_in_the_workspace(world: World) -> None:  # GW-R-127
    job = await begin(world)
    token = world.gear.settings.token.reveal()
    for folder, _, names in os.walk(world.gear.layout.root):
        assert not any(token.encode() in (Path(folder) / name).read_bytes() for name in names)
    assert "@" not in git("config", "remote.origin.url", cwd=job.place.bare)


async def test_the_next_task_fetches_and_only_success_counts(world: World) -> None:  # GW-R-126
    job = await done(world)
    first = await world.port.read(last_fetch, job.task.repository_id)
    hold = await claimed(world, text="again")
    world.fault("answer", status=503, match={"path": "info/refs"})
    with pytest.raises(Unavailable) as away:
        await prepare.workplace(world.gear, hold, hold.task)
    assert away.value.code == codes.GIT_NETWORK_FAILED
    assert await world.port.read(last_fetch, job.task.repository_id) == first
    await prepare.workplace(world.gear, hold, hold.task)
    assert (await world.port.read(last_fetch, job.task.repository_id) or 0) > (first or 0)
    assert await outcomes(world, hold.task, "git.fetch") == ["failed", "done"]


async def test_a_refused_clone_is_an_authentication_failure(world: World) -> None:  # GW-R-131 GW-R-195
    hold = await claimed(world)
    world.fault("answer", status=403, match={"path": "info/refs"}, count=None)
    with pytest.raises(Unavailable) as refused:
        await prepare.workplace(world.gear, hold, hold.task)
    assert refused.value.code == codes.GIT_AUTH_FAILED
    assert codes.retryable(codes.GIT_AUTH_FAILED)
    assert not world.gear.layout.repository(hold.task.repository_id).exists()
    assert await open_intents(world) == []


async def test_a_clone_that_breaks_off_is_put_away_at_once(world: World) -> None:  # GW-R-131 GW-R-190
    hold = await claimed(world)
    # The third request for content is the fetch itself.
    world.fault("drop_midway", match={"path": "git-upload-pack$", "method": "POST"}, skip=2)
    bare = world.gear.layout.bare(hold.task.repository_id)
    with pytest.raises(Unavailable) as broken:
        await prepare.workplace(world.gear, hold, hold.task)
    assert broken.value.code == codes.GIT_NETWORK_FAILED
    (entry,) = await world.history(hold.task, "git.clone.result")
    (moved,) = (entry.data or {})["moved"]
    assert [str(path) for path in bare.parent.iterdir()] == [moved]
    assert moved == f"{bare}.part.orphan-{entry.intent}"
    assert (await prepare.workplace(world.gear, hold, hold.task)).bare == bare


async def test_what_is_gone_at_the_forge_is_said(world: World) -> None:  # GW-R-131
    hold = await claimed(world)
    world.fault("answer", status=404, match={"path": "/issues/1$"}, body="{}", content_type="application/json")
    with pytest.raises(NotFound) as gone:
        await prepare.workplace(world.gear, hold, hold.task)
    assert gone.value.code == codes.RESOURCE_GONE
    world.admin.collaborator(REPO, BOT, "none")
    with pytest.raises(NotFound) as missing:
        await prepare.workplace(world.gear, hold, hold.task)
    assert missing.value.code == codes.GIT_REPO_MISSING


async def test_a_renamed_repository_and_a_new_default_branch_are_followed(world: World) -> None:
    job = await done(world)
    world.admin.commit(REPO, ASKER, {"trunk.txt": "t\n"}, branch="trunk")
    world.admin.repo_settings(REPO, default_branch="trunk")
    hold = await claimed(world, number=world.admin.issue(REPO, ASKER, "Another"))
    world.admin.rename(REPO, name="gadgets")
    again = await prepare.workplace(world.gear, hold, hold.task)
    assert (again.tree / "trunk.txt").exists()
    repository = await world.port.read(store.repository, job.task.repository_id)
    assert (repository.name, repository.default_branch) == ("gadgets", "trunk")
    assert git("config", "remote.origin.url", cwd=again.bare).endswith("/acme/gadgets.git")


async def test_a_repository_without_commits_has_nothing_to_start_from(world: World) -> None:
    world.repo = world.admin.repo("acme", "empty", {}, private=True, collaborators={ASKER: "admin", BOT: "write"})
    number = world.admin.issue("acme/empty", ASKER, "Begin")
    if at_empty := world.admin.branches("acme/empty"):
        world.admin.delete_branch("acme/empty", ASKER, next(iter(at_empty)))
    hold = await claimed(world, number=number)
    with pytest.raises(NotFound) as nothing:
        await prepare.workplace(world.gear, hold, hold.task)
    assert nothing.value.code == codes.GIT_REF_MISSING


async def test_nothing_is_done_without_the_lease(world: World) -> None:  # GW-R-121
    hold = await claimed(world)
    await world.lose(hold)
    with pytest.raises(Stale):
        await prepare.workplace(world.gear, hold, hold.task)
    assert not world.gear.layout.repository(hold.task.repository_id).exists()


# --- the branch of the next task --------------------------------------------------------------------------------------


async def test_two_tasks_continue_one_branch(world: World) -> None:
    first = await done(world)
    second = await begin(world, text="go on")
    assert (second.place.branch.id, second.place.head) == (first.place.branch.id, remote(first))
    assert (second.place.tree / "a.txt").read_text() == "one\n"
    assert second.place.notes == ()


async def test_a_persons_commit_on_the_task_branch_is_taken_up(world: World) -> None:
    await done(world)
    theirs = person_commits(world, FIRST)
    job = await begin(world, text="go on")
    assert job.place.head == theirs
    assert (job.place.tree / "person.txt").read_text() == "by hand\n"
    assert job.place.branch.name == FIRST


async def test_a_branch_that_went_another_way_keeps_our_side_aside(world: World) -> None:
    with_settings(world, push="off")
    job = await begin(world)
    job.write("ours.txt", "ours\n")
    await job.publish()
    await job.end()
    ours = git("rev-parse", FIRST, cwd=job.place.bare)
    theirs = person_commits(world, FIRST)
    again = await begin(world, text="go on")
    kept = f"stationmaster/saved/{again.task.id}"
    assert again.place.head == theirs
    assert again.place.branch.name == FIRST
    assert git("rev-parse", kept, cwd=again.place.bare) == ours
    assert again.place.notes == (f"Earlier unpublished work kept as {ours} on `{kept}`",)
    # A later try of the same task still says it, and moves nothing.
    place = await prepare.workplace(world.gear, again.hold, again.task)
    assert (place.notes, place.head) == (again.place.notes, theirs)


async def test_a_branch_rewritten_below_what_was_published_is_left(world: World) -> None:
    job = await done(world)
    world.admin.set_branch(REPO, ASKER, FIRST, at_forge(world)["main"])
    theirs = person_commits(world, FIRST)
    again = await begin(world, text="go on")
    assert (again.place.branch.name, again.place.head) == (f"{FIRST}-2", theirs)
    rows = await world.port.read(store.branches, job.task.session_id)
    assert [(row.name, row.state) for row in rows] == [(FIRST, "retired"), (f"{FIRST}-2", "current")]


@pytest.mark.parametrize("style", ["merge", "squash"])
async def test_after_a_merge_the_next_branch_starts_from_the_default_tip(world: World, style: str) -> None:
    job = await done(world)
    (pull,) = world.admin.pulls(REPO)
    tip = world.admin.merge(REPO, int(pull["number"]), ASKER, style=style, delete_branch=False)
    again = await done(world, "b.txt", text="go on")
    assert (again.place.branch.name, again.place.branch.base_sha) == (f"{FIRST}-2", tip)
    # And the third counts on.
    world.admin.merge(REPO, int(world.admin.pulls(REPO)[-1]["number"]), ASKER)
    third = await begin(world, text="once more")
    assert third.place.branch.name == f"{FIRST}-3"
    assert job.place.branch.name == FIRST


async def test_a_merge_is_also_seen_in_the_commits(world: World) -> None:
    with_settings(world, push="branch")
    job = await done(world)
    world.admin.set_branch(REPO, ASKER, "main", str(remote(job)))
    again = await begin(world, text="go on")
    assert (again.place.branch.name, again.place.head) == (f"{FIRST}-2", remote(job))


async def test_a_deleted_branch_is_not_made_again(world: World) -> None:
    await done(world)
    world.admin.delete_branch(REPO, ASKER, FIRST)
    job = await begin(world, text="go on")
    assert (job.place.branch.name, job.place.head) == (f"{FIRST}-2", at_forge(world)["main"])
    assert not (job.place.tree / "a.txt").exists()


async def test_unpublished_work_below_a_deleted_branch_is_named(world: World) -> None:
    await done(world)
    with_settings(world, push="off")
    job = await begin(world, text="more")
    job.write("more.txt", "more\n")
    await job.end()
    ours = git("rev-parse", FIRST, cwd=job.place.bare)
    world.admin.delete_branch(REPO, ASKER, FIRST)
    again = await begin(world, text="go on")
    assert again.place.notes == (f"Earlier unpublished work kept as {ours} on `{FIRST}`",)
    assert git("rev-parse", FIRST, cwd=job.place.bare) == ours


# --- pull requests ----------------------------------------------------------------------------------------------------


def pull(world: World, branch: str = "feature") -> int:
    person_commits(world, branch, "feature.txt", "f\n")
    return world.admin.pull(REPO, ASKER, head=branch, title="Feature")


async def test_a_pull_request_is_worked_on_from_its_head(world: World) -> None:  # GW-R-129
    number = pull(world)
    job = await begin(world, number=number, kind="pull_request")
    head = at_forge(world)["feature"]
    assert (job.place.branch.name, job.place.head) == (f"stationmaster/pull_request-{number}", head)
    assert job.place.notes == (f"Based on {head} of `feature`",)
    assert (job.place.tree / "feature.txt").exists()


async def test_a_head_that_moved_on_is_followed_or_a_new_branch_is_cut(world: World) -> None:
    number = pull(world)
    given: dict[str, Any] = {"number": number, "kind": "pull_request"}
    await begin_and_end(world, given)
    moved = person_commits(world, "feature", "two.txt")
    job = await begin(world, text="go on", **given)
    assert (job.place.branch.name, job.place.head) == (f"stationmaster/pull_request-{number}", moved)
    job.write("ours.txt", "ours\n")
    await job.publish()
    await job.end()
    moved = person_commits(world, "feature", "three.txt")
    job = await begin(world, text="go on", **given)
    assert (job.place.branch.name, job.place.head) == (f"stationmaster/pull_request-{number}-2", moved)


async def begin_and_end(world: World, given: dict[str, Any]) -> None:
    await (await begin(world, **given)).end()


async def test_a_head_without_a_branch_is_read_from_the_pull_request(world: World) -> None:  # GW-R-129
    number = pull(world)
    head = at_forge(world)["feature"]
    world.admin.delete_branch(REPO, ASKER, "feature")
    job = await begin(world, number=number, kind="pull_request")
    assert job.place.head == head


# --- what is foreign --------------------------------------------------------------------------------------------------


async def blocked(world: World, code: str, **mention: Any) -> Blocked:
    hold = await claimed(world, text="go on", **mention)
    roots = [world.gear.layout.root]
    before = picture(*roots)
    with pytest.raises(Blocked) as raised:
        await prepare.workplace(world.gear, hold, hold.task)
    assert picture(*roots) == before
    assert raised.value.problem.code == raised.value.code == code
    assert await open_intents(world) == []
    return raised.value


async def test_foreign_dirt_blocks_and_stays(world: World) -> None:  # GW-R-128 GW-R-196
    job = await done(world)
    (job.place.tree / "mine.txt").write_text("a person was here\n")
    assert "mine.txt" in str(await blocked(world, codes.WORKSPACE_DIRTY))


async def test_a_stale_lock_blocks_and_stays(world: World) -> None:  # GW-R-128
    job = await done(world)
    (job.place.bare / "worktrees" / "issue-1" / "index.lock").touch()
    assert "index.lock" in str(await blocked(world, codes.WORKSPACE_LOCKED))


async def test_a_lock_of_the_shared_repository_blocks_the_repository(world: World) -> None:  # GW-R-034 GW-R-128
    job = await done(world)
    (job.place.bare / "packed-refs.lock").touch()
    assert (await blocked(world, codes.WORKSPACE_LOCKED)).problem.scope == "repository"


async def test_a_branch_checked_out_elsewhere_blocks(world: World, tmp_path: Path) -> None:
    job = await done(world)
    git("switch", "-q", "--detach", cwd=job.place.tree)
    git("worktree", "add", "-q", str(tmp_path / "elsewhere"), FIRST, cwd=job.place.bare)
    assert "elsewhere" in str(await blocked(world, codes.WORKSPACE_BRANCH_BUSY))


async def test_a_half_made_worktree_that_no_intent_names_blocks(world: World) -> None:
    job = await done(world)
    (job.place.bare / "worktrees" / "issue-1" / "locked").write_text("initializing\n")
    await blocked(world, codes.WORKSPACE_MISSING)


async def test_a_part_that_no_intent_names_blocks(world: World) -> None:
    hold = await claimed(world)
    part = mirror.part_of(world.gear.layout.bare(hold.task.repository_id))
    part.mkdir(parents=True)
    with pytest.raises(Blocked, match="unfinished clone"):
        await prepare.workplace(world.gear, hold, hold.task)
    assert list(part.parent.iterdir()) == [part]


async def test_a_symbolic_link_in_the_path_blocks(world: World, tmp_path: Path) -> None:  # GW-R-033
    hold = await claimed(world)
    folder = world.gear.layout.repository(hold.task.repository_id)
    folder.parent.mkdir(parents=True)
    folder.symlink_to(tmp_path / "outside")
    (tmp_path / "outside").mkdir()
    with pytest.raises(Blocked) as refused:
        await prepare.workplace(world.gear, hold, hold.task)
    assert refused.value.code == codes.WORKSPACE_PATH_INVALID
    assert list((tmp_path / "outside").iterdir()) == []


async def test_a_file_that_git_ignores_is_not_overwritten(world: World) -> None:
    world.admin.commit(REPO, ASKER, {".gitignore": "cache/\n"})
    job = await done(world)
    job.write("cache/x", "built\n")
    world.admin.commit(REPO, ASKER, {"cache/x": "theirs\n"}, branch=FIRST)
    hold = await claimed(world, text="go on")
    with pytest.raises(Blocked) as refused:
        await prepare.workplace(world.gear, hold, hold.task)
    assert refused.value.code == codes.WORKSPACE_DIRTY
    assert (job.place.tree / "cache" / "x").read_text() == "built\n"


async def test_the_same_task_may_be_prepared_twice(world: World) -> None:  # GW-R-190
    hold = await claimed(world)
    first = await prepare.workplace(world.gear, hold, hold.task)
    assert await prepare.workplace(world.gear, hold, hold.task) == first
    job = await begin_claimed(world, hold)
    assert await outcomes(world, job.task, "git.branch") == ["done"]


async def test_a_worktree_that_nobody_made_is_no_standing_place(world: World) -> None:
    hold = await claimed(world)
    assert await prepare.standing(world.gear, hold.task) is None
    place = await prepare.workplace(world.gear, hold, hold.task)
    assert worktree.is_registered(place.bare, place.tree)
    place.tree.rename(place.tree.with_name("away"))
    assert await prepare.standing(world.gear, hold.task) is None
