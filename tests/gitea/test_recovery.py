"""What a dead worker leaves is settled by the next start: once, twice, or broken off in the middle (section 14)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stationmaster.gitea import actions, marker, operate, store, texts
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import Task, TurnKind
from stationmaster.gitea.recovery import Recovery
from stationmaster.jobs import actions as jobs
from stationmaster.ledger import history
from stationmaster.ledger import lease as leases
from tests.gitea.life import mention
from tests.gitea.world import WORKER, World

FIRST = f"{WORKER}_start"


@pytest.fixture
async def born_again(world: World) -> Gear:
    """The gear of the same worker's next start; until it registers, the first one counts as alive."""
    await world.port.hot(leases.register_worker, WORKER, FIRST)
    return replace(world.gear, station=replace(world.gear.station, incarnation="second"))


async def recover(world: World, gear: Gear) -> int:
    """Lets the next start look; that it started proves the first one dead."""
    await world.port.hot(leases.register_worker, WORKER, "second")
    return await Recovery(gear).tick(0)


async def at_work(world: World, kind: TurnKind = "normal") -> tuple[Hold, str]:
    hold = await world.claim(await mention(world, "please fix it"))
    return hold, await world.turn(hold, kind)


async def row(world: World, task: Task, run_id: str, kind: str, *, sent: bool) -> None:
    """Leaves the row of an answer or question, perhaps also the comment itself."""
    question = kind == "question"
    key = actions.ask_key(task.id, run_id) if question else actions.final_key(task.id, run_id)
    mark = marker.final(task.id, run_id, task.resource_key)
    body = texts.question("Which one?", key) if question else texts.answer("Fixed.", (), mark)
    await world.do(
        "reply.intend", task, actions.intend_comment, task, key, kind, body, run_id=run_id, term=None if question else 1
    )
    if sent:
        world.admin.comment(world.repo["full_name"], world.issue, "codebot", body)


async def test_nothing_is_touched_while_its_worker_may_live(world: World, born_again: Gear) -> None:
    # GW-R-183: an unexpired lease keeps its owner
    hold, _ = await at_work(world)
    assert await Recovery(born_again).tick(0) == 0
    assert (await world.task(hold.task.id)).state == "running"


async def test_a_broken_run_goes_on_once_and_then_fails(world: World, born_again: Gear) -> None:
    # GW-R-184, GW-R-198, GW-R-203, GW-R-107
    hold, run_id = await at_work(world)
    assert await recover(world, born_again) == 1
    task = await world.task(hold.task.id)
    assert (task.state, task.attempt, task.error_code) == ("retry_wait", 1, "interrupted_by_restart")
    run = await world.port.read(jobs.find, run_id)
    assert run is not None
    assert run.state == "interrupted"
    assert await world.lease(task) is None
    lapsed = await world.port.read(history.by_ref, "subject", task.id)
    assert "lease.expire" in [entry.name for entry in lapsed]  # GW-R-122
    world.clock.advance(1)
    again = await world.claim(task, born_again.station)
    await world.port.hot(leases.register_worker, WORKER, "third")
    third = replace(born_again, station=replace(born_again.station, incarnation="third"))
    assert await Recovery(third).tick(0) == 1
    assert (await world.task(again.task.id)).state == "failed"
    assert world.said()[-1].startswith("giteabot:")


async def test_recovering_twice_is_recovering_once(world: World, born_again: Gear) -> None:
    # GW-R-190
    hold, _ = await at_work(world)
    await recover(world, born_again)
    before = await world.task(hold.task.id)
    assert await recover(world, born_again) == 0
    assert await world.task(hold.task.id) == before


async def test_an_abort_that_its_worker_did_not_see_is_done(world: World, born_again: Gear) -> None:
    # GW-R-185
    hold, _ = await at_work(world)
    wish = operate.Wish("abort", hold.task.id, "admin:op", "enough")
    await world.port.do(operate.command(wish, "r1"), operate.body(world.gear.settings), wish)
    assert await recover(world, born_again) == 1
    assert (await world.task(hold.task.id)).state == "aborted"
    assert await world.port.read(operate.open_aborts) == []
    assert len(world.said()) == 1


async def test_a_verification_is_looked_at_again_and_costs_nothing(world: World, born_again: Gear) -> None:
    # GW-R-186
    hold, run_id = await at_work(world)
    await world.end_turn(hold.task, run_id, "Fixed.")
    await world.advance(hold, "verify")
    assert await recover(world, born_again) == 1
    task = await world.task(hold.task.id)
    assert (task.state, task.retry_purpose, task.attempt) == ("retry_wait", "verification", 0)
    held = await world.claim(task, born_again.station)
    assert held.task.state == "verifying_reply"  # GW-R-098


async def test_an_answer_that_is_there_ends_the_task(world: World, born_again: Gear) -> None:
    # GW-R-187: the instruction is not run a second time
    hold, run_id = await at_work(world)
    await row(world, hold.task, run_id, "mcp_final", sent=True)
    assert await recover(world, born_again) == 1
    task = await world.task(hold.task.id)
    assert (task.state, task.attempt) == ("succeeded", 0)
    assert len([text for text in world.said() if text.startswith("Fixed.")]) == 1


async def test_an_answer_that_the_agent_posted_by_itself_is_looked_for(world: World, born_again: Gear) -> None:
    # GW-R-187: in official mode no row tells of it before it is there
    hold, run_id = await at_work(world)
    await world.do("turn.bind", hold.task, actions.bind_turn, hold.task, run_id, "tu-1", "th-1")
    official = replace(born_again, settings=replace(born_again.settings, reply_mode="official"))
    world.fault("answer", count=None, match={"method": "GET", "path": "comments"}, status=502)
    await world.port.hot(leases.register_worker, WORKER, "second")
    recovery = Recovery(official)
    assert await recovery.tick(0) == 0
    assert (await world.task(hold.task.id)).state == "running"
    world.admin.clear_faults()
    mark = marker.final(hold.task.id, run_id, hold.task.resource_key)
    world.admin.comment(world.repo["full_name"], world.issue, "codebot", f"Fixed.\n\n{mark}")
    assert await recovery.tick(0) == 1
    task = await world.task(hold.task.id)
    assert (task.state, task.attempt) == ("succeeded", 0)


async def test_an_answer_that_never_left_is_posted_by_the_agent_again(world: World, born_again: Gear) -> None:
    # GW-R-164, decision 0005
    hold, run_id = await at_work(world)
    await row(world, hold.task, run_id, "mcp_final", sent=False)
    assert await recover(world, born_again) == 1
    task = await world.task(hold.task.id)
    assert (task.state, task.retry_purpose, task.attempt, task.reply_attempt) == ("retry_wait", "reply", 0, 1)


async def test_a_question_that_was_begun_is_asked_and_waits(world: World, born_again: Gear) -> None:
    # GW-R-204, GW-R-188
    hold, run_id = await at_work(world)
    await row(world, hold.task, run_id, "question", sent=False)
    assert await recover(world, born_again) == 1
    assert (await world.task(hold.task.id)).state == "waiting_user"
    assert len([text for text in world.said() if text.startswith("Which one?")]) == 1


async def test_a_reply_retry_that_died_leads_to_another_look(world: World, born_again: Gear) -> None:
    # GW-R-172: neither failed nor an attempt spent; the host posts the answer in the end
    hold, run_id = await at_work(world)
    await world.end_turn(hold.task, run_id, "All is fixed.")
    await world.advance(hold, "verify")
    await world.do("reply.retry", hold.task, actions.postpone, hold.task.id, "reply", hold.lease, world.gear.settings,
                   delay_s=0, reply_attempt=1, error_code="mcp_reply_missing")  # fmt: skip
    held = await world.claim(await world.task(hold.task.id))
    assert held.task.state == "running"  # GW-R-097
    await world.turn(held, "reply_retry")
    assert await recover(world, born_again) == 1
    task = await world.task(hold.task.id)
    assert (task.state, task.attempt) == ("succeeded_with_rest_fallback", 0)
    assert len([text for text in world.said() if text.startswith("All is fixed.")]) == 1


async def test_resting_tasks_are_left_alone(world: World, born_again: Gear) -> None:
    # GW-R-182
    hold, run_id = await at_work(world)
    await world.end_turn(hold.task, run_id)
    await world.do("turn.end", hold.task, actions.leave, hold.task.id, "wait", hold.lease, world.gear.settings)
    waiting = await world.task(hold.task.id)
    queued = await mention(replace(world, issue=world.admin.issue("acme/widgets", "alice", "More", "")), "please more")
    assert await recover(world, born_again) == 0
    assert await world.task(waiting.id) == waiting
    assert await world.task(queued.id) == queued
    assert (await world.claim(queued, born_again.station)).task.id == queued.id


async def test_a_forge_that_is_away_is_asked_again_before_anything_is_decided(world: World, born_again: Gear) -> None:
    # GW-R-187: unknown waits for the next look, three times at most
    hold, run_id = await at_work(world)
    await row(world, hold.task, run_id, "mcp_final", sent=True)
    world.fault("answer", count=None, match={"method": "GET", "path": "comments"}, status=502)
    await world.port.hot(leases.register_worker, WORKER, "second")
    recovery = Recovery(born_again)
    assert await recovery.tick(0) == 0
    assert (await world.task(hold.task.id)).state == "running"
    world.admin.clear_faults()
    assert await recovery.tick(0) == 1
    assert (await world.task(hold.task.id)).state == "succeeded"


async def test_another_workers_repository_is_not_ours_to_settle(world: World, born_again: Gear, tmp_path: Path) -> None:
    # the worktree, the processes and the threads are at its home worker
    hold, _ = await at_work(world)
    await world.port.hot(leases.register_worker, WORKER, "second")
    stranger = replace(born_again, station=replace(born_again.station, worker_id="worker_two", runs=tmp_path))
    assert await Recovery(stranger).tick(0) == 0
    assert (await world.task(hold.task.id)).state == "running"
    home = (await world.port.read(store.repository, hold.task.repository_id)).home_worker
    assert home == WORKER
