"""A pull request of a fork: strangers' code, which a run may look at; only a writer's run may change anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from stationmaster.gitea.model import Task
from stationmaster.gitea.payload import Permissions
from tests.gitea.life import Life, life, read, reply, rule
from tests.gitea.world import REPO, World

READER = Permissions(admin=False, push=False, pull=True)
WRITER = Permissions(admin=False, push=True, pull=True)
FORK = "mallory/widgets"
PATCH = "*** Begin Patch\n*** Add File: planted.txt\n+planted\n*** End Patch\n"
# What a hostile instruction would have the agent do.
TRY = rule(
    "please",
    [read("diff")],
    {"shell": "cat evil.txt; echo planted > planted.txt; echo more >> README.md; git commit -qam x; true"},
    [{"patch": PATCH}],
    {"call": {"name": "publish", "args": {}}},
    reply("Looked at it."),
    "Done.",
)


@dataclass
class Pull:
    """A pull request from mallory's fork, and where its worktree stands."""

    world: World
    number: int

    async def ask(self, rights: Permissions | None, text: str = "please look at it") -> Task:
        return await self.world.mention(text, number=self.number, kind="pull_request", permissions=rights)

    def tree(self, alive: Life, task: Task) -> Path:
        return alive.gear.layout.tree(task.repository_id, f"pull_request-{self.number}")

    def ours(self) -> list[str]:
        return [name for name in self.world.admin.branches(REPO) if name.startswith("stationmaster/")]


@pytest.fixture
def pull(world: World) -> Pull:
    world.admin.user("mallory")
    world.admin.repo("mallory", "widgets")
    world.admin.copy(REPO, FORK, "main")
    world.admin.commit(FORK, "mallory", {"evil.txt": "from a fork\n"}, branch="evil", base="main")
    number = world.admin.pull(REPO, "mallory", head="evil", title="Trust me", fork=FORK)
    return Pull(world, number)


async def test_asked_by_a_reader_a_run_looks_and_changes_nothing(world: World, pull: Pull) -> None:
    async with life(world, TRY, allow="read") as alive:
        task = await pull.ask(READER)
        ended = await alive.until(task)
        assert ended.state == "succeeded", ended.error_code
        assert "from a fork" in alive.requests()  # it is the fork's head that was looked at
        tree = pull.tree(alive, task)
        assert (tree / "evil.txt").read_text() == "from a fork\n"
        assert not (tree / "planted.txt").exists()
        assert "more" not in (tree / "README.md").read_text()
    assert pull.ours() == []
    assert len(world.admin.pulls(REPO)) == 1
    answer = world.said(pull.number)[-1]
    assert "The code is a fork's and whoever asked may not write here" in answer
    assert "Commit" not in answer
    assert world.admin.branches(FORK).keys() == {"main", "evil"}
    told = [entry.data for entry in await world.history(task, "fork.read_only") if entry.kind != "command"]
    assert told == [{"author": "alice", "author_id": world.asker_id}]


async def test_asked_by_a_writer_it_works_as_ever_and_the_fork_is_left_alone(world: World, pull: Pull) -> None:
    before = world.admin.branches(FORK)
    async with life(world, TRY, allow="read") as alive:
        ended = await alive.until(await pull.ask(WRITER))
        assert ended.state == "succeeded", ended.error_code
    [ours] = pull.ours()
    assert world.admin.file(REPO, ours, "planted.txt") == "planted\n"
    assert world.admin.branches(FORK) == before
    assert "The code is a fork's" not in world.said(pull.number)[-1]


@pytest.mark.parametrize("rights", [READER, None])
async def test_the_last_who_asks_decides_and_who_is_unknown_may_not(
    world: World, pull: Pull, rights: Permissions | None
) -> None:
    question = rule("please first", [{"call": {"name": "ask", "args": {"body": "Which?"}}}], "Asked.")
    async with life(world, question, TRY, allow="list", allow_list=("alice",)) as alive:
        world.gear = alive.gear  # whoever takes the comments goes by the same rules
        task = await pull.ask(WRITER, "please first say which")
        assert (await alive.until(task)).state == "waiting_user"
        assert (await pull.ask(rights, "please take that one")).id == task.id
        assert (await alive.until(task)).state == "succeeded"
        assert not (pull.tree(alive, task) / "planted.txt").exists()
    assert pull.ours() == []


async def test_a_fork_that_is_gone_is_a_fork(world: World, pull: Pull) -> None:
    world.admin.lose_fork(REPO, pull.number)
    async with life(world, TRY, allow="read") as alive:
        task = await pull.ask(READER)
        assert (await alive.until(task)).state == "succeeded"
        assert not (pull.tree(alive, task) / "planted.txt").exists()
        assert "from a fork" in alive.requests()
    assert pull.ours() == []


async def test_without_codexs_own_sandbox_our_walls_hold(world: World, pull: Pull) -> None:
    async with life(world, TRY, allow="read", codex={"sandbox": "danger-full-access"}) as alive:
        bare = alive.gear.station
        assert bare.isolation == "required"
        ended = await alive.until(await pull.ask(READER))
        assert ended.state == "succeeded"  # behind our own walls even then
        assert not (pull.tree(alive, ended) / "planted.txt").exists()
    assert pull.ours() == []


async def test_a_branch_of_the_repository_itself_is_no_fork(world: World) -> None:
    world.admin.commit(REPO, "alice", {"feature.txt": "one\n"}, branch="feature", base="main")
    number = world.admin.pull(REPO, "alice", head="feature", title="A feature")
    async with life(world, TRY, allow="read") as alive:
        task = await world.mention("please do", number=number, kind="pull_request", permissions=READER)
        assert (await alive.until(task)).state == "succeeded"
    assert not await world.history(task, "fork.read_only")
    assert world.admin.file(REPO, f"stationmaster/pull_request-{number}", "planted.txt") == "planted\n"
