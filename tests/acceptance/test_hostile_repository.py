"""A repository that brings configuration, hooks, instructions and skills for the agent gets none of them used."""

from __future__ import annotations

from pathlib import Path

from tests.agents.codex_app.test_session_hostile import WORD, hostile_files
from tests.gitea.life import life, mention, reply, rule
from tests.gitea.world import REPO, World


async def test_what_a_repository_brings_for_the_agent_stays_a_file(world: World) -> None:
    # A program of the repository would run in the worktree and leave its file there, which would be published.
    world.admin.commit(REPO, "alice", hostile_files(Path("/proc/self/cwd")), branch="main")
    look = rule("please", {"shell": "cat README.md; pwd"}, reply("Looked."), "Done.")
    async with life(world, look) as alive:
        task = await alive.until(await mention(world, "please look"))
        assert task.state == "succeeded"
        assert WORD not in alive.requests()
        tree = alive.gear.layout.tree(task.repository_id, "issue-1")
        here = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()} - {".git"}
        assert here == {"README.md", "src/app.py", *hostile_files(tree)}
    assert "Commit" not in world.said()[-1]
