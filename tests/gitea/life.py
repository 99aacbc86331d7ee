"""Lets a worker live: the real scheduler, the real Codex binary and a scripted model on a world's forge."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from stationmaster.agents.codex_app.settings import CodexSettings
from stationmaster.gitea import operate, store
from stationmaster.gitea.gear import Gear
from stationmaster.gitea.model import Task
from stationmaster.gitea.payload import Permissions
from stationmaster.gitea.recovery import Recovery
from stationmaster.gitea.scheduler import Scheduler
from stationmaster.standins.responses_model import ResponsesModel
from tests.gitea.world import World
from tests.support import eventually_async

RESTING = frozenset(
    {
        "waiting_user",
        "blocked_workspace",
        "succeeded",
        "succeeded_with_rest_fallback",
        "failed",
        "failed_reply",
        "cancelled",
        "aborted",
    }
)
WITHIN_S = 60


def reply(body: str) -> dict[str, Any]:
    """The model's call of `reply`."""
    return {"call": {"name": "reply", "args": {"body": body}}}


def ask(body: str) -> dict[str, Any]:
    """The model's call of `ask`."""
    return {"call": {"name": "ask", "args": {"body": body}}}


def read(part: str, page: int = 1) -> dict[str, Any]:
    """The model's call of `issue_read`."""
    return {"call": {"name": "issue_read", "args": {"part": part, "page": page}}}


def rule(user: str, *steps: Any) -> dict[str, Any]:
    """What the model does when somebody says `user`."""
    return {"when": {"user": user}, "advance": "tool", "steps": list(steps)}


@dataclass
class Life:
    """A worker at work."""

    world: World
    gear: Gear
    model: ResponsesModel
    scheduler: Scheduler
    recovery: Recovery

    async def until(self, task: Task, *states: str) -> Task:
        """Lets the worker work until the task is in one of the states, by default in one in which it rests."""
        wanted = frozenset(states) or RESTING

        async def there() -> Task | None:
            await self.scheduler.tick(0)
            now = await self.world.task(task.id)
            return now if now.state in wanted and (states or now.id not in self.scheduler.task_ids) else None

        return await eventually_async(there, WITHIN_S)

    async def thread(self, task: Task) -> str | None:
        """Returns the thread of a task's session."""
        return (await self.world.port.read(store.session, task.session_id)).thread_id

    def requests(self) -> str:
        """Returns everything that the model was told."""
        return "\n".join(str(request["body"]) for request in self.model.requests)


@asynccontextmanager
async def life(
    world: World, *rules: dict[str, Any], codex: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Life]:
    """Starts a worker whose model follows `rules`; every run of it is over at the end."""
    with ResponsesModel({"rules": list(rules), "default": ["Nothing to do."]}) as model:
        provider: dict[str, Any] = {"name": "scripted", "base_url": model.base_url, "wire_api": "responses"}
        provider |= {"requires_openai_auth": False, "request_max_retries": 0, "stream_max_retries": 0}
        config = {
            "model": "scripted-model",
            "model_provider": "scripted",
            "model_providers": {"scripted": provider},
        }
        gear = replace(
            world.gear,
            settings=replace(world.gear.settings, **settings),
            codex=CodexSettings(home=world.gear.codex.home, config=config, **(codex or {})),
        )
        scheduler = Scheduler(gear)
        recovery = Recovery(gear, busy=lambda: scheduler.task_ids)
        try:
            yield Life(world, gear, model, scheduler, recovery)
        finally:
            await scheduler.close()


async def edited(alive: Life, task: Task) -> None:
    """Waits until the agent has changed the README."""
    readme = alive.gear.layout.tree(task.repository_id, "issue-1") / "README.md"

    async def changed() -> bool:
        return readme.exists() and "Better" in readme.read_text()

    await eventually_async(changed)


async def abort(world: World, task: Task) -> None:
    """Lets an operator abort a task."""
    wish = operate.Wish("abort", task.id, "admin:op", "wrong one")
    await world.port.do(operate.command(wish, f"request-{task.id}"), operate.body(world.gear.settings), wish)


async def mention(world: World, text: str) -> Task:
    """Lets somebody with write access mention the bot; the event says so, for the bot may not ask."""
    return await world.mention(text, permissions=Permissions(admin=False, push=True, pull=True))
