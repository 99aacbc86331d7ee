from __future__ import annotations

import pytest

from stationmaster.errors import Stale, Unavailable
from stationmaster.gitea import codes, store
from stationmaster.standins.forge import Forge as StandIn
from tests.gitea.workshop import (
    FIRST,
    at_forge,
    begin,
    done,
    git,
    open_intents,
    outcomes,
    person_commits,
    with_settings,
)
from tests.gitea.world import ASKER, BOT, REPO, World

PUSH = {"method": "POST", "path": "git-receive-pack$"}
OFFER = {"path": "service=git-receive-pack"}
OPEN = {"method": "POST", "path": "/pulls$"}
LIST = {"method": "GET", "path": "/pulls[?]"}


def requests(standin: StandIn, method: str, path: str) -> int:
    return len([row for row in standin.log if row["method"] == method and path in row["path"]])


async def test_the_work_is_committed_pushed_and_proposed(world: World) -> None:  # GW-R-227
    job = await begin(world)
    job.write("src/app.py", "print('b')\n")
    published = await job.publish(title="Say b", body="It says b now.")
    sha = at_forge(world)[FIRST]
    (pull,) = world.admin.pulls(REPO)
    assert published.sha == sha
    assert published.footer == (f"Commit {sha} · #{pull['number']}",)
    assert (published.pull, published.code) == (pull["number"], None)
    assert (pull["title"], pull["body"], pull["base"]["ref"]) == ("Say b", "It says b now.", "main")
    assert pull["user"]["login"] == BOT
    assert world.admin.file(REPO, FIRST, "src/app.py") == "print('b')\n"
    (commit, *_) = world.admin.commits(REPO, FIRST)
    assert commit["author"] == BOT
    assert commit["message"].strip() == f"Say b\n\nstationmaster: {job.task.id} {job.run_id} publish"
    row = await job.branch()
    assert (row.published_sha, row.pull_number) == (sha, pull["number"])
    for action in ("git.commit", "git.push", "pull.create"):
        assert await outcomes(world, job.task, action) == ["done"]
    assert await open_intents(world) == []
    assert world.said() == []


async def test_what_a_pull_request_says_by_default_comes_from_the_issue(world: World) -> None:
    await done(world)
    (pull,) = world.admin.pulls(REPO)
    assert pull["title"] == "#1: It is broken"
    assert "#1" in pull["body"]
    assert "ccweb" not in pull["body"]


async def test_an_unchanged_tree_publishes_nothing(world: World) -> None:
    job = await begin(world)
    published = await job.publish()
    assert (published.footer, published.sha, published.code) == ((), None, None)
    assert list(at_forge(world)) == ["main"]
    assert requests(world.standin, "POST", "/pulls") == 0
    # Nor after a task that published: the answer is all.
    await job.end()
    await done(world, text="change it")
    job = await begin(world, text="and what is it?")
    assert (await job.publish()).footer == ()
    assert await outcomes(world, job.task, "git.push") == []


async def test_a_second_publish_in_a_run_sends_only_what_is_new(world: World) -> None:
    job = await begin(world)
    job.write("a.txt", "one\n")
    first = await job.publish()
    again = await job.publish()
    assert again == first
    assert await outcomes(world, job.task, "git.push") == ["done"]
    job.write("a.txt", "two\n")
    last = await job.publish()
    assert last.sha == at_forge(world)[FIRST] != first.sha
    assert last.pull == first.pull
    assert len(world.admin.pulls(REPO)) == 1
    assert await outcomes(world, job.task, "git.push") == ["done", "done"]
    assert await outcomes(world, job.task, "pull.create") == ["done"]


async def test_a_retry_that_changes_nothing_still_names_the_work_of_its_task(world: World) -> None:
    job = await begin(world)
    job.write("a.txt", "one\n")
    first = await job.publish()
    run = await world.turn(job.hold)
    assert (await type(job)(world, job.hold, job.place, run).publish()).footer == first.footer


async def test_publishing_may_be_off(world: World) -> None:
    with_settings(world, push="off")
    job = await begin(world)
    job.write("a.txt", "one\n")
    published = await job.publish()
    sha = git("rev-parse", FIRST, cwd=job.place.bare)
    assert published.footer == (f"Not published: publishing is off; work saved as {sha}",)
    assert list(at_forge(world)) == ["main"]
    assert not await world.history(job.task, "publish.failed")
    await job.end()
    # A task that changed nothing does not repeat it.
    assert (await (await begin(world, text="why?")).publish()).footer == ()


async def test_a_branch_alone_may_be_published(world: World) -> None:
    with_settings(world, push="branch")
    job = await begin(world)
    job.write("a.txt", "one\n")
    published = await job.publish()
    assert published.footer == (f"Commit {at_forge(world)[FIRST]} · `{FIRST}`",)
    assert world.admin.pulls(REPO) == []


async def test_two_tasks_share_a_branch_and_its_pull_request(world: World) -> None:
    await done(world)
    await done(world, "b.txt", text="go on")
    (pull,) = world.admin.pulls(REPO)
    assert pull["head"]["sha"] == at_forge(world)[FIRST]
    assert set(world.admin.files(REPO, FIRST)) >= {"a.txt", "b.txt"}


async def test_a_closed_pull_request_is_followed_by_a_new_one(world: World) -> None:
    job = await done(world)
    world.admin.edit_issue(REPO, int(world.admin.pulls(REPO)[0]["number"]), ASKER, state="closed")
    again = await done(world, "b.txt", text="go on")
    states = [pull["state"] for pull in world.admin.pulls(REPO)]
    assert states == ["closed", "open"]
    assert (await again.branch()).pull_number == world.admin.pulls(REPO)[1]["number"]
    assert job.place.branch.name == again.place.branch.name


async def test_a_pull_request_that_a_person_opened_is_used(world: World) -> None:
    with_settings(world, push="branch")
    job = await done(world)
    number = world.admin.pull(REPO, ASKER, head=FIRST, title="By hand")
    with_settings(world, push="pull_request")
    job = await begin(world, text="go on")
    job.write("b.txt", "two\n")
    assert (await job.publish()).pull == number
    assert len(world.admin.pulls(REPO)) == 1


async def test_work_on_a_pull_request_is_proposed_to_its_head(world: World) -> None:
    person_commits(world, "feature", "feature.txt")
    number = world.admin.pull(REPO, ASKER, head="feature", title="Feature")
    job = await done(world, number=number, kind="pull_request")
    ours = world.admin.pulls(REPO)[-1]
    assert (ours["head"]["ref"], ours["base"]["ref"]) == (f"stationmaster/pull_request-{number}", "feature")
    assert (await job.branch()).pull_number == ours["number"]


# --- refusals ---------------------------------------------------------------------------------------------------------


async def refused(world: World, code: str) -> None:
    """A change that cannot be published is saved and said, and the next task publishes it."""
    job = await begin(world)
    job.write("a.txt", "one\n")
    published = await job.publish()
    sha = git("rev-parse", FIRST, cwd=job.place.bare)
    assert published.code == code
    assert published.footer == (f"Not published: {codes.text(code)}; work saved as {sha}",)
    assert published.sha == sha
    (told,) = await world.history(job.task, "publish.failed")
    assert (told.data or {})["code"] == code
    assert await open_intents(world) == []
    await job.end()


async def publishes_next(world: World) -> None:
    job = await begin(world, text="go on")
    published = await job.publish()
    assert published.code is None
    assert published.pull is not None
    assert published.footer == (f"Commit {at_forge(world)[FIRST]} · #{published.pull}",)
    assert world.admin.file(REPO, FIRST, "a.txt") == "one\n"


async def test_a_protected_branch(world: World) -> None:
    world.admin.protect(REPO, "stationmaster/*")
    await refused(world, codes.PUSH_PROTECTED)
    world.admin.unprotect(REPO, "stationmaster/*")
    await publishes_next(world)


async def test_a_bot_that_may_not_write(world: World) -> None:
    world.admin.collaborator(REPO, BOT, "read")
    await refused(world, codes.PUSH_FORBIDDEN)
    world.admin.collaborator(REPO, BOT, "write")
    await publishes_next(world)


async def test_a_forge_that_forbids_the_push(world: World) -> None:
    world.fault("answer", status=403, match=OFFER)
    await refused(world, codes.PUSH_FORBIDDEN)
    await publishes_next(world)


async def test_a_hook_that_declines(world: World) -> None:
    hook = world.standin.views.bare(world.repo["id"]).path / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho 'no swearing' >&2\nexit 1\n")
    await refused(world, codes.PUSH_HOOK_REFUSED)


async def test_pull_requests_that_are_off(world: World) -> None:
    world.admin.repo_settings(REPO, has_pulls=False)
    await refused(world, codes.PULLS_OFF)
    # The branch is there; a task that changes nothing says nothing about it.
    assert FIRST in at_forge(world)
    job = await begin(world, text="why?")
    assert (await job.publish()).footer == ()
    await job.end()
    world.admin.repo_settings(REPO, has_pulls=True)
    await publishes_next(world)


async def test_a_pull_request_that_the_forge_refuses(world: World) -> None:
    world.fault("answer", status=422, match=OPEN, body='{"message":"no"}', content_type="application/json")
    await refused(world, codes.PULL_REFUSED)
    await publishes_next(world)


async def test_somebody_who_pushes_meanwhile_is_not_overwritten(world: World) -> None:
    await done(world)
    job = await begin(world, text="go on")
    job.write("b.txt", "two\n")
    theirs = person_commits(world, FIRST)
    published = await job.publish()
    ours = git("rev-parse", FIRST, cwd=job.place.bare)
    assert published.code == codes.PUSH_NOT_FAST_FORWARD
    assert at_forge(world)[FIRST] == theirs
    await job.end()
    again = await begin(world, text="once more")
    assert again.place.head == theirs
    assert ours in again.place.notes[0]


# --- what is unknown --------------------------------------------------------------------------------------------------


async def test_a_push_whose_answer_is_lost_is_read_back(world: World) -> None:
    job = await begin(world)
    job.write("a.txt", "one\n")
    world.fault("drop_after", match=PUSH)
    published = await job.publish()
    assert published.code is None
    assert published.sha == at_forge(world)[FIRST]
    # The transport repeats a request whose connection broke; we sent one push.
    (pushed,) = await world.history(job.task, "git.push.result")
    assert pushed.outcome == "done"
    assert (pushed.data or {})["answer"] != "done"


async def test_a_push_that_did_not_arrive_is_sent_once_more(world: World) -> None:
    job = await begin(world)
    job.write("a.txt", "one\n")
    world.fault("drop_before", match=PUSH, count=2)
    assert (await job.publish()).code is None
    assert await outcomes(world, job.task, "git.push") == ["not_done", "done"]


async def test_a_push_that_stays_unknown_is_said_and_found_by_the_next_task(world: World) -> None:
    job = await begin(world)
    job.write("a.txt", "one\n")
    world.fault("drop_after", match=PUSH)
    world.fault("drop_before", match={"path": "service=git-upload-pack"}, count=None)
    published = await job.publish()
    assert published.code == codes.PUSH_UNKNOWN
    assert published.footer[0].startswith("Not published: it is unknown whether the push arrived; work saved as ")
    assert await outcomes(world, job.task, "git.push") == ["unknown"]
    await job.end()
    world.admin.clear_faults()
    job = await begin(world, text="go on")
    job.write("b.txt", "two\n")
    assert (await job.publish()).code is None
    assert len(world.admin.pulls(REPO)) == 1


async def test_a_pull_request_whose_answer_is_lost_is_found(world: World) -> None:
    job = await begin(world)
    job.write("a.txt", "one\n")
    world.fault("drop_after", match=OPEN)
    published = await job.publish()
    (pull,) = world.admin.pulls(REPO)
    assert published.pull == pull["number"]
    assert requests(world.standin, "POST", "/pulls") == 1


async def test_a_pull_request_that_did_not_arrive_is_opened_once_more(world: World) -> None:
    job = await begin(world)
    job.write("a.txt", "one\n")
    world.fault("answer", status=502, match=OPEN)
    assert (await job.publish()).pull == world.admin.pulls(REPO)[0]["number"]
    assert await outcomes(world, job.task, "pull.create") == ["unknown", "done"]


async def test_a_pull_request_that_stays_unknown_is_said(world: World) -> None:
    job = await begin(world)
    job.write("a.txt", "one\n")
    world.fault("drop_after", match=OPEN)
    world.fault("drop_before", match=LIST, skip=1, count=None)
    assert (await job.publish()).code == codes.PULL_UNKNOWN
    world.admin.clear_faults()
    assert (await job.publish()).pull == world.admin.pulls(REPO)[0]["number"]
    assert len(world.admin.pulls(REPO)) == 1


async def test_a_forge_that_is_away_does_not_keep_the_work_from_being_saved(world: World) -> None:
    job = await begin(world)
    job.write("a.txt", "one\n")
    world.fault("drop_before", match=LIST)
    published = await job.publish()
    assert published.code == codes.FORGE_UNREACHABLE
    assert published.sha == at_forge(world)[FIRST]


async def test_nothing_is_published_without_the_lease(world: World) -> None:  # GW-R-121
    job = await begin(world)
    job.write("a.txt", "one\n")
    await world.lose(job.hold)
    with pytest.raises(Stale):
        await job.publish()
    assert list(at_forge(world)) == ["main"]
    assert git("status", "--porcelain", cwd=job.place.tree) == "?? a.txt"


async def test_a_rename_between_fetch_and_push_is_followed(world: World) -> None:
    job = await begin(world)
    job.write("a.txt", "one\n")
    world.admin.rename(REPO, name="gadgets")
    published = await job.publish()
    assert published.code is None
    assert world.admin.branches("acme/gadgets")[FIRST] == published.sha
    repository = await world.port.read(store.repository, job.task.repository_id)
    assert repository.name == "gadgets"


# --- saving -----------------------------------------------------------------------------------------------------------


async def test_what_a_run_left_is_committed_and_said(world: World) -> None:
    job = await begin(world)
    job.write("half.txt", "half\n")
    saved = await job.save("interrupted")
    assert saved is not None
    assert saved.changed
    message = git("log", "-1", "--format=%B", FIRST, cwd=job.place.bare)
    assert message == f"stationmaster: {job.task.id} {job.run_id} interrupted"
    assert git("status", "--porcelain", cwd=job.place.tree) == ""
    again = await job.save()
    assert again is not None
    assert not again.changed
    (first, second) = await world.history(job.task, "git.commit.result")
    assert ((first.data or {})["changed"], (second.data or {})["changed"]) == (True, False)
    assert (first.data or {})["before"] == job.place.head
    assert list(at_forge(world)) == ["main"]


async def test_a_repository_that_the_agent_made_is_set_aside_and_named(world: World) -> None:
    job = await begin(world)
    job.write("lib/x.txt", "x\n")
    git("init", "-q", cwd=job.place.tree / "lib")
    published = await job.publish()
    assert published.footer[0] == "Saved as plain files (nested repository set aside): `lib/.git`"
    assert world.admin.file(REPO, FIRST, "lib/x.txt") == "x\n"
    assert (world.gear.layout.nested(job.run_id) / "lib" / ".git" / "HEAD").exists()


async def test_a_submodule_is_left_alone(world: World) -> None:
    job = await begin(world)
    sub = job.place.tree / "sub"
    sub.mkdir()
    git("init", "-q", cwd=sub)
    (sub / "s.txt").write_text("s\n")
    git("add", "-A", cwd=sub)
    git("commit", "-qm", "Begin", cwd=sub)
    git("add", "sub", cwd=job.place.tree)
    assert (await job.publish()).code is None
    await job.end()
    assert (sub / ".git").exists()
    again = await begin(world, text="go on")
    (sub / "more.txt").write_text("m\n")
    assert (await again.publish()).footer == ()


async def test_a_tree_that_cannot_be_saved_is_said_and_not_lost(world: World) -> None:
    job = await begin(world)
    job.write("a.txt", "one\n")
    lock = job.place.bare / "worktrees" / "issue-1" / "index.lock"
    lock.touch()
    with pytest.raises(Unavailable) as failed:
        await job.save()
    assert failed.value.code == codes.WORKSPACE_SAVE_FAILED
    published = await job.publish()
    assert published.code == codes.WORKSPACE_SAVE_FAILED
    assert published.footer == ("Not published: the work could not be saved",)
    assert lock.exists()
    assert await open_intents(world) == []
    lock.unlink()
    assert (await job.publish()).code is None


async def test_without_a_worktree_there_is_nothing_to_save(world: World) -> None:
    job = await begin(world)
    (job.place.bare / "worktrees" / "issue-1" / "gitdir").unlink()
    assert await job.save() is None
    assert await outcomes(world, job.task, "git.commit") == []
