"""What an event says too little of is read at the forge and becomes a task, from the forge's own deliveries."""

from __future__ import annotations

from typing import Any

import pytest

from stationmaster.gitea import looks, webhook
from stationmaster.gitea.model import Task
from tests.gitea.test_catchup import pull, read, started, tasks
from tests.gitea.test_closing import nothing_on_its_way
from tests.gitea.world import ASKER, BOT, REPO, World
from tests.support import eventually_async

EVENTS = ["issues", "issue_comment", "pull_request", "pull_request_comment", "pull_request_review"]


def new_issue(world: World) -> tuple[str, int]:
    return "issue", world.admin.issue(REPO, ASKER, "Another", f"@{BOT} do this")


def reworded_issue(world: World) -> tuple[str, int]:
    # Older than anything that is read by itself now.
    world.admin.edit_issue(REPO, world.issue, ASKER, body=f"@{BOT} do this")
    return "issue", world.issue


def new_pull(world: World) -> tuple[str, int]:
    return "pull_request", pull(world, f"@{BOT} do this")


def review(world: World) -> tuple[str, int]:
    number = pull(world)
    world.admin.review(REPO, number, ASKER, body=f"@{BOT} do this")
    return "pull_request", number


def remark(world: World) -> tuple[str, int]:
    number = pull(world)
    world.admin.review(REPO, number, ASKER, lines=[{"path": "new.txt", "line": 1, "body": f"@{BOT} do this"}])
    return "pull_request", number


async def delivered(world: World, hook: int) -> list[dict[str, Any]]:
    """Brings everything that the forge sent to the webhook; returns the answers."""
    await eventually_async(lambda: nothing_on_its_way(world))
    door = webhook.Webhook(world.port, world.gear.settings)
    rows = world.admin.deliveries(hook=hook)
    told = [await door(row["request"]["headers"], row["request"]["body"].encode(), "127.0.0.1") for row in rows]
    return [{"status": reply.status, **reply.body} for reply in told]


@pytest.mark.parametrize("write", [new_issue, reworded_issue, new_pull, review, remark])
async def test_what_its_event_does_not_say_is_read_and_asked_once(world: World, write: Any) -> None:
    # GW-R-050, GW-R-022
    catchup = started(world, settle_s=300.0)
    await read(world, catchup)
    secret = world.gear.settings.webhook_secrets[0].reveal()
    hooks = [world.admin.hook("http://127.0.0.1:9", repo=REPO, secret=secret, events=EVENTS) for _ in range(2)]
    kind, number = write(world)
    answers = [each for hook in hooks for each in await delivered(world, hook)]
    assert {each["state"] for each in answers if each["status"] == 202} == {"to_be_read"}
    await read(world, catchup)
    found: list[Task] = await tasks(world)
    assert [task.resource_key for task in found] == [f"default:{REPO}:{kind}:{number}"]
    assert await world.port.read(looks.waiting, "default") == 0
    # Read once more, by the timer and by the same deliveries again: nothing new.
    for hook in hooks:
        await delivered(world, hook)
    await read(world, catchup, after_s=3600)
    assert len(await tasks(world)) == 1


async def test_a_mention_that_an_edit_brings_is_asked_once_by_event_and_by_reading(world: World) -> None:
    # GW-R-022
    catchup = started(world)
    await read(world, catchup)
    secret = world.gear.settings.webhook_secrets[0].reveal()
    hook = world.admin.hook("http://127.0.0.1:9", repo=REPO, secret=secret, events=EVENTS)
    comment = world.admin.comment(REPO, world.issue, ASKER, "never mind")
    world.admin.edit_comment(comment, ASKER, f"@{BOT} now I ask")
    world.admin.edit_comment(comment, ASKER, f"@{BOT} now I ask more")
    assert [each.get("state") for each in await delivered(world, hook)] == [None, "queued", None]
    world.clock.advance(60)
    await read(world, catchup)
    assert len(await tasks(world)) == 1
