"""After a restore nothing is written twice: what the lost days said in a thread is found there first."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from stationmaster.command import Cmd
from stationmaster.gitea import actions, marker, restored, texts, turn, webhook
from stationmaster.gitea.model import Task
from stationmaster.gitea.payload import Permissions
from stationmaster.gitea.recovery import Recovery
from stationmaster.gitea.run import Signals
from stationmaster.ledger import lease as leases
from tests.gitea.life import mention
from tests.gitea.world import ASKER, BOT, REPO, WORKER, World

READS = {"method": "GET", "path": "/comments"}


@pytest.fixture
async def back(world: World) -> World:
    """A world whose ledger came out of a backup just now."""
    await _restore(world)
    return world


async def _restore(world: World) -> None:
    await world.port.do(
        Cmd("backup.restore", "admin:op", "door"), restored.tell, made_at="then", last_seq=1, product="0"
    )


def _answered(world: World, task: str, run_id: str, key: str) -> int:
    body = texts.answer("Fixed it.", (), marker.final(task, run_id, key))
    return world.admin.comment(REPO, world.issue, BOT, body)


async def _work(world: World, task: Task) -> Task:
    hold = await world.claim(task)
    await turn.work(world.gear, hold.task, hold.lease, Signals())
    return await world.task(task.id)


async def test_an_answer_of_a_lost_turn_is_the_answer(back: World) -> None:
    # K7, GW-R-165, GW-R-168
    task = await mention(back, "please fix it")
    receipt = back.admin.comment(REPO, back.issue, BOT, texts.start_receipt(actions.status_key(task.id, "running")))
    answer = _answered(back, task.id, "run_lost", task.resource_key)
    before = back.said()
    done = await _work(back, task)
    assert (done.state, done.error_code) == ("succeeded", None)
    assert back.said() == before
    rows = {row.kind: (row.state, row.native_id, row.run_id) for row in await back.comments(task)}
    assert rows == {"status": ("confirmed", receipt, None), "mcp_final": ("confirmed", answer, "run_lost")}
    assert await back.lease(task) is None


async def test_an_answer_of_a_turn_that_the_backup_knew_is_found_although_no_try_is_left(world: World) -> None:
    # K7, GW-R-184
    await world.port.hot(leases.register_worker, WORKER, f"{WORKER}_start")
    hold = await world.claim(await mention(world, "please fix it"))
    run_id = await world.turn(hold)
    await _restore(world)
    answer = _answered(world, hold.task.id, run_id, hold.task.resource_key)
    await world.port.hot(leases.register_worker, WORKER, "second")
    gear = replace(world.gear, station=replace(world.gear.station, incarnation="second"))
    assert await Recovery(gear).tick(0) == 1
    done = await world.task(hold.task.id)
    assert (done.state, done.attempt) == ("succeeded", 0)
    assert [row.native_id for row in await world.comments(done)] == [answer]
    assert len(world.said()) == 1


async def test_a_question_of_a_lost_turn_is_waited_for(back: World) -> None:
    # K7
    task = await mention(back, "please fix it")
    key = actions.ask_key(task.id, "run_lost")
    back.admin.comment(REPO, back.issue, BOT, texts.question("Which one?", key))
    assert (await _work(back, task)).state == "waiting_user"
    assert len(back.said()) == 1
    assert [row.state for row in await back.comments(task)] == ["confirmed"]


async def test_a_task_that_had_ended_badly_is_not_done_again(back: World) -> None:
    # K7, GW-R-135
    task = await mention(back, "please fix it")
    key = actions.status_key(task.id, "aborted")
    notice = back.admin.comment(REPO, back.issue, BOT, texts.end_receipt(key, "aborted", None, "en"))
    done = await _work(back, task)
    assert (done.state, done.error_code) == ("failed", "ended_before_restore")
    assert [(row.state, row.native_id) for row in await back.comments(task)] == [("confirmed", notice)]
    assert len(back.said()) == 1


async def test_questions_that_reading_brought_back_are_matched_to_what_was_said_about_them(back: World) -> None:
    # K7, GW-R-022: their tasks have other names than before
    first = await _read_back(back, "please fix it")
    second = await _read_back(back, "and that")
    key = first.resource_key
    back.admin.comment(REPO, back.issue, BOT, texts.start_receipt(actions.status_key("gitea-task-former1", "running")))
    _answered(back, "gitea-task-former1", "run_one", key)
    _answered(back, "gitea-task-former2", "run_two", key)
    before = back.said()
    assert (await _work(back, first)).state == "succeeded"
    assert (await _work(back, second)).state == "succeeded"
    assert back.said() == before
    assert {row.run_id for row in await back.comments(second)} == {"run_two"}


async def _read_back(world: World, text: str) -> Task:
    comment = world.admin.comment(REPO, world.issue, ASKER, f"@{BOT} {text}")
    said = msgspec.structs.replace(
        world.normalised(comment, world.issue, "issue", text, Permissions(admin=False, push=True, pull=True), ASKER),
        delivery_id=f"read:comment:{comment}:0",
    )
    cmd = Cmd("webhook.take", "system", "read", refs={"task": said.task_id})
    answer = await world.port.do(cmd, webhook.take, said, "hash", world.gear.settings)
    return await world.task(answer.body["taskId"])


async def test_while_the_thread_cannot_be_read_nothing_is_written(back: World) -> None:
    # K7, GW-R-187
    task = await mention(back, "please fix it")
    answer = _answered(back, task.id, "run_lost", task.resource_key)
    back.fault("answer", count=None, match=READS, status=500)
    waiting = await _work(back, task)
    assert waiting.state == "retry_wait"
    back.admin.clear_faults()
    back.clock.advance(1)
    assert (await _work(back, waiting)).state == "succeeded"
    assert [row.native_id for row in await back.comments(task)] == [answer]


async def test_a_task_is_looked_at_once(back: World) -> None:
    task = await mention(back, "please fix it")
    hold = await back.claim(task)
    assert await restored.earlier(back.gear, hold, hold.task) is None
    _answered(back, task.id, "run_lost", task.resource_key)
    assert await restored.earlier(back.gear, hold, hold.task) is None
    assert len(await back.history(task, "restored.look")) == 1


async def test_a_question_asked_after_the_restore_is_a_new_one(back: World) -> None:
    # K7: what was said before it is about others
    _answered(back, "gitea-task-former1", "run_one", f"default:{REPO}:issue:1")
    back.clock.advance(60)
    task = await _read_back(back, "please fix it")
    hold = await back.claim(task)
    assert await restored.earlier(back.gear, hold, hold.task) is None
    [looked] = await back.history(task, "restored.look")
    assert looked.data is not None
    assert looked.data["found"] == []
