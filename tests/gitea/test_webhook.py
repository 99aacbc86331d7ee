"""The door for deliveries: what each one is answered and what it leaves behind (section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from stationmaster import canonical
from stationmaster.clock import MICROS, ManualClock
from stationmaster.control.dispatch import Dispatch
from stationmaster.errors import Unavailable
from stationmaster.gitea import codes, looks, normalise, store
from stationmaster.gitea.webhook import Reply, Webhook
from stationmaster.ledger import history
from stationmaster.redact import Secret
from tests.gitea.rig import ALL, ISSUE, PULL, SECRET, Rig, database, signed, told
from tests.gitea.samples import Sample

TABLES = (
    "gitea_delivery",
    "gitea_task",
    "gitea_session",
    "gitea_repository",
    "gitea_trigger",
    "inbox",
    "gitea_instruction",
)


@dataclass
class Door:
    """The webhook over a ledger."""

    rig: Rig
    hook: Webhook
    port: Dispatch

    async def send(self, sample: Sample, source: str = "10.0.0.1") -> Reply:
        return await self.hook(sample.headers, sample.body, source)

    async def say(self, data: Mapping[str, Any] | bytes, delivery: str | None, **more: Any) -> Reply:
        return await self.hook(*signed(data, delivery=delivery, **more), "10.0.0.1")


BOTH = pytest.mark.parametrize("rig", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def rig(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Rig]:
    made = Rig.on(database(request, getattr(request, "param", "sqlite")), clock)
    yield made
    made.close()


@pytest.fixture
async def door(rig: Rig) -> AsyncIterator[Door]:
    port = Dispatch(rig.ledger, threads=2)
    yield Door(rig, Webhook(port, rig.settings), port)
    port.close()


def configured(door: Door, **changes: Any) -> Door:
    settings = replace(door.rig.settings, **changes)
    door.rig.settings = settings
    return Door(door.rig, Webhook(door.port, settings), door.port)


def stored(rig: Rig) -> dict[str, int]:
    return {table: rig.count(table) for table in TABLES}


NOTHING = dict.fromkeys(TABLES, 0)
ONE_TASK = dict.fromkeys(TABLES, 1)


@BOTH
async def test_a_first_mention_is_queued_with_everything_that_belongs_to_it(door: Door) -> None:
    # GW-R-061, GW-R-059, GW-R-039, GW-R-074, GW-R-240
    reply = await door.send(ALL[ISSUE])
    key = f"default:{ALL[ISSUE].headers['X-Gitea-Delivery']}"
    task_id = normalise.task_id(key)  # GW-R-016
    assert (reply.status, reply.task_id) == (202, task_id)
    assert reply.body == {"deliveryId": key.partition(":")[2], "taskId": task_id, "state": "queued"}
    assert stored(door.rig) == ONE_TASK
    task, session = door.rig.task(task_id), door.rig.session(task_id)
    assert (task.state, task.rev, task.attempt, task.reply_attempt, task.unblock_attempt) == ("queued", 1, 0, 0, 0)
    assert (task.resource_key, task.comment_id, task.author, task.author_id) == (
        "default:acme/widgets:issue:12",
        90001,
        "alice",
        7,
    )
    assert (session.kind, session.number, session.thread_id, session.state) == ("issue", 12, None, "active")
    assert door.rig.ledger.read(store.instruction, task_id).startswith("please fix the crash")
    assert door.rig.moves(task_id) == [("", "receive", "received"), ("received", "enqueue", "queued")]
    delivery = door.rig.ledger.read(store.delivery, key)
    assert delivery is not None
    assert (delivery.status, delivery.http_status, delivery.task_id) == ("accepted", 202, task_id)  # GW-R-026
    assert delivery.payload_hash == canonical.sha256(ALL[ISSUE].body)
    assert delivery.expires_at - delivery.received_at == 30 * 86_400 * MICROS  # GW-R-027
    assert door.rig.due() == [task.repository_id]


@BOTH
async def test_a_repeat_is_answered_with_the_task_as_it_is_now(door: Door) -> None:  # GW-R-062, GW-R-192
    first = await door.send(ALL[ISSUE])
    assert first.task_id is not None
    door.rig.running(first.task_id)
    before = stored(door.rig)
    again = await door.send(ALL[ISSUE])
    assert (again.status, again.task_id) == (200, None)
    assert again.body == {**first.body, "state": "running", "status": "duplicate"}
    assert stored(door.rig) == before
    assert [entry.data for entry in door.rig.events("webhook.duplicate")] == [{"first_status": "accepted"}]


@BOTH
async def test_a_known_id_with_other_bytes_is_answered_as_the_first_and_noted(door: Door) -> None:
    first = await door.send(ALL[ISSUE])
    other = await door.say(told(comment_id=777), ALL[ISSUE].headers["X-Gitea-Delivery"])
    assert (other.status, other.body["taskId"], other.body["status"]) == (200, first.task_id, "duplicate")
    assert stored(door.rig) == ONE_TASK
    (noted,) = door.rig.events("webhook.duplicate")
    assert (noted.kind, noted.outcome) == ("refusal", codes.DELIVERY_MISMATCH)


@BOTH
async def test_the_same_comment_under_another_id_is_the_same_task(door: Door) -> None:  # GW-R-022, GW-R-242
    first = await door.send(ALL[ISSUE])
    assert ALL["issue_comment_org_hook"].headers["X-Gitea-Delivery"] != ALL[ISSUE].headers["X-Gitea-Delivery"]
    second = await door.send(ALL["issue_comment_org_hook"])
    third = await door.say(told(), "a-replay-of-last-week")
    for reply in (second, third):
        assert (reply.status, reply.body["taskId"], reply.body["status"]) == (200, first.task_id, "duplicate")
    counts = stored(door.rig)
    assert (counts["gitea_task"], counts["gitea_trigger"], counts["gitea_delivery"]) == (1, 1, 3)
    assert sorted(door.rig.rows("SELECT status FROM gitea_delivery")) == [("accepted",), ("duplicate",), ("duplicate",)]
    assert await door.say(told(), "a-replay-of-last-week") == third


async def test_content_keys_outlive_the_deliveries(door: Door) -> None:  # GW-R-022, GW-R-027
    first = await door.send(ALL[ISSUE])
    assert first.task_id is not None
    # The rows that may be pruned are gone after their time; the content key is not.
    door.rig.clock.advance(31 * 86_400)
    assert door.rig.do(store.prune_deliveries) == 0  # its task is still under way
    door.rig.step(first.task_id, "cancel")
    assert door.rig.do(store.prune_deliveries) == 1
    again = await door.send(ALL[ISSUE])
    assert (again.status, again.body.get("status"), again.body["taskId"]) == (200, "duplicate", first.task_id)


@BOTH
@pytest.mark.parametrize("how", ["same", "several"])
async def test_many_at_once_make_one_task(door: Door, how: str) -> None:  # GW-R-242, GW-R-062, GW-R-023
    ids = ["one" if how == "same" else f"hook-{n}" for n in range(50)]
    replies = await asyncio.gather(*(door.say(told(), each) for each in ids))
    assert sorted(reply.status for reply in replies) == [200] * 49 + [202]
    assert len({reply.body["taskId"] for reply in replies}) == 1
    counts = stored(door.rig)
    assert (counts["gitea_task"], counts["gitea_trigger"]) == (1, 1)
    assert counts["gitea_delivery"] == len(set(ids))


@BOTH
async def test_many_first_triggers_register_one_repository(door: Door) -> None:  # GW-R-031
    replies = await asyncio.gather(
        *(door.say(told(number=1 + n % 3, comment_id=1000 + n), f"first-{n}") for n in range(30))
    )
    assert {reply.status for reply in replies} == {202}
    assert door.rig.rows("SELECT count(DISTINCT repository_id), count(*) FROM gitea_task") == [(1, 30)]
    counts = stored(door.rig)
    assert (counts["gitea_repository"], counts["gitea_session"]) == (1, 3)
    assert len(door.rig.events("repo.register")) == 1


@BOTH
async def test_of_many_answers_at_once_one_continues_the_task(door: Door) -> None:  # GW-R-060
    task_id = door.rig.waiting()
    replies = await asyncio.gather(*(door.say(told(comment_id=2000 + n), f"answer-{n}") for n in range(20)))
    assert {reply.status for reply in replies} == {202}
    assert len({reply.task_id for reply in replies}) == 20
    assert task_id in {reply.task_id for reply in replies}
    assert len(door.rig.ledger.read(store.follow_ups, task_id)) == 1
    assert door.rig.count("gitea_trigger") == 21


# Refused at the door --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["wrong", "missing", "empty", "another body"])
async def test_a_bad_signature_leaves_one_audit_row_a_minute_and_an_address(door: Door, how: str) -> None:
    # GW-R-028, GW-R-065, GW-R-191, GW-R-241
    headers, raw = signed(told(), delivery="x", secret="guess" if how == "wrong" else SECRET)
    if how in {"missing", "empty"}:
        headers |= {"X-Gitea-Signature": ""}
    if how == "missing":
        del headers["X-Gitea-Signature"]
    sent = raw + b" " if how == "another body" else raw
    for source, times in (("10.0.0.1", 5), ("10.0.0.2", 3)):
        for _ in range(times):
            assert await door.hook(headers, sent, source) == Reply(401, {"error": "invalid_signature"})
    assert stored(door.rig) == NOTHING
    told_of = [(entry.outcome, entry.data) for entry in door.rig.events("webhook.bad_signature")]
    assert told_of == [("invalid_signature", {"source": "10.0.0.1"}), ("invalid_signature", {"source": "10.0.0.2"})]
    door.rig.clock.advance(61)
    await door.hook(headers, sent, "10.0.0.1")
    assert len(door.rig.events("webhook.bad_signature")) == 3


@BOTH
async def test_a_forged_id_does_not_occupy_the_genuine_one(door: Door) -> None:  # GW-R-028, GW-R-241
    genuine = signed(told(), delivery="X")
    forged = signed(told(comment_id=5), delivery="X", secret="guess")
    assert (await door.hook(*forged, "6.6.6.6")).status == 401
    assert (await door.hook(*genuine, "10.0.0.1")).status == 202


async def test_while_the_secret_is_changed_both_are_taken_and_the_old_one_is_told(door: Door) -> None:  # GW-R-048
    old, new = (Secret(f"test:{name}", lambda name=name: f"secret-{name}") for name in ("old", "new"))  # type: ignore[misc]
    both = configured(door, webhook_secrets=(new, old))
    for number, secret in enumerate(("secret-new", "secret-old", "secret-old")):
        reply = await both.say(told(comment_id=number + 1, number=number + 1), f"d{number}", secret=secret)
        assert reply.status == 202
    assert [entry.data for entry in door.rig.events("webhook.old_secret")] == [{"source": "10.0.0.1"}]
    assert (await both.say(told(comment_id=9), "d9", secret=SECRET)).status == 401
    over = configured(door, webhook_secrets=(new,))
    assert (await over.say(told(comment_id=10), "d10", secret="secret-old")).status == 401


async def test_no_secret_accepts_nothing(door: Door) -> None:  # GW-R-048
    bare = configured(door, webhook_secrets=(Secret("env:HOOK", lambda: ""),))
    assert (await bare.say(told(), "d", secret="")).status == 401
    assert (await bare.send(ALL["issue_comment_no_secret"])).status == 401


async def test_a_refusal_that_could_not_be_kept_is_told_again(door: Door) -> None:  # GW-R-028
    bad = signed(told(), delivery="x", secret="guess")
    door.port.ledger.close()
    with pytest.raises(Unavailable):
        await door.hook(*bad, "10.0.0.1")
    door.rig.ledger = Rig.on(door.rig.database, door.rig.clock).ledger
    port = Dispatch(door.rig.ledger, threads=1)
    door.hook._port = port
    assert (await door.hook(*bad, "10.0.0.1")).status == 401
    assert len(door.rig.events("webhook.bad_signature")) == 1
    port.close()


async def test_a_body_over_the_limit_is_audited(door: Door) -> None:  # GW-R-049
    reply = await door.hook.too_large("10.0.0.1", 1024)
    assert (reply.status, reply.body["error"]) == (413, "payload_too_large")
    (noted,) = door.rig.events("webhook.reject")
    assert (noted.outcome, noted.data) == ("payload_too_large", {"source": "10.0.0.1"})
    assert stored(door.rig) == NOTHING


# Signed, but of no use -----------------------------------------------------------------------------------------------

UNUSABLE = {
    "not JSON": b"{",
    "no JSON object": b"[]",
    "no comment": b'{"action": "created"}',
    "no text": canonical.dump({**told(), "comment": {"id": 5}}).encode(),
    "a number for a text": canonical.dump({**told(), "action": 5}).encode(),
    "a path for a name": canonical.dump(told(repo=(5, "acme", "../etc"))).encode(),
}


@pytest.mark.parametrize("what", UNUSABLE)
async def test_an_unusable_payload_is_refused_once_and_for_all(door: Door, what: str) -> None:
    # GW-R-064, GW-R-068, GW-R-193, GW-R-033
    first = await door.say(UNUSABLE[what], "bad")
    assert (first.status, first.body["error"]) == (400, "invalid_payload")
    assert door.rig.rows("SELECT status, http_status, reason_code FROM gitea_delivery") == [
        ("rejected", 400, "invalid_payload")
    ]
    again = await door.say(UNUSABLE[what], "bad")
    assert again == first
    assert door.rig.count("gitea_task") == 0
    assert [entry.outcome for entry in door.rig.events("webhook.reject")] == ["invalid_payload"]


async def test_without_any_id_nothing_is_stored(door: Door) -> None:  # GW-R-064, GW-R-015
    reply = await door.say(b"{", None)
    assert (reply.status, reply.body["error"]) == (400, "invalid_payload")
    assert stored(door.rig) == NOTHING
    assert [entry.outcome for entry in door.rig.events("webhook.reject")] == ["invalid_payload"]


async def test_without_the_header_the_comment_names_the_delivery(door: Door) -> None:  # GW-R-015
    first = await door.say(told(), None)
    assert first.body["deliveryId"] == "payload:issue_comment:acme/widgets:90001:created"
    assert (await door.say(told(), None)).body["status"] == "duplicate"


async def test_another_forge_is_refused(door: Door) -> None:  # GW-R-235
    data = told()
    data["repository"]["clone_url"] = "https://elsewhere.example.com/acme/widgets.git"
    reply = await door.say(data, "d")
    assert (reply.status, reply.body["error"]) == (400, "foreign_host")


async def test_no_password_of_an_address_is_stored(door: Door) -> None:  # GW-R-032
    data = told()
    data["repository"]["clone_url"] = "https://bot:hunter22@gitea.example.com/acme/widgets.git"
    assert (await door.say(data, "d")).status == 202
    assert door.rig.rows("SELECT clone_url FROM gitea_repository") == [("https://gitea.example.com/acme/widgets.git",)]
    assert "hunter22" not in dump(door.rig)


# Signed, but nothing to do -------------------------------------------------------------------------------------------

SILENT = {
    "issue_comment_edited": codes.COMMENT_EDITED,
    "issue_comment_deleted": codes.COMMENT_DELETED,
    "issue_comment_by_bot_itself": codes.BOT_SELF_COMMENT,
    "issue_comment_by_gitea_actions": codes.BOT_COMMENT,
    "issue_comment_code_and_quote": codes.NO_MENTION,
    "pull_comment_edited": codes.COMMENT_EDITED,
    "push_test_delivery": codes.TEST_DELIVERY,
}


@pytest.mark.parametrize("name", SILENT)
async def test_what_starts_nothing_is_answered_and_audited(door: Door, name: str) -> None:
    # GW-R-063, GW-R-054, GW-R-056, GW-R-058, GW-R-208, GW-R-243
    first = await door.send(ALL[name])
    assert (first.status, first.body) == (200, {"status": "ignored", "reason": SILENT[name]})
    assert await door.send(ALL[name]) == first
    assert stored(door.rig) == NOTHING | {"gitea_delivery": 1, "inbox": 1}
    (entry,) = door.rig.events("webhook.ignore")
    assert entry.data is not None
    assert entry.data["reason"] == SILENT[name]
    delivery = ALL[name].headers["X-Gitea-Delivery"]
    assert {each.name for each in door.rig.ledger.read(history.by_ref, "delivery", delivery)} >= {"webhook.ignore"}


@pytest.mark.parametrize("name", ["pull_review_comment", "pull_code_line_comment_single", "issues_opened_mention"])
async def test_what_says_too_little_is_kept_to_be_read(door: Door, name: str) -> None:
    # GW-R-050, GW-R-053
    first = await door.send(ALL[name])
    delivery = ALL[name].headers["X-Gitea-Delivery"]
    assert (first.status, first.body) == (202, {"deliveryId": delivery, "state": "to_be_read"})
    assert await door.send(ALL[name]) == first
    [look] = door.rig.ledger.read(looks.due, "default")
    assert (look.kind, look.delivery_id) == ("issue" if name.startswith("issue") else "pull_request", delivery)
    assert door.rig.count("gitea_task") == 0


BODIES = {  # GW-R-055, GW-R-057
    "请@bot 看看": True,
    "@BOT do it": True,
    "(@bot) do it": True,
    "@bot: do it": True,
    "mail a@bot do it": False,
    "@@bot do it": False,
    "a/@bot do it": False,
    "@bot-two do it": False,
    "@bot.x do it": False,
    "done. Ask @bot.": True,
    "`@bot do it`": False,
    "```\n@bot do it\n```": False,
    "> @bot do it": False,
    "<!-- @bot do it -->": False,
    "> @bot said\n\n@bot do it": True,
    "@bot": False,
    "  @bot \n": False,
    "": False,
}


@pytest.mark.parametrize("text", BODIES, ids=repr)
async def test_only_a_spoken_mention_starts_a_task(door: Door, text: str) -> None:
    hook = configured(door, bot_login="bot")
    reply = await hook.say(told(body=text), "d")
    assert reply.status == (202 if BODIES[text] else 200), reply.body
    assert door.rig.count("gitea_task") == int(BODIES[text])
    if not BODIES[text]:
        assert reply.body["reason"] in {codes.NO_MENTION, codes.EMPTY_INSTRUCTION}
        assert len(door.rig.events("webhook.ignore")) == 1


async def test_the_bots_own_words_are_known_by_its_number_too(door: Door) -> None:  # GW-R-058
    door.hook.bot_id = 42
    renamed = await door.say(told(who=(42, "the-bot-before-its-rename")), "d")
    assert renamed.body == {"status": "ignored", "reason": codes.BOT_SELF_COMMENT}


# Which comments ------------------------------------------------------------------------------------------------------


async def test_both_meanings_of_pull_request_comment(door: Door) -> None:  # GW-R-050, GW-R-051
    talk = await door.send(ALL[PULL])
    review = await door.send(ALL["pull_review_comment"])
    assert (ALL[PULL].headers["X-Gitea-Event"], talk.status) == ("issue_comment", 202)
    assert ALL["pull_review_comment"].headers["X-Gitea-Event"] == "pull_request_comment"
    assert (review.status, review.body["state"]) == (202, "to_be_read")
    assert talk.task_id is not None
    task, session = door.rig.task(talk.task_id), door.rig.session(talk.task_id)
    assert (session.kind, session.number) == ("pull_request", 13)
    assert task.resource_key.endswith(":pull_request:13")
    assert (task.base_ref, task.head_ref) == ("main", told(PULL)["pull_request"]["head"]["ref"])
    assert door.rig.rows("SELECT event_type FROM gitea_delivery WHERE task_id IS NOT NULL") == [
        ("pull_request_comment",)
    ]


async def test_a_comment_route_that_names_a_pull_request_by_its_event_alone(door: Door) -> None:  # GW-R-050
    reply = await door.say(told(PULL), "d", event="pull_request_comment")
    assert reply.status == 202
    assert door.rig.rows("SELECT kind FROM gitea_session") == [("pull_request",)]


async def test_a_form_is_taken_over_its_decoded_field(door: Door) -> None:
    reply = await door.send(ALL["issue_comment_form"])
    assert reply.status == 202
    assert reply.task_id is not None
    assert "ümlaut & <tag>" in door.rig.ledger.read(store.instruction, reply.task_id)


@pytest.mark.parametrize("policy", ["reject", "ignore"])
async def test_a_disabled_repository_takes_nothing_new(door: Door, policy: str) -> None:
    # GW-R-066, GW-R-068, GW-R-194
    door = configured(door, disabled_repo_policy=policy)
    task_id = door.rig.ask(12)
    door.rig.switch(door.rig.task(task_id).repository_id, "disable")
    first = await door.say(told(comment_id=5), "late")
    expected = {
        "reject": Reply(409, {"error": "repository_disabled"}),
        "ignore": Reply(200, {"status": "ignored", "reason": "repository_disabled"}),
    }[policy]
    assert first == expected
    assert await door.say(told(comment_id=5), "late") == expected
    assert door.rig.count("gitea_task") == 1
    assert [entry.outcome for entry in door.rig.events("webhook.reject")] == ["repository_disabled"]
    door.rig.switch(door.rig.task(task_id).repository_id, "enable")
    assert (await door.say(told(comment_id=5), "late")).status == expected.status  # what was answered stays answered
    assert (await door.say(told(comment_id=5), "later")).status == 202


async def test_a_blocked_repository_still_queues(door: Door) -> None:  # GW-R-034
    task_id = door.rig.ask(12)
    door.rig.switch(door.rig.task(task_id).repository_id, "block")
    assert (await door.say(told(comment_id=5), "d")).status == 202
    assert door.rig.claim(task_id) is None


# What is kept --------------------------------------------------------------------------------------------------------


def dump(rig: Rig) -> str:
    tables = [
        "command", "journal", "event", "ref", "gitea_delivery", "gitea_task", "gitea_session", "gitea_repository",
        "gitea_instruction", "gitea_trigger", "gitea_follow_up", "inbox",
    ]  # fmt: skip
    return "\n".join(repr(row) for table in tables for row in rig.rows(f"SELECT * FROM {table}"))


async def test_the_raw_payload_is_not_stored(door: Door) -> None:  # GW-R-029
    data = told()
    data["repository"]["description"] = "words that nobody reads"
    data["issue"]["body"] = "the issue as it was told"
    await door.say(data, "d")
    kept = dump(door.rig)
    assert "please fix the crash" in kept
    for part in ("words that nobody reads", "the issue as it was told", "mirror_interval", "Thanks!\\r"):
        assert part not in kept


@BOTH
async def test_an_unreachable_store_claims_nothing(door: Door) -> None:  # GW-R-067, GW-R-210
    door.port.ledger.close()
    with pytest.raises(Unavailable) as failed:
        await door.send(ALL[ISSUE])
    assert failed.value.code == codes.STORE_UNAVAILABLE
    door.rig.ledger = Rig.on(door.rig.database, door.rig.clock).ledger
    assert stored(door.rig) == NOTHING
