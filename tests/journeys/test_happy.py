"""What a user sees when nothing goes wrong."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from stationmaster.standins.forge.hooks import signatures
from tests.journeys.rig import BOT, CHANGE, EDIT, REPO, Rig, ask, reply, rule


def test_a_mention_becomes_a_proven_answer_and_the_next_one_continues(rig: Rig) -> None:
    # GW-R-248 AC-09, GW-R-244 AC-05
    task_id = rig.accepted(rig.mention())
    found = rig.rests(task_id)
    rig.proves(found)
    assert len(rig.receipts(task_id)) == 1
    [branch] = found["branches"]
    assert rig.admin.branches(REPO)[branch["name"]] == branch["publishedSha"]
    assert rig.admin.file(REPO, branch["name"], "new.txt") == "new\n"
    assert rig.admin.files(REPO, "main") == ["README.md"]
    [pull] = rig.admin.pulls(REPO)
    assert (pull["number"], pull["head"]["ref"]) == (branch["pullRequest"], "stationmaster/issue-1")
    assert f"Commit {branch['publishedSha']} · #{pull['number']}" in rig.answers(task_id)[0]

    second = rig.rests(rig.accepted(rig.mention("what did you change?")))
    rig.proves(second)
    assert second["session"]["threadId"] == found["session"]["threadId"]  # GW-R-014
    assert rig.admin.branches(REPO)[branch["name"]] == branch["publishedSha"]
    assert "Commit" not in rig.answers(second["task"]["taskId"])[0]
    assert len(rig.said()) == 4


def test_a_delivery_is_answered_whatever_hangs_behind_it(tmp_path: Path) -> None:
    # GW-R-240 AC-01, GW-R-001; the forge gives up on a delivery after 5 seconds, as Gitea does.
    with Rig.made(tmp_path, rule("please", [{"hold": "for ever"}, "Never said."])) as rig:
        rig.start()
        rig.admin.add_fault("delay", match={"login": BOT}, count=None, seconds=60, when="before")
        task_id = rig.accepted(rig.mention())
        found = rig.task(task_id)
        assert found["task"]["state"] in {"queued", "preparing"}
        assert found["session"]["sessionKey"] == found["task"]["resourceKey"]
        told = {event["action"] for event in rig.audit()}
        assert {"webhook.accept", "repo.register", "session.open", "task.receive", "task.enqueue"} <= told


def test_the_chain_is_told_from_history_alone(rig: Rig) -> None:
    # GW-R-255 AC-16, GW-R-229
    task_id = rig.accepted(rig.mention())
    found = rig.rests(task_id)
    chain = rig.chain(task_id)
    assert chain["deliveryId"] == [found["task"]["deliveryId"]]
    assert found["task"]["turnId"] in chain["turnId"]
    assert found["session"]["threadId"] in chain["threadId"]
    posted = {str(row["commentId"]) for row in found["comments"]}
    assert posted <= set(chain["commentId"])
    order = [event["action"] for event in rig.audit(taskId=task_id)]
    steps = [
        "webhook.accept",
        "task.claim",
        "comment.confirmed",
        "turn.start.intent",
        "git.push.result",
        "reply.verify.result",
        "task.confirm",
    ]
    assert [order.index(step) for step in steps] == sorted(order.index(step) for step in steps)


def test_five_equal_deliveries_at_once_are_one_task(rig: Rig) -> None:
    # GW-R-242 AC-03, GW-R-062
    rig.admin.add_fault("lose", match={"event": "issue_comment"})
    [lost] = rig.delivered(rig.mention())
    payload = lost["payload"].encode()
    _, signature = signatures(rig.hook_secret, payload)
    headers = {
        "Content-Type": "application/json",
        "X-Gitea-Delivery": "one-and-the-same",
        "X-Gitea-Event": "issue_comment",
        "X-Gitea-Event-Type": "issue_comment",
        "X-Gitea-Signature": signature,
    }

    def send(_: int) -> httpx.Response:
        return httpx.post(rig.webhook, content=payload, headers=headers, trust_env=False)

    with ThreadPoolExecutor(5) as threads:
        answers = list(threads.map(send, range(5)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 200, 202]
    assert len({answer.json()["taskId"] for answer in answers}) == 1
    rig.proves(rig.rests(answers[0].json()["taskId"]))
    assert len(rig.tasks()) == 1
    assert len(rig.said()) == 2


def test_two_hooks_and_a_replay_under_a_new_id_are_one_task(rig: Rig) -> None:
    # GW-R-022, GW-R-242 AC-03
    rig.add_hook()
    comment = rig.mention()
    first, second = rig.delivered(comment)
    assert first["uuid"] != second["uuid"]
    task_id = rig.accepted(comment)
    rig.admin.replay(first["id"])
    rows = rig.delivered(comment)
    assert len({row["uuid"] for row in rows}) == 3
    assert {json.loads(row["response"]["body"])["taskId"] for row in rows} == {task_id}
    assert sorted(row["response"]["status"] for row in rows) == [200, 200, 202]
    found = rig.rests(task_id)
    rig.proves(found)
    assert len(rig.tasks()) == 1
    assert len(found["turns"]) == 1
    assert len(rig.said()) == 2


def test_a_question_waits_for_its_person_and_goes_on_in_the_same_thread(tmp_path: Path) -> None:
    # GW-R-254 AC-15, GW-R-060, GW-R-134
    unsure = rule("please change", EDIT, ask("Which colour?"), "Waiting.")
    told = rule("make it blue", reply("It is blue now."), "Done.")
    with Rig.made(tmp_path, unsure, told) as rig:
        rig.start()
        task_id = rig.accepted(rig.mention())
        waiting = rig.rests(task_id)
        assert waiting["task"]["state"] == "waiting_user"
        assert [body.split("\n")[0] for body in rig.said()] == ["giteabot: 已收到", "Which colour?"]
        # The half work is a commit on the task branch, not dirt.
        rig.leaves_nothing()
        assert rig.accepted(rig.mention("make it blue")) == task_id
        found = rig.rests(task_id, "succeeded", "failed", "failed_reply")
        rig.proves(found)
        assert found["session"]["threadId"] == waiting["session"]["threadId"]
        assert len(rig.tasks()) == 1
        branch = found["branches"][0]
        assert rig.admin.file(REPO, branch["name"], "new.txt") == "new\n"


def test_what_is_not_asked_starts_nothing(rig: Rig) -> None:
    # GW-R-073, GW-R-243 AC-04, GW-R-054, GW-R-058
    quiet = [
        rig.admin.comment(REPO, 1, "alice", "Nice work, everybody."),
        rig.admin.comment(REPO, 1, "alice", f"> @{BOT} please change it"),
        rig.admin.comment(REPO, 1, "alice", f"```\n@{BOT} please change it\n```"),
        rig.admin.comment(REPO, 1, "alice", f"mail me at x@{BOT}y"),
        rig.admin.comment(REPO, 1, BOT, f"@{BOT} please change it"),
    ]
    rig.admin.edit_comment(quiet[0], "alice", "Nice work, all of you.")
    rows = [row for comment in quiet for row in rig.delivered(comment)]
    assert {row["response"]["status"] for row in rows} == {200}
    assert {json.loads(row["response"]["body"])["status"] for row in rows} == {"ignored"}
    assert rig.tasks() == []
    reasons = {event["metadata"]["reason"] for event in rig.audit(action="webhook.ignore")}
    assert {"no_mention", "bot_self_comment"} == reasons


def test_a_person_without_the_right_is_told_once_a_day(rig: Rig) -> None:
    for _ in range(2):
        found = rig.rests(rig.accepted(rig.mention(author="bob")))
        assert (found["task"]["state"], found["task"]["errorCode"]) == ("failed", "author_not_allowed")
        assert found["turns"] == []
    [told] = rig.said()
    assert "bob may not give tasks in this repository" in told


def test_a_wrong_signature_leaves_nothing_and_the_true_delivery_still_works(rig: Rig) -> None:
    # GW-R-241 AC-02, GW-R-028
    rig.admin.add_fault("bad_signature")
    comment = rig.mention()
    [refused] = rig.delivered(comment)
    assert refused["response"]["status"] == 401
    assert rig.tasks() == []
    rig.proves(rig.rests(rig.accepted(comment)))


def test_two_issues_of_one_repository_run_one_after_the_other_in_two_threads(tmp_path: Path) -> None:
    # GW-R-244 AC-05, GW-R-116
    slow = rule("please wait", [{"hold": "gate"}, reply("Waited.")], "Done.")
    with Rig.made(tmp_path, slow, CHANGE) as rig:
        rig.start()
        rig.admin.issue(REPO, "alice", "Another thing")
        first = rig.accepted(rig.mention("please wait"))
        second = rig.accepted(rig.mention("please change it", number=2))
        rig.rests_in(first, "running")
        assert rig.task(second)["task"]["state"] == "queued"
        rig.model.release("gate")
        one, two = rig.rests(first), rig.rests(second)
        rig.proves(one)
        rig.proves(two, number=2)
        assert one["session"]["threadId"] != two["session"]["threadId"]
