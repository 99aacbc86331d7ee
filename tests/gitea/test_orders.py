"""Orders by comment: each is carried out once and told once, whoever repeats or interrupts it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stationmaster.command import Cmd
from stationmaster.gitea import (
    actions,
    codes,
    conclude,
    operate,
    order_texts,
    order_words,
    orders,
    receipts,
    store,
    webhook,
)
from stationmaster.gitea.gear import Hold
from stationmaster.gitea.model import Order, Task
from stationmaster.gitea.orders import Orders
from stationmaster.gitea.payload import Permissions
from stationmaster.gitea.run import Ended
from stationmaster.ledger import history
from stationmaster.workspaces.guard import Problem
from tests.gitea.life import abort, life, rule
from tests.gitea.world import ASKER, BOT, World

MAY = Permissions(admin=False, push=True, pull=True)
MAY_NOT = Permissions(admin=False, push=False, pull=True)


async def say(world: World, text: str, *, number: int | None = None, may: Permissions = MAY) -> webhook.Reply:
    """Lets somebody write to the bot; returns what the forge was answered."""
    at = world.issue if number is None else number
    comment = world.admin.comment(world.repo["full_name"], at, ASKER, f"@{BOT} {text}")
    said = world.normalised(comment, at, "issue", text, may, ASKER)
    return await deliver(world, said)


async def deliver(world: World, said: Any) -> webhook.Reply:
    """Lets the webhook take a comment."""
    cmd = Cmd("webhook.take", f"gitea:user:{ASKER}", f"delivery:{said.delivery_id}")
    return await world.port.do(cmd, webhook.take, said, "hash", world.gear.settings)


async def open_orders(world: World) -> list[Order]:
    """Returns the orders that are not carried out."""
    return await world.port.read(store.open_orders, "default")


@pytest.fixture
def duty(world: World) -> Orders:
    return Orders(world.gear)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("stop", "stop"),
        ("  STOP \n", "stop"),
        ("停止", "stop"),
        ("Retry", "retry"),
        ("重试", "retry"),
        ("status", "status"),
        ("状态", "status"),
        ("help", "help"),
        ("帮助", "help"),
        ("stop it", None),
        ("please stop", None),
        ("help me with the parser", None),
        ("", None),
    ],
)
def test_only_the_word_alone_is_an_order(words: str, meant: str | None) -> None:
    assert order_words.word_of(words) == meant


async def test_help_is_told_where_no_task_ever_was_and_once(world: World, duty: Orders) -> None:
    # GW-R-001, GW-R-022, GW-R-136
    comment = world.admin.comment(world.repo["full_name"], world.issue, ASKER, f"@{BOT} help")
    said = world.normalised(comment, world.issue, "issue", "help", MAY, ASKER)
    first = await deliver(world, said)
    assert (first.status, first.body["order"]) == (202, "help")
    assert world.said() == []
    assert await duty.tick(0) == 1
    assert "`@codebot stop`" in world.said()[0]
    # The same delivery, another hook's delivery of the same comment, and a second duty change nothing.
    assert (await deliver(world, said)).status == 202
    again = await deliver(world, replaced(said, delivery_id="another"))
    assert (again.status, again.body["status"]) == (200, "duplicate")
    assert await Orders(world.gear).tick(0) == 0
    assert len(world.said()) == 1


def replaced(said: Any, **given: Any) -> Any:
    """Returns a comment as another delivery brings it."""
    return msgspec.structs.replace(said, **given)


async def test_somebody_who_may_not_ask_is_refused_without_a_word(world: World, duty: Orders) -> None:
    task = await world.mention(permissions=MAY)
    await say(world, "stop", may=MAY_NOT)
    assert await duty.tick(0) == 1
    assert (await world.task(task.id)).state == "queued"
    assert world.said() == []
    assert await open_orders(world) == []
    refused = await world.port.read(history.by_action, "order.refuse")
    assert [entry.outcome for entry in refused] == [codes.AUTHOR_NOT_ALLOWED]


async def test_stop_cancels_what_waits_and_tells_it_once(world: World, duty: Orders) -> None:
    # GW-R-177
    first, second = await world.mention(permissions=MAY), await world.mention("and this", permissions=MAY)
    assert (await say(world, "stop")).body["order"] == "stop"
    later = await world.mention("something else", permissions=MAY)
    await duty.tick(0)
    for task in (first, second):
        now = await world.task(task.id)
        assert (now.state, now.error_code) == ("cancelled", "stopped_by_comment")
    # What is asked after the stop is meant.
    assert (await world.task(later.id)).state == "queued"
    assert len(world.said()) == 1
    assert "Stopped" in world.said()[0]
    await say(world, "stop", number=world.admin.issue(world.repo["full_name"], ASKER, "Another", ""))
    await duty.tick(0)
    assert "Nothing is under way" in world.said(2)[0]


async def test_stop_of_a_waiting_task_is_told_by_its_own_receipt(world: World, duty: Orders) -> None:
    # GW-R-135
    hold = await world.claim(await world.mention(permissions=MAY))
    await started(world, hold)
    await world.turn(hold)
    await world.do("turn.end", hold.task, actions.leave, hold.task.id, "wait", hold.lease, world.gear.settings)
    await say(world, "stop")
    await duty.tick(0)
    assert (await world.task(hold.task.id)).state == "cancelled"
    assert [words for words in world.said() if "cancelled" in words] == world.said()[-1:]
    assert len(world.said()) == 2


async def started(world: World, hold: Hold) -> None:
    """Posts the start receipt of a claimed task."""
    await receipts.start(world.gear, hold, hold.task)


async def test_stop_while_a_task_is_prepared_stands_until_it_can_be_honoured(world: World, duty: Orders) -> None:
    # GW-R-178, GW-R-104: kept in the ledger, so another process honours it just as well.
    hold = await world.claim(await world.mention(permissions=MAY))
    await say(world, "stop")
    await say(world, "stop")
    await duty.tick(0)
    assert (await world.task(hold.task.id)).state == "preparing"
    assert [order.state for order in await open_orders(world)] == ["standing"]
    await say(world, "status")
    await duty.tick(0)
    assert "is being prepared" in world.said()[-1]
    assert "It stops as soon as it can." in world.said()[-1]
    ended = await world.do("task.halt", hold.task, conclude.halted, hold.task.id, hold.lease, world.gear.settings)
    assert (ended.state, ended.error_code) == ("aborted", "stopped_by_comment")
    assert await world.lease(ended) is None
    assert await Orders(world.gear).tick(0) == 1
    assert await open_orders(world) == []
    assert len(world.said()) == 1
    # The task's own receipt tells it, and it is not told again.
    assert [row.id for row in await world.comments(ended)] == [actions.status_key(ended.id, "aborted")]
    assert await world.port.read(store.open_notes, "default") == []


async def test_stop_is_honoured_when_the_task_blocks(world: World, duty: Orders) -> None:
    hold = await world.claim(await world.mention(permissions=MAY))
    await say(world, "停止")
    await duty.tick(0)
    problem = Problem(codes.WORKSPACE_DIRTY, "Somebody's file is in the way.")
    ended = await world.do("task.block", hold.task, conclude.block, hold.task.id, hold.lease, world.gear.settings,
                           problem)  # fmt: skip
    assert (ended.state, ended.error_code) == ("cancelled", "stopped_by_comment")


async def test_stop_during_a_retry_wait_ends_the_next_try_before_any_run(world: World, duty: Orders) -> None:
    hold = await world.claim(await world.mention(permissions=MAY))
    await world.do("task.not_ready", hold.task, conclude.not_ready, hold.task.id, hold.lease, world.gear.settings,
                   codes.GIT_NETWORK_FAILED)  # fmt: skip
    assert (await world.task(hold.task.id)).state == "retry_wait"
    await say(world, "stop")
    await duty.tick(0)
    assert (await world.task(hold.task.id)).state == "retry_wait"
    async with life(world) as alive:
        ended = await alive.until(hold.task)
        assert (ended.state, alive.model.requests) == ("aborted", [])
    assert len([words for words in world.said() if "stopped by a comment" in words]) == 1


async def test_an_answer_that_was_on_its_way_is_not_lost_to_a_stop(world: World, duty: Orders) -> None:
    hold = await world.claim(await world.mention(permissions=MAY))
    await world.turn(hold)
    await world.advance(hold, "verify")
    await say(world, "stop")
    await duty.tick(0)
    assert (await world.task(hold.task.id)).state == "verifying_reply"
    await world.do("test.end", hold.task, actions.leave, hold.task.id, "confirm", hold.lease, world.gear.settings)
    await duty.tick(0)
    assert "before it could be stopped" in world.said()[-1]


async def test_stop_aborts_the_running_turn_and_bug_12_what_it_says_afterwards_is_not_posted(
    world: World, duty: Orders
) -> None:
    """Bug 12: the agent prints its final message and exits 0 after the stop; the task stays stopped."""
    # GW-R-178, GW-R-102
    slow = rule("please", [{"shell": "sleep 1"}], [{"hold": "final"}, {"text": "My final message."}])
    async with life(world, slow) as alive:
        task = await world.mention("please fix it", permissions=MAY)
        await alive.until(task, "running")
        await say(world, "stop")
        await duty.tick(0)
        assert (await world.task(task.id)).state == "aborting"
        alive.model.release("final")
        ended = await alive.until(task)
    assert (ended.state, ended.error_code) == ("aborted", "stopped_by_comment")
    await duty.tick(0)
    assert await open_orders(world) == []
    assert len(world.said()) == 2
    assert "stopped by a comment" in world.said()[1]
    assert "My final message" not in "".join(world.said())


async def test_bug_12_a_final_message_after_the_abort_changes_nothing(world: World) -> None:
    """The turn's end arrives when the task is aborting already: neither an answer nor a success comes of it."""
    hold = await world.claim(await world.mention(permissions=MAY))
    run_id = await world.turn(hold)
    await abort(world, hold.task)
    done = conclude.Ran(run_id, "normal", Ended("completed", text="My final message."), False, None)
    ended = await world.do("turn.end", hold.task, conclude.turn, hold.task.id, hold.lease, world.gear.settings, done)
    assert (ended.state, ended.error_code) == ("aborted", "aborted_by_operator")
    assert [row.kind for row in await world.comments(ended)] == ["status"]
    assert world.said() == []


async def test_retry_does_the_old_instruction_again_as_a_task_of_its_own(world: World, duty: Orders) -> None:
    # GW-R-022
    old = await world.mention("please fix the title", permissions=MAY)
    early = await say(world, "retry")
    assert early.body["order"] == "retry"
    await duty.tick(0)
    assert "had not ended" in world.said()[-1]
    await cancel(world, old)
    again = await say(world, "重试")
    new = await world.task(again.body["taskId"])
    assert (new.state, new.session_id) == ("queued", old.session_id)
    assert await world.port.read(store.instruction, new.id) == "please fix the title"
    assert new.id != old.id


async def test_retry_lends_nobody_elses_refused_words_ones_own_rights(world: World, duty: Orders) -> None:
    mine = await world.mention("please fix the title", permissions=MAY)
    await cancel(world, mine)
    world.admin.user("mallory")
    theirs = await world.claim(await world.mention("delete everything", author="mallory"))
    await world.do("task.not_ready", theirs.task, conclude.not_ready, theirs.task.id, theirs.lease,
                   world.gear.settings, codes.AUTHOR_NOT_ALLOWED)  # fmt: skip
    again = await say(world, "retry")
    assert await world.port.read(store.instruction, again.body["taskId"]) == "please fix the title"


async def test_retry_where_nothing_was_asked_says_so(world: World, duty: Orders) -> None:
    await say(world, "retry")
    await duty.tick(0)
    assert "nothing here to repeat" in world.said()[-1]


async def cancel(world: World, task: Task) -> None:
    """Lets an operator cancel a task."""
    wish = operate.Wish("cancel", task.id, "admin:op", "test")
    await world.port.do(operate.command(wish, f"cancel-{task.id}"), operate.body(world.gear.settings), wish)


async def test_status_tells_where_the_task_stands_and_what_it_waits_for(world: World, duty: Orders) -> None:
    await say(world, "status")
    await duty.tick(0)
    assert "No task was ever given here" in world.said()[-1]
    first = await world.mention(permissions=MAY)
    await say(world, "status")
    await duty.tick(0)
    assert "is waiting to begin" in world.said()[-1]
    assert "a free worker" in world.said()[-1]
    hold = await world.claim(first)
    await world.mention("another", permissions=MAY)
    await say(world, "status")
    await duty.tick(0)
    assert "an earlier task of this thread" in world.said()[-1]
    assert "2 tasks are open here" in world.said()[-1]
    await world.turn(hold)


async def test_a_lost_answer_of_the_forge_is_read_back_not_repeated(world: World, duty: Orders) -> None:
    # GW-R-136, GW-R-138
    world.fault("drop_after", match={"method": "POST", "path": "/comments"})
    await say(world, "help")
    await duty.tick(0)
    assert await world.port.read(store.open_notes, "default") == []
    assert len(world.said()) == 1


async def test_a_note_whose_author_died_is_posted_by_the_next_who_looks(world: World, duty: Orders) -> None:
    # GW-R-188
    await say(world, "help")
    (order,) = await open_orders(world)
    cmd = Cmd("order.carry_out", "system", "test:die")
    first = await world.port.do(cmd, orders.carry_out, order.id, world.gear.settings)
    assert await world.port.do(cmd, orders.carry_out, order.id, world.gear.settings) == orders.Carried()
    assert (first.note, world.said()) == (order.id, [])
    await duty.tick(0)
    await Orders(world.gear).tick(0)
    assert len(world.said()) == 1


async def test_an_unreachable_forge_delays_an_order_and_loses_nothing(world: World) -> None:
    duty = Orders(world.gear)
    world.fault("answer", count=None, match={"path": "/repos/"}, status=503)
    await say(world, "help")
    assert await duty.tick(0) == 0
    world.admin.clear_faults()
    assert await duty.tick(0) == 0
    world.clock.advance(6)
    assert await duty.tick(0) == 1
    assert len(world.said()) == 1


async def test_a_disabled_repository_takes_no_order_but_stop(world: World, duty: Orders) -> None:
    task = await world.mention(permissions=MAY)
    wish = operate.Wish("disable", "default:acme/widgets", "admin:op", "test")
    await world.port.do(operate.command(wish, "disable"), operate.body(world.gear.settings), wish)
    assert (await say(world, "help")).status == 409
    assert (await say(world, "stop")).status == 202
    await duty.tick(0)
    assert (await world.task(task.id)).state == "cancelled"


def test_the_words_exist_in_both_languages() -> None:
    for language in ("zh", "en"):
        assert order_texts.help_text("k", "bot", language).startswith("giteabot:")
        assert order_texts.status("k", None, language).startswith("giteabot:")
        assert order_texts.stopped("k", 1, 1, language).startswith("giteabot:")
