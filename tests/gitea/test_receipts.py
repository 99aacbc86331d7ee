from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from stationmaster.errors import Stale
from stationmaster.gitea import actions, codes, receipts, texts
from stationmaster.gitea.client import Forge
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import Comment, CommentKind, Task
from stationmaster.gitea.receipts import Relay
from stationmaster.ledger import lease as leases
from tests.gitea.world import World, gear_for
from tests.support import eventually

POSTS = {"method": "POST", "path": "/comments"}
READS = {"method": "GET", "path": "/comments"}
# Longer than the forge is waited for, and longer than a comment may still be on its way after that.
FRESH_S, GRACE_S, ALERT_S, DAY_S = 16, 6, 61, 86_400
UNKNOWN_BUT_DONE = [
    pytest.param("drop_after", {}, id="dropped after accepting"),
    pytest.param("answer", {"status": 502, "effect": True}, id="502 with a blank body"),
    pytest.param("garble", {}, id="an answer that is none"),
    pytest.param("delay", {"seconds": 2.4, "when": "after"}, id="hangs"),
]
UNKNOWN_AND_NOT_DONE = [
    pytest.param("drop_before", {}, id="dropped"),
    pytest.param("answer", {"status": 500}, id="500 with a blank body"),
]


async def begun(world: World) -> Hold:
    """A task in `preparing` under its lease."""
    return await world.claim(await world.mention())


async def running(world: World) -> tuple[Hold, str]:
    hold = await begun(world)
    return hold, await world.turn(hold)


async def intended(world: World, task: Task, key: str, kind: CommentKind, body: str, **given: Any) -> Comment:
    made: Comment = await world.do("comment.intend", task, actions.intend_comment, task, key, kind, body, **given)
    return made


async def asked(world: World, *, wait: bool = True) -> tuple[Hold, str]:
    """A question that was intended and not sent, its task waiting for the person."""
    hold, run_id = await running(world)
    key = actions.ask_key(hold.task.id, run_id)
    await intended(world, hold.task, key, "question", texts.question("Which one?", key), run_id=run_id)
    if wait:
        await world.end_turn(hold.task, run_id)
        await leave(world, hold, "wait")
    return hold, key


async def leave(world: World, hold: Hold, verb: str, **cols: Any) -> Task:
    left: Task = await world.do(
        f"task.{verb}", hold.task, actions.leave, hold.task.id, verb, hold.lease, world.gear.settings, **cols
    )
    return left


@asynccontextmanager
async def unreachable(world: World) -> AsyncIterator[Gear]:
    """The gear with a forge that nobody answers for: nothing leaves us."""
    async with Forge("http://127.0.0.1:9", world.gear.settings.token, timeout_s=2) as forge:
        yield replace(world.gear, forge=forge)


async def test_work_begins_with_one_receipt(world: World) -> None:
    hold = await begun(world)
    key = actions.status_key(hold.task.id, "running")
    await receipts.start(world.gear, hold, hold.task)
    await receipts.start(world.gear, hold, hold.task)
    # GW-R-133: exactly one, with this text; GW-R-136: with its mark.
    assert world.said() == [f"{texts.START_RECEIPT}\n\n<!-- ccweb commentKey={key} -->"]
    row = await world.comment(key)
    assert (row.state, row.term) == ("confirmed", hold.lease.term)
    # GW-R-227: intent and result, once.
    told = [entry for entry in await world.history(hold.task) if entry.kind in {"intent", "result"}]
    assert [(entry.name, entry.outcome) for entry in told] == [("comment.intent", None), ("comment.result", "done")]


@pytest.mark.parametrize(("kind", "action"), UNKNOWN_BUT_DONE)
async def test_an_accepted_receipt_is_found_and_not_repeated(world: World, kind: str, action: dict[str, Any]) -> None:
    hold = await begun(world)
    world.fault(kind, match=POSTS, **action)
    await receipts.start(world.gear, hold, hold.task)
    row = await world.comment(actions.status_key(hold.task.id, "running"))
    # GW-R-136, GW-R-188: the unknown outcome is read back.
    assert (row.state, len(world.said())) == ("confirmed", 1)
    await Relay(world.gear).tick(0)
    assert len(world.said()) == 1


@pytest.mark.parametrize(("kind", "action"), UNKNOWN_AND_NOT_DONE)
async def test_a_lost_receipt_is_sent_once_more_when_it_is_proven_absent(
    world: World, kind: str, action: dict[str, Any]
) -> None:
    hold = await begun(world)
    key = actions.status_key(hold.task.id, "running")
    world.fault(kind, match=POSTS, **action)
    await receipts.start(world.gear, hold, hold.task)
    # GW-R-137: the task goes on all the same.
    assert (await world.task(hold.task.id)).state == "preparing"
    assert ((await world.comment(key)).state, world.said()) == ("pending", [])
    world.clock.advance(FRESH_S)
    assert await Relay(world.gear).tick(0) == 1
    # GW-R-188
    assert ((await world.comment(key)).state, len(world.said())) == ("confirmed", 1)


async def test_a_comment_that_comes_late_is_not_doubled(world: World) -> None:
    hold = await begun(world)
    world.fault("delay", match=POSTS, seconds=3.0, when="before")
    relay = Relay(world.gear)
    await receipts.start(world.gear, hold, hold.task)
    # It is on its way still, and the read does not show it: nothing is concluded from that.
    await relay.tick(0)
    assert world.said() == []
    world.clock.advance(GRACE_S)
    eventually(world.said)
    await relay.tick(0)
    row = await world.comment(actions.status_key(hold.task.id, "running"))
    assert (row.state, len(world.said())) == ("confirmed", 1)


async def test_a_refused_receipt_changes_nothing(world: World) -> None:
    hold = await begun(world)
    world.admin.lock("acme/widgets", world.issue)
    world.admin.collaborator("acme/widgets", "codebot", "read")
    await receipts.start(world.gear, hold, hold.task)
    row = await world.comment(actions.status_key(hold.task.id, "running"))
    # GW-R-137: the row fails with an audit result; the task is untouched.
    assert (row.state, row.error_code) == ("failed", codes.FORGE_DENIED)
    assert (await world.task(hold.task.id)).state == "preparing"
    [result] = await world.history(hold.task, "comment.result")
    assert (result.outcome, (result.data or {})["code"]) == ("failed", codes.FORGE_DENIED)


async def test_a_lost_lease_posts_nothing(world: World) -> None:
    hold = await begun(world)
    await world.lose(hold)
    with pytest.raises(Stale) as stale:
        await receipts.start(world.gear, hold, hold.task)
    # GW-R-121, GW-R-252
    assert (stale.value.code, world.said()) == (codes.LEASE_LOST, [])


async def test_a_start_receipt_is_never_sent_under_a_dead_term(world: World) -> None:
    hold = await begun(world)
    async with unreachable(world) as gear:
        await receipts.start(gear, hold, hold.task)
    await world.lose(hold)
    world.clock.advance(FRESH_S)
    await Relay(world.gear).tick(0)
    row = await world.comment(actions.status_key(hold.task.id, "running"))
    assert (row.state, row.error_code, world.said()) == ("failed", codes.LEASE_LOST, [])


async def test_a_start_receipt_of_a_dead_term_is_read_back(world: World) -> None:
    hold = await begun(world)
    world.fault("drop_after", match=POSTS)
    world.fault("answer", match=READS, count=3, status=500)
    await receipts.start(world.gear, hold, hold.task)
    await world.lose(hold)
    world.clock.advance(FRESH_S)
    await Relay(world.gear).tick(0)
    row = await world.comment(actions.status_key(hold.task.id, "running"))
    # GW-R-188: present → confirmed.
    assert (row.state, len(world.said())) == ("confirmed", 1)


async def test_an_exceptional_end_is_told_once(world: World) -> None:
    hold, _ = await running(world)
    await leave(world, hold, "fail", error_code=codes.TURN_FAILED)
    key = actions.status_key(hold.task.id, "failed")
    row = await receipts.post(world.gear, hold.task.id, key, hold=None)
    await receipts.post(world.gear, hold.task.id, key, hold=None)
    # GW-R-135; GW-R-137: the code's words, no internals.
    [said] = world.said()
    assert said.startswith("giteabot: the task failed: the agent's turn failed.")
    assert row.state == "confirmed"


async def test_the_relay_tells_what_its_worker_did_not(world: World) -> None:
    hold, _ = await running(world)
    relay = Relay(world.gear)
    await relay.tick(0)
    await leave(world, hold, "fail", error_code=codes.TURN_FAILED)
    assert await relay.tick(0) == 0, "somebody may be attending to it"
    world.clock.advance(FRESH_S)
    assert await relay.tick(0) == 1
    assert len(world.said()) == 1
    assert await relay.tick(0) == 0


async def test_what_a_process_before_left_is_taken_up_at_once(world: World) -> None:
    hold, _ = await running(world)
    await leave(world, hold, "fail", error_code=codes.TURN_FAILED)
    assert await Relay(world.gear).tick(0) == 1
    assert len(world.said()) == 1


async def test_one_process_at_a_time_has_the_duty(world: World, tmp_path: Any) -> None:
    other = gear_for(world.port, world.gear.settings, tmp_path / "other", "worker_two")
    first, second = Relay(world.gear), Relay(other)
    try:
        await first.tick(0)
        hold, _ = await running(world)
        await leave(world, hold, "fail", error_code=codes.TURN_FAILED)
        world.clock.advance(FRESH_S)
        assert await second.tick(0) == 0
        assert world.said() == []
        await first.close()
        assert await second.tick(0) == 1
        assert await first.tick(0) == 0
    finally:
        await other.forge.close()
    assert len(world.said()) == 1


async def test_a_relay_that_lost_its_duty_stops(world: World) -> None:
    relay = Relay(world.gear)
    await relay.tick(0)
    world.clock.advance(world.gear.settings.ttl_s + 1)
    hold, _ = await running(world)
    await leave(world, hold, "fail", error_code=codes.TURN_FAILED)
    taken = await world.do("relay.take", hold.task, leases.acquire, kind="duty", key="relay:default",
                           owner="worker_two", incarnation="two_1", subject="x", ttl_s=60)  # fmt: skip
    assert taken is not None
    assert (await relay.tick(0), world.said()) == (0, [])


async def test_a_question_left_behind_is_posted_while_the_task_waits(world: World) -> None:
    hold, key = await asked(world)
    assert await Relay(world.gear).tick(0) == 1
    row = await world.comment(key)
    assert (row.state, len(world.said())) == ("confirmed", 1)
    assert (await world.task(hold.task.id)).state == "waiting_user"  # GW-R-181


async def test_a_question_nobody_can_see_is_alerted_once(world: World) -> None:
    hold, key = await asked(world, wait=False)
    world.fault("drop_after", match=POSTS)
    world.fault("answer", match=READS, count=None, status=500)
    await receipts.post(world.gear, hold.task.id, key, hold=hold)
    await leave(world, hold, "wait")
    relay = Relay(world.gear)
    for _ in range(5):
        world.clock.advance(ALERT_S)
        assert await relay.tick(0) == 0
    [alert] = await world.history(hold.task, "alert.question_unknown")
    assert (alert.data or {})["key"] == key
    assert ((await world.comment(key)).state, len(world.said())) == ("pending", 1)
    world.admin.clear_faults()
    world.clock.advance(1000)
    assert await relay.tick(0) == 1
    assert ((await world.comment(key)).state, len(world.said())) == ("confirmed", 1)


async def test_a_question_that_was_overtaken_is_not_posted(world: World) -> None:
    hold, key = await asked(world)
    await world.mention("never mind, use the red one")
    await Relay(world.gear).tick(0)
    row = await world.comment(key)
    assert (row.state, row.error_code, world.said()) == ("failed", codes.INVALID_STATE, [])
    assert (await world.task(hold.task.id)).state == "queued"


async def test_the_forges_word_is_no_proof(world: World) -> None:
    hold, key = await asked(world, wait=False)
    world.fault("hide_comment", match={"body": "commentKey"}, count=3)
    row = await receipts.post(world.gear, hold.task.id, key, hold=hold)
    # GW-R-138: 2xx sets `sent`, the read-back confirms.
    assert (row.state, row.native_id is not None) == ("sent", True)
    row = await receipts.post(world.gear, hold.task.id, key, hold=hold)
    assert (row.state, len(world.said())) == ("confirmed", 1)


async def test_an_altered_comment_proves_nothing(world: World) -> None:
    hold, key = await asked(world, wait=False)
    world.fault("alter_comment", match={"body": "commentKey"}, count=None, pattern="<!--.*-->")
    row = await receipts.post(world.gear, hold.task.id, key, hold=hold)
    assert row.state == "sent"
    assert len(world.said()) == 1


async def test_a_mark_in_somebody_elses_comment_proves_nothing(world: World) -> None:
    hold, key = await asked(world, wait=False)
    world.admin.comment("acme/widgets", world.issue, "alice", texts.question("Which one?", key))
    world.fault("answer", match=POSTS, status=502)
    row = await receipts.post(world.gear, hold.task.id, key, hold=hold)
    # GW-R-165
    assert (row.state, world.said()) == ("pending", [])


async def test_a_comment_follows_its_repository_to_a_new_name(world: World) -> None:
    hold = await begun(world)
    world.repo["full_name"] = world.admin.rename("acme/widgets", name="gadgets")
    await receipts.start(world.gear, hold, hold.task)
    assert len(world.said()) == 1


async def test_nothing_is_tried_for_ever(world: World) -> None:
    hold, _ = await running(world)
    await leave(world, hold, "fail", error_code=codes.TURN_FAILED)
    relay = Relay(world.gear)
    async with unreachable(world) as gear:
        lonely = Relay(gear)
        assert await lonely.tick(0) == 0
        world.clock.advance(DAY_S)
        assert await lonely.tick(0) == 1
        await lonely.close()
    row = await world.comment(actions.status_key(hold.task.id, "failed"))
    # GW-R-137
    assert (row.state, row.error_code) == ("failed", codes.FORGE_UNREACHABLE)
    assert (await relay.tick(0), world.said()) == (0, [])


async def test_the_answer_of_an_ended_task_is_only_looked_for(world: World) -> None:
    hold, run_id = await running(world)
    key = actions.final_key(hold.task.id, run_id)
    body = texts.answer("Done.", (), "<!-- ccweb taskId=x -->")
    await intended(world, hold.task, key, "mcp_final", body, run_id=run_id, term=hold.lease.term)
    relay = Relay(world.gear)
    assert await relay.tick(0) == 0, "its verification decides about it"
    await leave(world, hold, "fail", error_code=codes.TURN_FAILED)
    await relay.tick(0)
    row = await world.comment(key)
    assert (row.state, row.error_code) == ("failed", codes.INVALID_STATE)
    assert all("Done." not in said for said in world.said())
