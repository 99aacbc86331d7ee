from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stationmaster.gitea import actions, codes, comments, store, verify
from stationmaster.ledger.tx import Tx
from stationmaster.ops.metrics import follow
from stationmaster.outbox.channel import Found
from tests.gitea.rig import told
from tests.ops.metrics.conftest import Watched

Lines = Callable[[], list[dict[str, Any]]]


async def test_what_was_before_is_not_counted_and_what_comes_is(watched: Watched) -> None:
    watched.rig.ask(1)
    await watched.follower.begin()
    watched.rig.ask(2)
    moves = (await watched.page())["stationmaster_task_moves_total"]
    assert (moves["received",], moves["queued",], moves["preparing",]) == (1, 1, 0)


async def test_a_task_leaves_its_times(watched: Watched) -> None:
    # GW-R-069
    await watched.follower.begin()
    rig = watched.rig
    task_id = rig.ask(1)
    watched.passes(7)
    lease = rig.claimed(task_id)
    watched.passes(3)
    rig.advance(task_id, "start", lease)
    run_id = actions.new_run_id()
    rig.do(actions.open_turn, task_id, lease, run_id, "home", kind="normal", head=None)
    rig.do(_complete, task_id, run_id)
    rig.advance(task_id, "verify", lease)
    watched.passes(2)
    rig.do(verify._confirmed, task_id, lease, rig.settings, verify.Found(7, run_id, "Done."))
    page = await watched.page()
    sums = {name: page[f"stationmaster_{name}_seconds_sum"] for name in ("claim_wait", "preparation", "verification")}
    assert [rows[()] for rows in sums.values()] == [7, 3, 2]
    assert page["stationmaster_answer_seconds_sum"][()] == 12
    assert page["stationmaster_answer_seconds_bucket"]["10.0",] == 0
    assert page["stationmaster_answer_seconds_bucket"]["30.0",] == 1
    assert page["stationmaster_turn_seconds_count"]["completed",] == 1
    assert page["stationmaster_comments_total"]["confirmed", "mcp_final"] == 1
    assert page["stationmaster_task_moves_total"]["succeeded",] == 1


async def test_an_answer_to_a_follow_up_is_timed_from_there(watched: Watched) -> None:
    await watched.follower.begin()
    rig = watched.rig
    task_id = rig.waiting(1)
    watched.passes(5000)
    rig.take(told(number=1, comment_id=77))
    watched.passes(4)
    lease = rig.running(task_id)
    rig.advance(task_id, "verify", lease)
    rig.leave(task_id, "confirm", lease)
    page = await watched.page()
    assert page["stationmaster_answer_seconds_sum"][()] == 4
    assert page["stationmaster_claim_wait_seconds_count"][()] == 2


async def test_a_receipt_is_timed_from_the_mention(watched: Watched) -> None:
    await watched.follower.begin()
    rig = watched.rig
    task_id = rig.ask(1)
    watched.passes(6)

    def post(tx: Tx) -> None:
        key = actions.status_key(task_id, "running")
        row = actions.intend_comment(tx, store.task(tx, task_id), key, "status", "Begun.")
        comments.confirm(tx, row, Found(5, (6, 7)))

    rig.do(post)
    page = await watched.page()
    assert page["stationmaster_receipt_seconds_sum"][()] == 6
    assert page["stationmaster_duplicate_answers_total"][()] == 2


async def test_unknown_outcomes_alerts_and_refusals_are_counted_and_told_once(watched: Watched, said: Lines) -> None:
    # GW-R-069
    await watched.follower.begin()
    rig = watched.rig
    task_id = rig.ask(1)
    lease = rig.running(task_id)
    rig.advance(task_id, "verify", lease)

    def doubt(tx: Tx) -> None:
        tx.result(tx.intent("comment.post", subject="key"), "unknown")
        tx.event("reply.missing")
        tx.refusal("webhook.bad_signature", "invalid_signature", source="192.0.2.1")

    rig.do(doubt)
    cmd = actions.command("reply.unknown", rig.task(task_id), "test")
    rig.ledger.do(cmd, verify._unknown, task_id, lease, rig.settings, codes.REPLY_STATUS_UNKNOWN, "forge_timeout")
    page = await watched.page()
    await watched.page()
    assert page["stationmaster_outcomes_total"]["comment.post", "unknown"] == 1
    assert page["stationmaster_unknown_outcomes_total"][()] == 1
    assert page["stationmaster_replies_missing_total"][()] == 1
    assert page["stationmaster_alerts_total"]["reply_unknown",] == 1
    assert page["stationmaster_refusals_total"]["webhook.bad_signature", "invalid_signature"] == 1
    lines = {line["event"]: line for line in said()}
    assert len(said()) == len(lines) == 2
    assert lines["alert.reply_unknown"]["task"] == task_id
    assert lines["alert.reply_unknown"]["code"] == codes.REPLY_STATUS_UNKNOWN
    assert lines["webhook.bad_signature"]["source"] == "192.0.2.1"


async def test_gaps_limits_and_recovered_tasks_are_counted_by_their_reason(watched: Watched) -> None:
    await watched.follower.begin()

    def happen(tx: Tx) -> None:
        tx.event("catchup.gap", part="comments", taken=3, reason="start")
        tx.event("task.held", code=codes.RATE_REACHED, until=None)
        tx.event("recovery.adopt", state="running", term=2)
        tx.event("recovery.adopt", state="<b>" + "x" * 100, term=2)

    watched.rig.do(happen)
    page = await watched.page()
    assert page["stationmaster_gaps_closed_total"]["start",] == 1
    assert page["stationmaster_gap_taken_total"][()] == 3
    assert page["stationmaster_limits_reached_total"][codes.RATE_REACHED,] == 1
    assert page["stationmaster_recovered_total"]["running",] == 1
    # Whatever a row holds, labels stay few and plain.
    assert page["stationmaster_recovered_total"]["other",] == 1


async def test_a_long_history_is_read_in_windows_and_nothing_twice(watched: Watched, monkeypatch: Any) -> None:
    monkeypatch.setattr(follow, "WINDOW", 20)
    await watched.follower.begin()

    def many(tx: Tx) -> None:
        for _ in range(45):
            tx.event("said")

    watched.rig.do(many)
    assert await watched.follower.tick(0) == 1
    assert watched.follower.behind > 20
    assert watched.figures.events.taken()["said",] < 20
    await watched.follower.catch_up(10)
    assert watched.figures.events.taken()["said",] == 45
    assert watched.follower.behind == 0
    assert await watched.follower.tick(0) == 0
    assert watched.figures.events.taken()["said",] == 45


def _complete(tx: Tx, task_id: str, run_id: str) -> None:
    actions.end_turn(tx, store.task(tx, task_id), run_id, "complete", None, "Done.")
