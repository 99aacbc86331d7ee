from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stationmaster.errors import Illegal, Stale
from stationmaster.gitea import actions, codes, marker, receipts, texts, verify
from stationmaster.gitea.gear import Hold
from stationmaster.gitea.model import Comment, Task
from stationmaster.ledger import history
from stationmaster.ledger.tx import Tx
from tests.gitea.world import BOT, World
from tests.support import eventually

REPO = "acme/widgets"
POSTS = {"method": "POST", "path": "/comments"}
READS = {"method": "GET", "path": "/comments"}
GRACE_S = 6
UNREADABLE = [
    pytest.param("answer", {"status": 500}, id="500"),
    pytest.param("answer", {"status": 404}, id="404"),
    pytest.param("drop_before", {}, id="dropped"),
    pytest.param("cut", {}, id="half a page"),
    pytest.param("delay", {"seconds": 2.3}, id="too late"),
    pytest.param("hide_comment", {"honest_count": True}, id="not the whole list"),
]


def answer(task: Task, run_id: str, text: str = "It is fixed.") -> str:
    return texts.answer(text, (), marker.final(task.id, run_id, task.resource_key))


def bot_says(world: World, body: str, number: int | None = None) -> int:
    return world.admin.comment(REPO, world.issue if number is None else number, BOT, body)


async def replied(world: World, hold: Hold, run_id: str) -> Comment:
    """The agent's `reply` tool: the row, then the attempt."""
    key = actions.final_key(hold.task.id, run_id)
    body = answer(hold.task, run_id)
    await world.do("reply.intend", hold.task, actions.intend_comment, hold.task, key, "mcp_final", body,
                   run_id=run_id, term=hold.lease.term)  # fmt: skip
    return await receipts.post(world.gear, hold.task.id, key, hold=hold)


async def ran(world: World, text: str = "It is fixed.") -> tuple[Hold, str]:
    """A task whose agent is done, its answer not verified yet."""
    hold = await world.claim(await world.mention())
    run_id = await world.turn(hold)
    await world.end_turn(hold.task, run_id, text)
    return hold, run_id


async def settled(world: World, hold: Hold) -> Task:
    task = await world.task(hold.task.id)
    if task.state == "running":
        task = await world.advance(hold, "verify")
    return await verify.settle(world.gear, hold, task)


async def retried(world: World, text: str = "It is fixed.", again: str = "") -> tuple[Hold, list[str]]:
    """A task whose answer is missing also after its reply retry; returns the turns as well."""
    hold, first = await ran(world, text)
    await settled(world, hold)
    hold = await world.claim(hold.task)
    second = await world.turn(hold, "reply_retry")
    await world.end_turn(hold.task, second, again)
    return hold, [first, second]


async def names(world: World, task: Task) -> list[str]:
    return [entry.name for entry in await world.history(task) if entry.kind not in {"command", "move"}]


# --- found ----------------------------------------------------------------------------------------------------------


async def test_an_answer_that_is_there_ends_the_task(world: World) -> None:
    hold, run_id = await ran(world)
    world.fault("hide_comment", count=3)
    assert (await replied(world, hold, run_id)).state == "sent"
    task = await settled(world, hold)
    # GW-R-168, GW-R-092
    assert (task.state, task.error_code, await world.lease(task)) == ("succeeded", None, None)
    row = await world.comment(actions.final_key(task.id, run_id))
    assert (row.state, len(world.said())) == ("confirmed", 1)
    # GW-R-175
    told = await names(world, task)
    assert told[told.index("reply.verify.intent") :][:2] == ["reply.verify.intent", "reply.verify.result"]
    assert "reply.confirm" in told


async def test_an_answer_that_was_read_back_needs_no_other_read(world: World) -> None:
    hold, run_id = await ran(world)
    assert (await replied(world, hold, run_id)).state == "confirmed"
    world.fault("answer", match=READS, count=None, status=500)
    assert (await settled(world, hold)).state == "succeeded"


async def test_an_answer_that_the_agent_posted_itself_gets_its_row(world: World) -> None:
    hold, run_id = await ran(world)
    native = bot_says(world, answer(hold.task, run_id))
    assert (await settled(world, hold)).state == "succeeded"
    row = await world.comment(actions.final_key(hold.task.id, run_id))
    assert (row.kind, row.state, row.native_id) == ("mcp_final", "confirmed", native)


async def test_one_good_read_out_of_three_is_enough(world: World) -> None:
    hold, run_id = await ran(world)
    bot_says(world, answer(hold.task, run_id))
    world.fault("answer", match=READS, count=2, status=500)
    # GW-R-167
    assert (await settled(world, hold)).state == "succeeded"


async def test_further_answers_change_nothing(world: World) -> None:
    hold, run_id = await ran(world)
    first = bot_says(world, answer(hold.task, run_id))
    second = bot_says(world, answer(hold.task, run_id))
    task = await settled(world, hold)
    # GW-R-176
    assert task.state == "succeeded"
    assert (await world.comment(actions.final_key(task.id, run_id))).native_id == first
    [observed] = await world.history(task, "reply.duplicate_observed")
    assert (await world.port.read(history.refs, observed.seq))["comment"] == [str(second)]


async def test_a_comment_that_the_bridge_named_counts_among_several_and_alone_proves_nothing(world: World) -> None:
    # GW-R-161, GW-R-176
    hold, run_id = await ran(world)
    first, second = (bot_says(world, answer(hold.task, run_id)) for _ in range(2))

    def named(tx: Tx) -> None:
        tx.event("mcp.call_observed", refs={"task": hold.task.id, "turn": run_id}, comment=second)
        tx.event("mcp.call_observed", refs={"task": hold.task.id, "turn": run_id}, comment=999_999)

    await world.do("run.note", hold.task, named)
    assert (await settled(world, hold)).state == "succeeded"
    assert (await world.comment(actions.final_key(hold.task.id, run_id))).native_id == second
    [observed] = await world.history(hold.task, "reply.duplicate_observed")
    assert (await world.port.read(history.refs, observed.seq))["comment"] == [str(first)]


# --- missing --------------------------------------------------------------------------------------------------------


async def test_an_answer_that_is_missing_is_asked_for_once_more(world: World) -> None:
    hold, _ = await ran(world)
    task = await settled(world, hold)
    # GW-R-170, GW-R-206, GW-R-093: nothing is written, the budget of the reply is spent, the lease is free.
    assert (task.state, task.retry_purpose, task.error_code) == ("retry_wait", "reply", codes.MCP_REPLY_MISSING)
    assert (task.reply_attempt, task.attempt) == (1, 0)  # GW-R-108
    assert task.next_retry_at is not None
    assert task.next_retry_at <= world.clock.now()
    assert (world.said(), await world.lease(task)) == ([], None)


async def test_the_word_of_the_tool_is_no_answer(world: World) -> None:
    hold, run_id = await ran(world)
    world.fault("hide_comment", count=None)
    assert (await replied(world, hold, run_id)).state == "sent"
    # GW-R-248, GW-R-004: a tool that said yes without a comment is not success.
    assert (await settled(world, hold)).state == "retry_wait"


@pytest.mark.parametrize("how", ["another author", "another issue", "two marks", "another resource", "altered"])
async def test_what_only_looks_like_the_answer_is_not(world: World, how: str) -> None:
    hold, run_id = await ran(world)
    body = answer(hold.task, run_id)
    if how == "another author":
        world.admin.comment(REPO, world.issue, "alice", f"> {body}")
    elif how == "another issue":
        bot_says(world, body, world.admin.issue(REPO, "alice", "Another"))
    elif how == "two marks":
        bot_says(world, f"{body}\n{marker.final('gitea-task-other', run_id, hold.task.resource_key)}")
    elif how == "another resource":
        bot_says(world, texts.answer("Done.", (), marker.final(hold.task.id, run_id, "default:acme/widgets:issue:9")))
    else:
        bot_says(world, body)
        world.fault("alter_comment", match={"body": "ccweb"}, count=None, pattern="ccweb", replace="web")
    # GW-R-165, GW-R-163
    assert (await settled(world, hold)).state == "retry_wait"


async def test_an_answer_of_an_earlier_round_is_not_this_ones(world: World) -> None:
    hold = await world.claim(await world.mention())
    first = await world.turn(hold)
    await world.end_turn(hold.task, first, "", "interrupt")
    second = await world.turn(hold)
    await world.end_turn(hold.task, second, "It is fixed.")
    bot_says(world, answer(hold.task, first))
    # GW-R-166
    assert (await settled(world, hold)).state == "retry_wait"


async def test_an_original_that_appears_late_ends_the_task_after_the_retry(world: World) -> None:
    hold, turns = await retried(world)
    native = bot_says(world, answer(hold.task, turns[0]))
    task = await settled(world, hold)
    # GW-R-166
    assert (task.state, task.reply_failure) == ("succeeded", None)
    assert (await world.comment(actions.final_key(task.id, turns[0]))).native_id == native


# --- the fallback ---------------------------------------------------------------------------------------------------


async def test_an_answer_missing_twice_is_posted_by_the_host(world: World) -> None:
    hold, turns = await retried(world)
    before = len(world.admin.requests())
    task = await settled(world, hold)
    # GW-R-171, GW-R-249, GW-R-105: one fallback, read back, its cause kept.
    assert (task.state, task.reply_failure) == ("succeeded_with_rest_fallback", codes.MCP_REPLY_MISSING)
    assert world.said() == [answer(task, turns[0])]
    row = await world.comment(actions.fallback_key(task.id))
    assert (row.kind, row.state) == ("rest_fallback", "confirmed")
    asked = [request["method"] for request in world.admin.requests()[before:] if "/comments" in request["path"]]
    assert asked == ["GET"] * 4 + ["POST", "GET"], "the last thing before it is a read"
    told = await names(world, task)
    assert [name for name in told if name.startswith("reply.")][-4:] == [
        "reply.verify.result", "reply.missing", "reply.fallback", "reply.confirm",
    ]  # fmt: skip
    assert told.count("comment.intent") == told.count("comment.result") == 1  # GW-R-175


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        pytest.param("drop_after", {}, id="dropped after accepting"),
        pytest.param("answer", {"status": 502, "effect": True}, id="502 with a blank body"),
        pytest.param("delay", {"seconds": 2.3, "when": "after"}, id="hangs"),
    ],
)
async def test_a_fallback_that_was_taken_is_found_and_not_repeated(
    world: World, kind: str, action: dict[str, Any]
) -> None:
    hold, _ = await retried(world)
    world.fault(kind, match=POSTS, **action)
    task = await settled(world, hold)
    assert (task.state, len(world.said())) == ("succeeded_with_rest_fallback", 1)


@pytest.mark.parametrize(
    ("kind", "action", "code"),
    [
        pytest.param("answer", {"status": 403}, codes.REST_FALLBACK_FAILED, id="refused"),
        pytest.param("answer", {"status": 500}, codes.REST_FALLBACK_FAILED, id="500"),
        pytest.param("drop_before", {}, codes.REST_FALLBACK_UNCONFIRMED, id="no answer"),
        pytest.param("hide_comment", {}, codes.REST_FALLBACK_UNCONFIRMED, id="not seen"),
    ],
)
async def test_a_fallback_that_is_not_there_fails_the_reply(
    world: World, kind: str, action: dict[str, Any], code: str
) -> None:
    hold, _ = await retried(world)
    world.fault(kind, match=None if kind == "hide_comment" else POSTS, count=None, **action)
    task = await settled(world, hold)
    # GW-R-171, GW-R-207
    assert (task.state, task.error_code, task.reply_failure) == ("failed_reply", code, codes.MCP_REPLY_MISSING)
    assert await world.lease(task) is None
    # GW-R-135: its receipt is to be sent; no second answer ever is.
    world.admin.clear_faults()
    world.clock.advance(GRACE_S * 10)
    await receipts.Relay(world.gear).tick(0)
    assert sum("It is fixed." in said for said in world.said()) == (kind == "hide_comment")
    assert sum(said.startswith(texts.PREFIX) for said in world.said()) == 1


async def test_a_fallback_without_words_is_not_posted(world: World) -> None:
    hold, _ = await retried(world, text="")
    task = await settled(world, hold)
    # GW-R-173
    assert (task.state, task.error_code, world.said()) == ("failed_reply", codes.REPLY_TEXT_MISSING, [])


@pytest.mark.parametrize(
    ("first", "again", "posted"),
    [("It is fixed.", "Posted.", "It is fixed."), ("", "It is fixed.", "It is fixed."), ("Ok.", "Long.", "Long.")],
)
async def test_which_words_a_fallback_posts(world: World, first: str, again: str, posted: str) -> None:
    hold, turns = await retried(world, first, again)
    task = await settled(world, hold)
    # GW-R-173: the normal turn's, or the reply turn's when these are longer.
    turn = turns[0] if posted == first else turns[1]
    assert (task.state, world.said()) == ("succeeded_with_rest_fallback", [answer(task, turn, posted)])


async def test_what_the_agent_handed_over_is_posted_when_it_said_nothing_else(world: World) -> None:
    hold, run_id = await ran(world, "")
    world.fault("answer", match=POSTS, status=403)
    assert (await replied(world, hold, run_id)).state == "failed"
    await settled(world, hold)
    hold = await world.claim(hold.task)
    await world.end_turn(hold.task, await world.turn(hold, "reply_retry"))
    assert (await settled(world, hold)).state == "succeeded_with_rest_fallback"
    assert world.said() == [answer(hold.task, run_id)]


async def test_a_proven_answer_is_never_doubled_by_a_fallback(world: World) -> None:
    hold, run_id = await ran(world)
    await replied(world, hold, run_id)
    with pytest.raises(Illegal):
        # GW-R-042
        await world.do("reply.fallback", hold.task, actions.intend_comment, hold.task,
                       actions.fallback_key(hold.task.id), "rest_fallback", "again")  # fmt: skip


async def test_an_answer_that_was_accepted_and_never_seen_is_given_up_for_the_fallback(world: World) -> None:
    hold, run_id = await ran(world)
    world.fault("hide_comment", match={"body": "It is fixed"}, count=None)
    row = await replied(world, hold, run_id)
    world.admin.clear_faults()
    world.fault("hide_comment", match={"comment": f"^{row.native_id}$"}, count=None)
    await settled(world, hold)
    hold = await world.claim(hold.task)
    await world.end_turn(hold.task, await world.turn(hold, "reply_retry"))
    assert (await settled(world, hold)).state == "succeeded_with_rest_fallback"
    row = await world.comment(row.id)
    assert (row.state, row.error_code) == ("failed", codes.MCP_REPLY_MISSING)


async def interrupted(world: World, *, taken: bool) -> Hold:
    """A fallback whose sender died between the intent and the result; the lease is free."""
    hold, _ = await retried(world)
    task = await world.advance(hold, "verify")
    world.fault("delay" if taken else "drop_before", match=POSTS, seconds=60, when="after" if taken else "before")
    work = asyncio.create_task(verify.settle(world.gear, hold, task))
    posted = world.said if taken else lambda: world.admin.requests(method="POST", path="/comments")
    await asyncio.to_thread(eventually, posted)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    await world.lose(hold)
    return hold


async def adopted(world: World, hold: Hold) -> Hold:
    """What recovery does with a task in `verifying_reply`: another lease."""
    lease = await world.do(
        "recovery.adopt", hold.task, actions.take_lease, hold.task, world.gear.station, world.gear.settings
    )
    assert lease is not None
    return Hold(world.gear, hold.task, lease)


async def test_an_interrupted_fallback_that_arrived_is_found(world: World) -> None:
    hold = await interrupted(world, taken=True)
    task = await settled(world, await adopted(world, hold))
    # GW-R-174
    assert (task.state, len(world.said())) == ("succeeded_with_rest_fallback", 1)


async def test_an_unreadable_interrupted_fallback_is_left(world: World) -> None:
    hold = await interrupted(world, taken=True)
    world.fault("answer", match=READS, count=None, status=500)
    task = await settled(world, await adopted(world, hold))
    # GW-R-174: unknown → failed_reply
    assert (task.state, task.error_code) == ("failed_reply", codes.REPLY_STATUS_UNKNOWN)
    assert len(world.said()) == 1


async def test_an_interrupted_fallback_that_did_not_arrive_is_posted_once(world: World) -> None:
    hold = await interrupted(world, taken=False)
    task = await settled(world, await adopted(world, hold))
    # GW-R-174: it is not there, but may still come; nothing is written before that is over.
    assert (task.state, task.retry_purpose, world.said()) == ("retry_wait", "verification", [])
    assert (task.attempt, task.reply_attempt) == (0, 1)
    world.clock.advance(GRACE_S)
    task = await settled(world, await world.claim(task))
    assert (task.state, len(world.said())) == ("succeeded_with_rest_fallback", 1)


async def test_a_fallback_of_which_nobody_knows_is_not_posted_again(world: World) -> None:
    hold, _ = await retried(world)
    task = await world.advance(hold, "verify")
    key = actions.fallback_key(task.id)
    await world.do("reply.fallback", task, actions.intend_comment, task, key, "rest_fallback", "words", run_id="run_x")
    world.fault("drop_before", match=POSTS)
    # Whoever posted it wrote that nobody knows, and died before the task moved.
    assert (await receipts.post(world.gear, task.id, key, hold=hold)).state == "pending"
    world.clock.advance(GRACE_S)
    task = await verify.settle(world.gear, hold, task)
    assert (task.state, task.error_code) == ("failed_reply", codes.REST_FALLBACK_UNCONFIRMED)
    assert world.said() == []


# --- unknown --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "action"), UNREADABLE)
async def test_what_cannot_be_read_is_never_taken_for_missing(world: World, kind: str, action: dict[str, Any]) -> None:
    hold, run_id = await ran(world)
    bot_says(world, answer(hold.task, run_id))
    world.fault(kind, match=None if kind == "hide_comment" else READS, count=None, **action)
    before = len(world.admin.requests())
    task = await settled(world, hold)
    # GW-R-169, GW-R-209, GW-R-167, GW-R-250: nothing is written; the operator is told, a receipt is to be sent.
    assert (task.state, task.error_code) == ("failed_reply", codes.REPLY_STATUS_UNKNOWN)
    assert {request["method"] for request in world.admin.requests()[before:]} == {"GET"}
    told = await names(world, task)
    assert "reply.unknown" in told
    assert "alert.reply_unknown" in told
    assert await world.lease(task) is None
    assert (await world.comment(actions.status_key(task.id, "failed_reply"))).state == "pending"


async def test_an_answer_that_may_still_come_is_waited_for(world: World) -> None:
    hold, run_id = await ran(world)
    world.fault("delay", match=POSTS, seconds=3.5, when="before")
    assert (await replied(world, hold, run_id)).state == "pending"
    task = await settled(world, hold)
    # GW-R-167: it left us and nobody knows; a complete read without it proves nothing yet.
    assert (task.state, task.retry_purpose, task.reply_attempt) == ("retry_wait", "verification", 0)
    await asyncio.to_thread(eventually, world.said)
    world.clock.advance(GRACE_S)
    task = await settled(world, await world.claim(task))
    assert (task.state, len(world.said())) == ("succeeded", 1)
    row = await world.comment(actions.final_key(task.id, run_id))
    assert row.state == "confirmed"
    assert (await names(world, task)).count("comment.result") == 2, "the unknown, and what became of it"  # GW-R-189


async def test_an_answer_that_did_not_come_is_missing_in_the_end(world: World) -> None:
    hold, run_id = await ran(world)
    world.fault("drop_before", match=POSTS)
    await replied(world, hold, run_id)
    task = await settled(world, hold)
    assert (task.state, task.retry_purpose) == ("retry_wait", "verification")
    world.clock.advance(GRACE_S)
    task = await settled(world, await world.claim(task))
    # The answer itself is never sent again: its turn is asked for it.
    assert (task.state, task.retry_purpose, world.said()) == ("retry_wait", "reply", [])


# --- fences and recovery --------------------------------------------------------------------------------------------


async def test_whoever_lost_the_lease_decides_nothing(world: World) -> None:
    hold, _ = await ran(world)
    task = await world.advance(hold, "verify")
    await world.lose(hold)
    with pytest.raises(Stale) as stale:
        await verify.settle(world.gear, hold, task)
    # GW-R-252, GW-R-121
    assert stale.value.code == codes.LEASE_LOST
    assert (await world.task(task.id)).state == "verifying_reply"


async def test_a_fallback_needs_the_lease(world: World) -> None:
    hold, _ = await retried(world)
    task = await world.advance(hold, "verify")

    class Losing(Hold):
        async def check(self) -> None:
            await world.lose(hold)
            await super().check()

    with pytest.raises(Stale):
        await verify.settle(world.gear, Losing(world.gear, task, hold.lease), task)
    assert world.said() == []
    # Nothing left us, so whoever comes next may post it.
    task = await settled(world, await adopted(world, hold))
    assert (task.state, len(world.said())) == ("succeeded_with_rest_fallback", 1)


async def test_recovery_can_look_without_deciding(world: World) -> None:
    hold, run_id = await ran(world)
    assert await verify.look(world.gear, hold.task) == verify.Missing()
    native = bot_says(world, answer(hold.task, run_id))
    found = await verify.look(world.gear, hold.task)
    # GW-R-187
    assert isinstance(found, verify.Found)
    assert (found.comment_id, found.turn) == (native, run_id)
    world.fault("answer", match=READS, count=None, status=500)
    assert await verify.look(world.gear, hold.task) == verify.Unknown(codes.FORGE_ERROR)
    assert (await world.task(hold.task.id)).state == "running"
