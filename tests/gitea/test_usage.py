"""What the real Codex uses is counted in the ledger, and a budget that is spent ends its run."""

from __future__ import annotations

from typing import Any

import pytest

from stationmaster.gitea import limits
from stationmaster.gitea.model import Task
from stationmaster.gitea.settings import LimitSettings
from tests.gitea.life import ask, life, mention, reply, rule
from tests.gitea.world import World


def spends(tokens: int, *then: Any) -> list[Any]:
    return [{"usage": {"input_tokens": tokens - 1, "output_tokens": 1}}, *then]


async def used(world: World, task: Task) -> limits.Used:
    return await world.port.read(limits.used_by_task, task.id)


async def test_tokens_of_a_thread_are_counted_once_over_its_turns(world: World) -> None:
    first = rule("please fix", spends(1000, ask("Which one?")), "Asked.")
    second = rule("the second", spends(300, reply("Done.")), spends(50, "Done."))
    async with life(world, first, second) as alive:
        waiting = await alive.until(await mention(world, "please fix it"))
        assert waiting.state == "waiting_user"
        before = await used(world, waiting)
        assert before.turns == 1
        assert before.tokens >= 1000
        ended = await alive.until(await mention(world, "the second"))
        assert ended.state == "succeeded"
        after = await used(world, ended)
        assert after.turns == 2
        assert 300 <= after.tokens - before.tokens < 1000  # not the whole thread's once more
        assert after.micros > 0


@pytest.mark.parametrize(
    ("allowed", "code"),
    [
        (LimitSettings(task_tokens=500), "task_budget_spent"),
        (LimitSettings(turn_steps=3), "turn_steps_spent"),
        (LimitSettings(task_wall_s=2.0), "task_budget_spent"),
    ],
    ids=["tokens", "steps", "time"],
)
async def test_a_run_that_uses_too_much_is_stopped(world: World, allowed: LimitSettings, code: str) -> None:
    # GW-R-088
    again = [spends(200, {"shell": "true"}) for _ in range(6)]
    endless = rule("please", *again, [{"hold": "forever"}])
    async with life(world, endless, limits=allowed) as alive:
        ended = await alive.until(await mention(world, "please fix it"))
        assert (ended.state, ended.error_code, ended.attempt) == ("failed", code, 0)
        assert alive.scheduler.task_ids == frozenset()
    assert world.said()[-1].startswith("giteabot: the task failed: ")
