"""Start receipts that say where their task stands: edited in place, never a second comment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stationmaster.command import Cmd
from stationmaster.gitea import actions, live, receipts
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.live import LiveReceipts
from stationmaster.gitea.payload import Permissions
from stationmaster.ledger import history
from tests.gitea.world import World

MAY = Permissions(admin=False, push=True, pull=True)
EDITS = {"method": "PATCH"}


async def begun(world: World) -> tuple[Gear, Hold]:
    """Returns a running task whose start receipt is at the forge and is kept up to date."""
    gear = replace(world.gear, settings=replace(world.gear.settings, live_receipt=True))
    hold = await world.claim(await world.mention(permissions=MAY))
    await receipts.start(gear, hold, hold.task)
    await world.turn(hold)
    return gear, hold


async def edits(world: World) -> list[tuple[str, str | None]]:
    """Returns what the history says about edits, in order."""
    found = await world.port.read(history.page)
    return [(entry.name, entry.outcome) for entry in found if entry.name.startswith("receipt.edit.")]


async def test_a_receipt_follows_its_task_in_place(world: World) -> None:
    # GW-R-133, GW-R-227
    gear, hold = await begun(world)
    assert world.said()[0].startswith("giteabot: 已收到\n")
    relay = receipts.Relay(gear)
    await relay.tick(0)
    assert world.said()[0].startswith("giteabot: 已收到 · at work\n")
    await world.do("test.wait", hold.task, actions.leave, hold.task.id, "wait", hold.lease, gear.settings)
    await relay.tick(0)
    assert "· waiting for your answer" in world.said()[0]
    await world.mention("go on", permissions=MAY)
    again = await world.claim(await world.task(hold.task.id))
    await relay.tick(0)
    await world.turn(again)
    await relay.tick(0)
    await world.advance(again, "verify")
    await world.do("test.end", hold.task, actions.leave, hold.task.id, "confirm", again.lease, gear.settings)
    await relay.tick(0)
    assert "· answered" in world.said()[0]
    # One comment all along, still known by its mark, and nothing is done any more.
    assert len(world.said()) == 1
    assert (await world.comment(actions.status_key(hold.task.id, "running"))).state == "confirmed"
    assert await edits(world) == [("receipt.edit.intent", None), ("receipt.edit.result", "done")] * 4
    assert await LiveReceipts(gear).tick() == 0
    await relay.close()


async def test_off_by_default_nothing_is_edited(world: World) -> None:
    # GW-R-134
    hold = await world.claim(await world.mention(permissions=MAY))
    await receipts.start(world.gear, hold, hold.task)
    await world.turn(hold)
    relay = receipts.Relay(world.gear)
    await relay.tick(0)
    assert await edits(world) == []
    await relay.close()


@pytest.mark.parametrize(("kind", "action"), [("drop_after", {}), ("answer", {"status": 502, "effect": True})])
async def test_an_edit_whose_answer_is_lost_is_read_back(world: World, kind: str, action: dict[str, Any]) -> None:
    gear, _ = await begun(world)
    world.fault(kind, match=EDITS, **action)
    assert await LiveReceipts(gear).tick() == 1
    assert "· at work" in world.said()[0]
    assert await edits(world) == [("receipt.edit.intent", None), ("receipt.edit.result", "done")]
    assert len(world.said()) == 1


async def test_an_edit_that_did_not_happen_is_made_later(world: World) -> None:
    gear, _ = await begun(world)
    world.fault("drop_before", match=EDITS)
    duty = LiveReceipts(gear)
    assert await duty.tick() == 0
    assert await duty.tick() == 0
    world.clock.advance(16)
    assert await duty.tick() == 1
    assert [outcome for _, outcome in await edits(world) if outcome] == ["unknown", "done"]
    assert len(world.said()) == 1


async def test_whoever_died_over_an_edit_is_not_repeated(world: World) -> None:
    gear, hold = await begun(world)
    key = actions.status_key(hold.task.id, "running")
    row = await world.comment(key)
    await world.port.do(Cmd("test.die", "system", "test:die"), live._intend, hold.task.id, key, "working")
    text = live.text(key, "working", "en")
    assert row.native_id is not None
    await gear.at(row.repository_id, lambda repo: gear.forge.edit_comment(repo, row.native_id or 0, text))
    world.fault("answer", count=None, match=EDITS, status=500)
    assert await LiveReceipts(gear).tick() == 1
    assert await edits(world) == [("receipt.edit.intent", None), ("receipt.edit.result", "done")]


async def test_a_receipt_that_somebody_deleted_is_left_alone(world: World) -> None:
    gear, hold = await begun(world)
    row = await world.comment(actions.status_key(hold.task.id, "running"))
    world.fault("answer", count=None, match={"path": f"/issues/comments/{row.native_id}"}, status=404)
    assert await LiveReceipts(gear).tick() == 0
    world.admin.clear_faults()
    assert await LiveReceipts(gear).tick() == 0
    assert len(world.said()) == 1
