"""What a verb does beside the move: budgets, receipts, turns, threads and comments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stationmaster.clock import MICROS, ManualClock
from stationmaster.errors import Illegal, Stale
from stationmaster.gitea import actions, codes, store, texts
from stationmaster.gitea.machine import COMMENT, SESSION
from stationmaster.gitea.model import CommentKind
from stationmaster.jobs import actions as jobs
from stationmaster.ledger import history
from stationmaster.ledger.tx import Tx
from stationmaster.redact import Secret
from tests.gitea.rig import Rig, database

BOTH = pytest.mark.parametrize("rig", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def rig(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Rig]:
    made = Rig.on(database(request, getattr(request, "param", "sqlite")), clock)
    yield made
    made.close()


# Budgets -------------------------------------------------------------------------------------------------------------


def test_one_retry_for_all_causes_together(rig: Rig) -> None:  # GW-R-107, GW-R-082, GW-R-086, GW-R-088, GW-R-111
    task_id = rig.ask()
    before = rig.clock.now()
    waiting = rig.give_up(task_id, codes.GIT_AUTH_FAILED, rig.claimed(task_id))
    assert (waiting.state, waiting.attempt, waiting.retry_purpose, waiting.error_code) == (
        "retry_wait",
        1,
        "execution",
        codes.GIT_AUTH_FAILED,
    )
    assert waiting.next_retry_at is not None
    assert 0 <= waiting.next_retry_at - before - 30 * MICROS < MICROS
    assert rig.claim(task_id) is None
    rig.clock.advance(31)
    lease = rig.running(task_id)
    ended = rig.give_up(task_id, codes.APP_SERVER_TIMEOUT, lease)
    assert (ended.state, ended.attempt, ended.error_code) == ("failed", 1, codes.APP_SERVER_TIMEOUT)
    assert (ended.next_retry_at, ended.retry_purpose) == (None, None)


def test_what_no_retry_can_mend_fails_at_once(rig: Rig) -> None:  # GW-R-083
    task_id = rig.ask()
    ended = rig.give_up(task_id, codes.GIT_REPO_MISSING, rig.claimed(task_id), retryable=False)
    assert (ended.state, ended.attempt, ended.error_code) == ("failed", 0, codes.GIT_REPO_MISSING)


@pytest.mark.parametrize(
    ("purpose", "state"), [("reply", "running"), ("verification", "verifying_reply"), ("execution", "preparing")]
)
def test_a_postponed_task_goes_on_where_its_purpose_says(rig: Rig, purpose: Any, state: str) -> None:
    # GW-R-093, GW-R-096, GW-R-097, GW-R-098, GW-R-108, GW-R-186
    task_id = rig.ask()
    lease = rig.running(task_id)
    rig.advance(task_id, "verify", lease)
    put_back = rig.postpone(task_id, purpose, lease, delay_s=5, reply_attempt=1)
    assert (put_back.state, put_back.attempt, put_back.reply_attempt) == ("retry_wait", 0, 1)
    assert rig.holder(task_id) is None
    assert rig.claim(task_id) is None
    rig.clock.advance(6)
    got = rig.claim(task_id)
    assert got is not None
    assert (got[0].state, got[0].attempt, got[0].reply_attempt) == (state, 0, 1)


def test_the_due_time_outlives_the_process(rig: Rig) -> None:  # GW-R-111
    task_id = rig.ask()
    rig.give_up(task_id, codes.GIT_NETWORK_FAILED, rig.claimed(task_id))
    rig.close()
    rig.ledger = Rig.on(rig.database, rig.clock).ledger
    rig._beside = None
    assert rig.claim(task_id) is None
    rig.clock.advance(31)
    assert rig.due() == [rig.task(task_id).repository_id]
    assert rig.claim(task_id) is not None


# Receipts of an end --------------------------------------------------------------------------------------------------


def start_receipt(rig: Rig, task_id: str) -> None:
    key = actions.status_key(task_id, "running")
    rig.do(actions.intend_comment, rig.task(task_id), key, "status", texts.start_receipt(key))


def cancelled_while_waiting(rig: Rig, task_id: str) -> None:
    lease = rig.claimed(task_id)
    start_receipt(rig, task_id)
    rig.advance(task_id, "start", lease)
    rig.leave(task_id, "wait", lease)
    rig.step(task_id, "cancel", error_code=codes.CANCELLED_BY_OPERATOR)


def failed_reply(rig: Rig, task_id: str) -> None:
    lease = rig.running(task_id)
    rig.advance(task_id, "verify", lease)
    rig.leave(task_id, "fail_reply", lease, error_code=codes.REPLY_STATUS_UNKNOWN)


def aborted(rig: Rig, task_id: str) -> None:
    lease = rig.running(task_id)
    rig.advance(task_id, "abort", lease)
    rig.leave(task_id, "stop", lease, error_code=codes.ABORTED_BY_OPERATOR)


def failed(rig: Rig, task_id: str) -> None:
    rig.leave(task_id, "fail", rig.claimed(task_id), error_code=codes.GIT_REPO_MISSING)


BADLY = {"failed": failed, "failed_reply": failed_reply, "aborted": aborted, "cancelled": cancelled_while_waiting}


@pytest.mark.parametrize("end", BADLY)
def test_an_exceptional_end_has_exactly_one_receipt(rig: Rig, end: str) -> None:  # GW-R-135, GW-R-021, GW-R-137
    task_id = rig.ask()
    BADLY[end](rig, task_id)
    receipts = [row for row in rig.comments(task_id) if not row.id.endswith(":running")]
    assert [(row.id, row.kind, row.state, row.term) for row in receipts] == [
        (f"{task_id}:status:{end}", "status", "pending", None)
    ]
    body = rig.ledger.read(store.comment_body, receipts[0].id)
    assert body.startswith("giteabot:")
    assert task_id in body  # its marker
    # With the move, in one transaction.
    (born,) = rig.ledger.read(history.by_entity, "gitea_comment", receipts[0].id)
    moved = rig.ledger.read(history.by_entity, "gitea_task", task_id)[-1]
    assert (moved.to_state, moved.command) == (end, born.command)


def quiet_success(rig: Rig, task_id: str) -> None:
    lease = rig.running(task_id)
    rig.advance(task_id, "verify", lease)
    rig.leave(task_id, "confirm", lease)


QUIET: dict[str, Callable[[Rig, str], object]] = {
    "succeeded": quiet_success,
    "waiting_user": lambda rig, task_id: rig.leave(task_id, "wait", rig.running(task_id)),
    "blocked_workspace": lambda rig, task_id: rig.leave(task_id, "block", rig.claimed(task_id)),
    "retry_wait": lambda rig, task_id: rig.give_up(task_id, codes.TURN_FAILED, rig.claimed(task_id)),
    "cancelled": lambda rig, task_id: rig.step(task_id, "cancel"),  # before anybody was told that it began
}


@pytest.mark.parametrize("end", QUIET)
def test_nothing_else_is_told(rig: Rig, end: str) -> None:  # GW-R-134, GW-R-254
    task_id = rig.ask()
    QUIET[end](rig, task_id)
    assert (rig.state(task_id), rig.comments(task_id)) == (end, [])


def refused(rig: Rig, who: tuple[int, str]) -> int:
    task_id = rig.ask(who=who)
    rig.leave(task_id, "fail", rig.claimed(task_id), error_code=codes.AUTHOR_NOT_ALLOWED)
    return len(rig.comments(task_id))


def test_a_refused_person_is_told_once_a_day(rig: Rig) -> None:
    assert [refused(rig, (5, "eve")), refused(rig, (5, "eve")), refused(rig, (6, "mallory"))] == [1, 0, 1]
    rig.clock.advance(86_400)
    assert [refused(rig, (5, "eve-renamed")), refused(rig, (5, "eve"))] == [1, 0]


def test_a_refused_continuation_is_told_to_who_wrote_it(rig: Rig) -> None:
    task_id = rig.waiting(who=(7, "alice"))
    assert rig.ask(who=(9, "bob.d")) == task_id
    rig.leave(task_id, "fail", rig.claimed(task_id), error_code=codes.AUTHOR_NOT_ALLOWED)
    (receipt,) = rig.comments(task_id)
    assert "bob.d" in rig.ledger.read(store.comment_body, receipt.id)


def test_what_must_be_granted_is_said_each_time(rig: Rig) -> None:
    for _ in range(2):
        task_id = rig.ask()
        rig.leave(task_id, "fail", rig.claimed(task_id), error_code=codes.AUTHOR_NOT_VERIFIABLE)
        assert len(rig.comments(task_id)) == 1


# Comments ------------------------------------------------------------------------------------------------------------


def intend(rig: Rig, task_id: str, key: str, kind: CommentKind, body: str = "words") -> Any:
    return rig.do(actions.intend_comment, rig.task(task_id), key, kind, body, run_id="run-1")


@BOTH
def test_a_comment_is_intended_once(rig: Rig) -> None:  # GW-R-023, GW-R-138, GW-R-041
    task_id = rig.ask()
    key = actions.final_key(task_id, "run-1")
    first = intend(rig, task_id, key, "mcp_final", "the answer")
    assert (first.state, first.rev, first.number, first.native_id) == ("pending", 0, 12, None)
    assert intend(rig, task_id, key, "mcp_final", "another answer") == first
    assert rig.ledger.read(store.comment_body, key) == "the answer"
    assert (rig.count("gitea_comment"), rig.count("gitea_comment_body")) == (1, 1)


def confirm(rig: Rig, key: str) -> None:
    def body(tx: Tx) -> None:
        tx.move(COMMENT, key, "confirm", rev=0, native_id=9, updated_at=tx.now)

    rig.do(body)


def test_a_fallback_never_doubles_a_proven_answer(rig: Rig) -> None:  # GW-R-042, GW-R-176
    task_id = rig.ask()
    final = actions.final_key(task_id, "run-1")
    intend(rig, task_id, final, "mcp_final")
    confirm(rig, final)
    with pytest.raises(Illegal):
        intend(rig, task_id, actions.fallback_key(task_id), "rest_fallback")
    assert len(rig.comments(task_id)) == 1


def test_a_fallback_beside_an_answer_that_is_not_proven(rig: Rig) -> None:  # GW-R-042, GW-R-171
    task_id = rig.ask()
    intend(rig, task_id, actions.final_key(task_id, "run-1"), "mcp_final")
    assert intend(rig, task_id, actions.fallback_key(task_id), "rest_fallback").state == "pending"


def test_another_tasks_proof_hinders_no_fallback(rig: Rig) -> None:  # GW-R-042
    first, second = rig.ask(), rig.ask()
    final = actions.final_key(first, "run-1")
    intend(rig, first, final, "mcp_final")
    confirm(rig, final)
    assert intend(rig, second, actions.fallback_key(second), "rest_fallback").state == "pending"


def test_no_secret_is_in_a_comment_or_in_last_words(rig: Rig) -> None:  # GW-R-231
    secret = Secret("env:X", lambda: "hunter2-hunter2").reveal()
    task_id = rig.ask()
    intend(rig, task_id, actions.final_key(task_id, "run-1"), "mcp_final", f"it is {secret}")
    lease = rig.running(task_id)
    rig.do(actions.open_turn, task_id, lease, "run-1", "home", kind="normal", head=None)
    rig.do(actions.end_turn, rig.task(task_id), "run-1", "complete", None, f"I said {secret}")
    kept = repr([rig.rows(f"SELECT * FROM {table}") for table in ("gitea_comment_body", "gitea_final_text", "event")])
    assert "hunter2" not in kept
    assert "I said" in kept


def test_the_first_of_answer_and_question_decides(rig: Rig) -> None:
    task_id = rig.ask()
    assert rig.ledger.read(actions.turn_end_row, task_id, "run-1") is None
    asked = intend(rig, task_id, actions.ask_key(task_id, "run-1"), "question")
    assert rig.ledger.read(actions.turn_end_row, task_id, "run-1") == asked
    assert rig.ledger.read(actions.turn_end_row, task_id, "run-2") is None


# Turns and threads ---------------------------------------------------------------------------------------------------


@BOTH
def test_a_turn_is_opened_bound_and_ended(rig: Rig) -> None:
    # GW-R-040, GW-R-147, GW-R-148, GW-R-018, GW-R-017, GW-R-227
    task_id = rig.ask()
    lease = rig.running(task_id)
    run_id = actions.new_run_id()
    rig.do(actions.open_turn, task_id, lease, run_id, "home", kind="normal", head="abc")
    run = rig.ledger.read(jobs.find, run_id)
    turn = rig.ledger.read(store.turn, run_id)
    assert run is not None
    assert turn is not None
    assert (run.state, run.external_id, run.subject, run.worker_id) == ("started", None, task_id, "home")
    assert (turn.task_id, turn.kind, turn.head_before) == (task_id, "normal", "abc")
    assert [each.id for each in rig.ledger.read(jobs.open_of_worker, "home")] == [run_id]
    task = rig.task(task_id)
    rig.do(actions.bind_turn, task, run_id, "turn-of-the-agent", "thread-1")
    run = rig.ledger.read(jobs.find, run_id)
    assert run is not None
    assert (run.state, run.external_id, run.thread_id) == ("started", "turn-of-the-agent", "thread-1")
    rig.do(actions.end_turn, task, run_id, "complete", None, "last words")
    run = rig.ledger.read(jobs.find, run_id)
    assert run is not None
    assert (run.state, run.ended_at is not None) == ("completed", True)
    assert rig.ledger.read(store.final_text, run_id) == "last words"
    # By either id of the turn the history tells the same story (GW-R-229).
    for value in (run_id, "turn-of-the-agent"):
        told = [entry.name for entry in rig.ledger.read(history.by_ref, "turn", value)]
        assert told[-2:] == ["turn.bound", "turn.end"]
    # Its end is written once; a turn that has ended is not bound any more.
    rig.do(actions.end_turn, task, run_id, "interrupt", codes.TURN_INTERRUPTED, "")
    assert len(rig.events("turn.end")) == 1
    assert rig.ledger.read(store.final_text, run_id) == "last words"
    with pytest.raises(Stale):
        rig.do(actions.bind_turn, task, run_id, "late", "thread-1")


def test_a_turn_needs_the_lease(rig: Rig) -> None:  # GW-R-121
    task_id = rig.ask()
    lease = rig.running(task_id)
    rig.clock.advance(91)
    with pytest.raises(Stale):
        rig.do(actions.open_turn, task_id, lease, "run-1", "home", kind="normal", head=None)
    assert (rig.count("run"), rig.count("gitea_turn")) == (0, 0)


def test_turns_are_told_in_order(rig: Rig) -> None:
    task_id = rig.ask()
    lease = rig.running(task_id)
    ids = []
    for kind in ("normal", "reply_retry"):
        ids.append(actions.new_run_id())
        rig.do(actions.open_turn, task_id, lease, ids[-1], "home", kind=kind, head=None)
        rig.do(actions.end_turn, rig.task(task_id), ids[-1], "complete", None, "")
    assert [(turn.run_id, turn.kind) for turn in rig.ledger.read(store.turns, task_id)] == [
        (ids[0], "normal"),
        (ids[1], "reply_retry"),
    ]
    assert [run.id for run in rig.ledger.read(jobs.of_subject, task_id)] == ids


def test_a_thread_is_replaced_only_with_a_reason(rig: Rig) -> None:  # GW-R-036, GW-R-014, GW-R-211
    task_id = rig.ask()
    rig.do(actions.bind_thread, rig.task(task_id), "thread-1", "tools-1", why=None)
    assert (rig.session(task_id).thread_id, rig.session(task_id).tool_set) == ("thread-1", "tools-1")
    assert rig.events("thread.replaced") == []
    rig.do(actions.bind_thread, rig.task(task_id), "thread-2", "tools-2", why=codes.TOOLS_CHANGED)
    assert rig.session(task_id).thread_id == "thread-2"
    (entry,) = rig.events("thread.replaced")
    assert entry.data == {"old": "thread-1", "new": "thread-2", "reason": codes.TOOLS_CHANGED}
    for thread in ("thread-1", "thread-2"):
        found = rig.ledger.read(history.by_ref, "thread", thread)
        assert "thread.replaced" in {each.name for each in found}


def test_a_closed_conversation_is_opened_again_by_a_new_thread(rig: Rig) -> None:  # GW-R-037
    task_id = rig.ask()
    rig.do(actions.bind_thread, rig.task(task_id), "thread-1", "tools-1", why=None)

    def close(tx: Tx, session_id: str) -> None:
        session = store.session(tx, session_id)
        tx.move(SESSION, session.id, "close", rev=session.rev, updated_at=tx.now)

    rig.do(close, rig.session(task_id).id)
    rig.do(actions.bind_thread, rig.task(task_id), "thread-2", "tools-1", why=codes.SESSION_UNRECOVERABLE)
    assert (rig.session(task_id).state, rig.session(task_id).thread_id) == ("active", "thread-2")


def test_a_thread_that_is_there_needs_a_reason_to_be_replaced(rig: Rig) -> None:  # GW-R-036
    task_id = rig.ask()
    rig.do(actions.bind_thread, rig.task(task_id), "thread-1", "tools-1", why=None)
    with pytest.raises(Illegal):
        rig.do(actions.bind_thread, rig.task(task_id), "thread-2", "tools-1", why=None)
    assert rig.session(task_id).thread_id == "thread-1"
