"""A comment that continues a waiting task, and what a delivery leaves when its transaction ends anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from stationmaster.clock import ManualClock
from stationmaster.gitea import actions, claiming, codes, store, webhook
from stationmaster.gitea.model import Asker
from stationmaster.gitea.settings import LimitSettings
from stationmaster.ledger.tx import Tx
from tests.gitea.rig import HOME, Rig, database, told

BOTH = pytest.mark.parametrize("rig", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def rig(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Rig]:
    made = Rig.on(database(request, getattr(request, "param", "sqlite")), clock)
    yield made
    made.close()


@BOTH
def test_a_comment_continues_the_waiting_task_with_budgets_of_its_own(rig: Rig) -> None:
    # GW-R-060, GW-R-110, GW-R-089, GW-R-037, GW-R-254
    task_id = rig.ask()
    rig.give_up(task_id, codes.GIT_NETWORK_FAILED, rig.claimed(task_id))
    rig.clock.advance(31)
    lease = rig.running(task_id)
    rig.do(actions.bind_thread, rig.task(task_id), "thread-1", "tools-1", why=None)
    rig.leave(task_id, "wait", lease)
    assert (rig.state(task_id), rig.session(task_id).state) == ("waiting_user", "waiting_user")
    assert rig.task(task_id).attempt == 1
    reply = rig.take(told(comment_id=90002, body="@codebot the second one", who=(9, "bob.d")), "answer")
    assert (reply.status, reply.task_id) == (202, task_id)
    assert reply.body == {"deliveryId": "answer", "taskId": task_id, "state": "queued"}
    task = rig.task(task_id)
    assert (task.state, task.attempt, task.reply_attempt, task.retry_purpose, task.error_code) == (
        "queued",
        0,
        0,
        None,
        None,
    )
    assert (rig.session(task_id).state, rig.session(task_id).thread_id) == ("active", "thread-1")
    (said,) = rig.ledger.read(store.follow_ups, task_id)
    assert (said.number, said.comment_id, said.author, said.body) == (1, 90002, "bob.d", "the second one")
    (entry,) = rig.events("task.follow_up")
    assert entry.data == {"number": 1, "attempt": 1, "reply_attempt": 0}
    assert rig.ledger.read(actions.asked_by, task) == Asker(9, "bob.d", "write")
    assert (rig.count("gitea_task"), rig.count("gitea_trigger"), rig.count("gitea_delivery")) == (1, 2, 2)
    assert rig.due() == [task.repository_id]
    # A repeat of the answer continues nothing a second time.
    again = rig.take(told(comment_id=90002), "answer-again")
    assert (again.status, again.body["status"], again.body["taskId"]) == (200, "duplicate", task_id)
    assert rig.claim(task_id) is not None


def test_each_continuation_has_its_number(rig: Rig) -> None:  # GW-R-060
    task_id = rig.waiting()
    for number in (1, 2, 3):
        assert rig.ask(body=f"@codebot answer {number}") == task_id
        rig.leave(task_id, "wait", rig.running(task_id))
    assert [(said.number, said.body) for said in rig.ledger.read(store.follow_ups, task_id)] == [
        (1, "answer 1"),
        (2, "answer 2"),
        (3, "answer 3"),
    ]


@pytest.mark.parametrize("where", ["queued", "preparing", "running", "verifying_reply", "succeeded"])
def test_in_every_other_state_a_comment_is_a_task_of_its_own(rig: Rig, where: str) -> None:  # GW-R-060
    task_id = rig.ask()
    if where != "queued":
        lease = rig.claimed(task_id)
        for state, verb in (("running", "start"), ("verifying_reply", "verify"), ("succeeded", "confirm")):
            if rig.state(task_id) != where:
                (rig.leave if state == "succeeded" else rig.advance)(task_id, verb, lease)
    assert rig.state(task_id) == where
    other = rig.ask()
    assert other != task_id
    assert (rig.state(other), rig.state(task_id)) == ("queued", where)


def test_a_comment_elsewhere_continues_nothing(rig: Rig) -> None:  # GW-R-060, GW-R-181
    task_id = rig.waiting(12)
    assert rig.ask(13) != task_id
    assert rig.state(task_id) == "waiting_user"


def test_of_two_waiting_tasks_the_newest_is_answered(rig: Rig) -> None:  # GW-R-060
    first = rig.ask()
    second = rig.ask()
    rig.leave(first, "wait", rig.running(first))
    rig.leave(second, "wait", rig.running(second))
    assert rig.ask() == second
    assert rig.state(first) == "waiting_user"


@pytest.mark.parametrize(
    ("allow", "may", "continues"),
    [
        ("write", "read", False),
        ("write", "none", False),
        ("write", "write", True),
        ("write", "admin", True),
        ("read", "read", True),
        ("admin", "write", False),
    ],
)
def test_somebody_without_rights_gets_a_task_of_their_own(rig: Rig, allow: Any, may: str, continues: bool) -> None:
    rig.settings = replace(rig.settings, allow=allow)
    task_id = rig.waiting(may="admin")
    stranger = rig.ask(who=(66, "mallory"), may=may)
    assert (stranger == task_id) is continues
    assert rig.state(task_id) == ("queued" if continues else "waiting_user")
    assert rig.task(stranger).state == "queued"
    if not continues:
        # Its own task is not held up by the waiting one, and the one who was asked can still answer.
        assert rig.claimed(stranger) is not None
        assert rig.task(stranger).sender_may == may
        assert rig.ask(who=(7, "alice"), may="admin") == task_id


def test_a_list_names_who_may_continue(rig: Rig) -> None:
    rig.settings = replace(rig.settings, allow="list", allow_list=("Alice",))
    task_id = rig.waiting()
    assert rig.ask(who=(8, "carol"), may="admin") != task_id
    assert rig.ask(who=(7, "alice"), may="none") == task_id


def test_an_event_without_rights_in_it_continues(rig: Rig) -> None:
    task_id = rig.waiting()
    data = told(comment_id=4)
    del data["repository"]["permissions"]
    assert rig.take(data).task_id == task_id
    assert rig.ledger.read(actions.asked_by, rig.task(task_id)) == Asker(7, "alice", None)


# Everything or nothing -----------------------------------------------------------------------------------------------


class Died(Exception):
    """Stands for the process that ends between two statements."""


class Dying:
    """A command's transaction that ends before its n-th statement."""

    def __init__(self, tx: Tx, left: int) -> None:
        self._tx = tx
        self._left = left

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tx, name)
        if name in {"run", "born", "move", "event", "refusal", "one", "many"}:
            if self._left == 0:
                raise Died
            self._left -= 1
        return found


def everything(rig: Rig) -> dict[str, list[tuple[Any, ...]]]:
    tables = [
        "command", "journal", "event", "ref", "inbox", "gitea_delivery", "gitea_task", "gitea_session",
        "gitea_repository", "gitea_instruction", "gitea_trigger", "gitea_follow_up", "gitea_ready", "gitea_comment",
        "gitea_comment_body", "lease", "run", "gitea_turn",
    ]  # fmt: skip
    return {table: sorted(rig.rows(f"SELECT * FROM {table}"), key=repr) for table in tables}


def dies_everywhere(rig: Rig, fn: Any, *args: Any) -> int:
    """Runs a body that ends before each of its statements in turn, then whole; nothing is left until then."""
    before = everything(rig)

    def body(tx: Tx, left: int) -> Any:
        return fn(Dying(tx, left), *args)

    for left in range(200):
        try:
            rig.do(body, left)
        except Died:
            assert everything(rig) == before, left
        else:
            assert everything(rig) != before
            return left
    raise AssertionError("the body never came to its end")


KINDS = ["first", "second", "follow_up", "renamed", "duplicate", "ignored", "unusable"]
WHERE = [("sqlite", kind) for kind in KINDS] + [("postgres", "first"), ("postgres", "follow_up")]


@pytest.mark.parametrize(("rig", "what"), WHERE, indirect=["rig"])
def test_a_delivery_is_stored_whole_or_not_at_all(rig: Rig, what: str) -> None:  # GW-R-053, GW-R-059, GW-R-023
    data = told(comment_id=5)
    if what in {"second", "duplicate"}:
        rig.ask()
    if what == "duplicate":
        rig.take(data, "before")
    if what == "follow_up":
        rig.waiting()
    if what == "renamed":
        rig.ask()
        data = told(comment_id=5, repo=(101, "acme", "gadgets"))
    if what == "ignored":
        data = told(body="no word to anybody")
    if what == "unusable":
        data["comment"]["body"] = 5
    said, digest = rig.said(data, "the-delivery")
    assert dies_everywhere(rig, webhook.take, said, digest, rig.settings) >= (4 if what != "duplicate" else 3)
    assert rig.ledger.read(store.delivery, "default:the-delivery") is not None


def test_a_claim_is_made_whole_or_not_at_all(rig: Rig) -> None:  # GW-R-117, GW-R-023
    task_id = rig.ask()
    assert dies_everywhere(rig, claiming.claim, rig.task(task_id).repository_id, HOME, rig.settings) > 5
    assert rig.state(task_id) == "preparing"


def test_a_task_is_kept_back_whole_or_not_at_all(rig: Rig) -> None:  # GW-R-023, GW-R-138
    rig.settings = replace(rig.settings, limits=LimitSettings(author_per_hour=1))
    first, kept = rig.ask(1), rig.ask(2)
    lease = rig.claimed(first)
    rig.do(actions.open_turn, first, lease, actions.new_run_id(), "home", kind="normal", head=None)
    rig.leave(first, "fail", lease, error_code=codes.TURN_FAILED)
    assert dies_everywhere(rig, claiming.claim, rig.task(kept).repository_id, HOME, rig.settings) > 5
    assert (rig.count("gitea_hold"), [row.kind for row in rig.comments(kept)]) == (1, ["status"])


def test_an_end_is_written_with_its_receipt_or_not_at_all(rig: Rig) -> None:  # GW-R-072, GW-R-104, GW-R-135
    task_id = rig.ask()
    lease = rig.claimed(task_id)
    failing: tuple[Any, ...] = (task_id, codes.GIT_REPO_MISSING, lease, rig.settings)

    def fail(tx: Tx, *given: Any) -> None:
        actions.give_up_or_retry(tx, *given, retryable=False)

    assert dies_everywhere(rig, fail, *failing) > 5
    assert (rig.state(task_id), len(rig.comments(task_id)), rig.holder(task_id)) == ("failed", 1, None)
