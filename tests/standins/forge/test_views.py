"""Every payload the forge sends has the keys, order and types of a recorded one."""

from __future__ import annotations

import json
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from stationmaster.standins.forge.hooks import headers_of, signatures
from tests.standins.forge.world import REPO, Receiver, World

SAMPLES = Path(__file__).parents[2] / "data" / "gitea"
INDEX = {entry["file"]: entry for entry in json.loads((SAMPLES / "index.json").read_text())}


def sample(name: str) -> Any:
    return json.loads((SAMPLES / name).read_text())


def differences(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Returns where two JSON values differ in keys, their order or types; a list's length does not matter."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        theirs = {key: value for key, value in theirs.items() if key != "parent"}  # the recorded heads are forks
        found = [] if list(ours) == list(theirs) else [f"{where}: {list(ours)} != {list(theirs)}"]
        return found + [
            one for key in ours.keys() & theirs.keys() for one in differences(ours[key], theirs[key], f"{where}.{key}")
        ]
    if isinstance(ours, list) and isinstance(theirs, list):
        return differences(ours[0], theirs[0], f"{where}[]") if ours and theirs else []
    return [] if type(ours) is type(theirs) else [f"{where}: {ours!r} != {theirs!r}"]


def hooked(world: World, receiver: Receiver, events: list[str] | None = None) -> None:
    wanted = events or [
        "issue_comment",
        "issues_only",
        "pull_request_only",
        "pull_request_comment",
        "pull_request_review",
    ]
    world.admin.hook(receiver.url, repo=REPO, secret="s3", events=wanted)


def opened_pull(world: World) -> int:
    world.admin.commit(REPO, "carol", {"new.txt": "x\n"}, branch="feat/locale")
    return world.admin.pull(REPO, "carol", head="feat/locale", title="Größe → Size", body="text")


def last(receiver: Receiver, world: World) -> Any:
    world.settled()
    return receiver.hits[-1].json


def test_comment_events_of_an_issue(world: World, receiver: Receiver) -> None:
    number = world.admin.issue(REPO, "bob", "Crash", "text")
    hooked(world, receiver)
    comment = world.admin.comment(REPO, number, "carol", "@codebot please")
    assert differences(last(receiver, world), sample("issue_comment_created_issue.json")) == []
    world.admin.edit_comment(comment, "alice", "@codebot go")
    edited = last(receiver, world)
    assert differences(edited, sample("issue_comment_edited.json")) == []
    assert edited["changes"] == {"body": {"from": "@codebot please"}}
    assert (edited["sender"]["login"], edited["comment"]["user"]["login"]) == ("alice", "carol")
    world.admin.edit_comment(comment, "alice", "@codebot go")  # unchanged: no event
    world.admin.delete_comment(comment, "alice")
    deleted = last(receiver, world)
    assert differences(deleted, sample("issue_comment_deleted.json")) == []
    assert (deleted["comment"]["body"], deleted["issue"]["comments"]) == ("@codebot go", 0)
    assert len(receiver.hits) == 3


def test_comment_events_of_a_pull_request(world: World, receiver: Receiver) -> None:
    number = opened_pull(world)
    hooked(world, receiver)
    world.admin.comment(REPO, number, "bob", "@codebot rebase")
    world.settled()
    hit = receiver.hits[-1]
    assert differences(hit.json, sample("pull_comment_created.json")) == []
    assert (hit.headers["X-Gitea-Event"], hit.headers["X-Gitea-Event-Type"]) == (
        "issue_comment",
        "pull_request_comment",
    )
    assert hit.json["is_pull"] is True
    assert hit.json["comment"]["issue_url"] == ""


def test_issue_and_pull_request_events(world: World, receiver: Receiver) -> None:
    hooked(world, receiver)
    number = world.admin.issue(REPO, "bob", "Add --json", "please")
    assert differences(last(receiver, world), sample("issues_opened_mention.json")) == []
    world.admin.edit_issue(REPO, number, "carol", body="please @codebot")
    edited = last(receiver, world)
    assert differences(edited, sample("issues_edited_body_adds_mention.json")) == []
    assert edited["repository"]["permissions"] == {"admin": False, "push": False, "pull": True}  # bob's, not carol's
    world.admin.edit_issue(REPO, number, "carol", title="Add --json flag")
    assert differences(last(receiver, world), sample("issues_edited_title.json")) == []
    opened_pull(world)
    assert differences(last(receiver, world), sample("pull_request_opened_mention_fork.json")) == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("COMMENT", "pull_review_comment.json"),
        ("APPROVED", "pull_review_approved.json"),
        ("REQUEST_CHANGES", "pull_review_rejected.json"),
    ],
)
def test_reviews(world: World, receiver: Receiver, kind: str, name: str) -> None:
    number = opened_pull(world)
    hooked(world, receiver)
    world.admin.review(REPO, number, "alice", body="hm", kind=kind)
    world.settled()
    hit, recorded = receiver.hits[-1], INDEX[name]["headers"]
    assert differences(hit.json, sample(name)) == []
    assert hit.json["review"] == {"type": hit.headers["X-Gitea-Event-Type"], "content": "hm"}
    for header in ("X-Gitea-Event", "X-Gitea-Event-Type"):
        assert hit.headers[header] == recorded[header]


def test_code_line_comments_only_show_in_their_review(world: World, receiver: Receiver) -> None:
    number = opened_pull(world)
    hooked(world, receiver)
    line = {"path": "new.txt", "line": 1, "body": "@codebot why?"}
    review = world.admin.review(REPO, number, "alice", lines=[line])
    assert last(receiver, world)["review"]["content"] == ""
    first = world.admin.comments(REPO, number)[0]["id"]
    reply = world.admin.answer_line(first, "bob", "@codebot indeed")
    assert differences(last(receiver, world), sample("pull_code_thread_reply_created.json")) == []
    api = world.api()
    assert api.get(f"/repos/{REPO}/issues/comments/{reply}").status_code == 204
    assert api.get(f"/repos/{REPO}/issues/{number}/comments").json() == []
    texts = api.get(f"/repos/{REPO}/pulls/{number}/reviews/{review['id']}/comments").json()
    assert [row["body"] for row in texts] == ["@codebot why?", "@codebot indeed"]


def test_the_test_delivery_is_a_push(world: World, receiver: Receiver) -> None:
    hook = world.admin.hook(receiver.url, repo=REPO, secret="s3", events=["push"])
    assert world.admin.test_delivery(hook, "alice") is True
    world.settled()
    payload, recorded = receiver.hits[0].json, sample("push_test_delivery.json")
    for commit in (*recorded["commits"], recorded["head_commit"]):
        commit.update(added=[], removed=[], modified=[])  # the recorded commit is the web's fake one
    assert differences(payload, recorded) == []
    deaf = world.admin.hook(receiver.url, repo=REPO, events=["issue_comment"])
    assert world.admin.test_delivery(deaf, "alice") is False


def test_sender_permissions_ghost_and_actions(world: World, receiver: Receiver) -> None:
    number = world.admin.issue(REPO, "bob", "Crash", "text")
    hooked(world, receiver)
    for login, push in (("bob", False), ("carol", True), ("alice", True)):
        world.admin.comment(REPO, number, login, "hi")
        assert last(receiver, world)["repository"]["permissions"]["push"] is push
    comment = world.admin.comment(REPO, number, "bob", "mine")
    world.admin.delete_user("bob")
    world.admin.edit_comment(comment, "carol", "not mine")
    ghost = last(receiver, world)["comment"]["user"]
    assert (ghost["id"], ghost["login"]) == (-1, "Ghost")
    assert differences(ghost, sample("issue_comment_deleted_user_ghost.json")["comment"]["user"]) == []
    world.admin.comment(REPO, number, "gitea-actions", "run done")
    assert last(receiver, world)["sender"]["id"] == -2


def test_the_text_is_escaped_as_the_version_does(world: World, receiver: Receiver) -> None:
    number = world.admin.issue(REPO, "bob", "Crash", "text")
    hooked(world, receiver)
    body = "a <b> & ü 🙏\r\n<!-- mark -->"
    world.admin.comment(REPO, number, "carol", body)
    world.settled()
    raw = receiver.hits[-1].body
    assert rb"a \u003cb\u003e \u0026 " in raw
    assert "ü 🙏\\r\\n".encode() in raw
    assert raw.startswith(b'{\n  "action": "created",\n  "issue": {\n    "id": ')
    assert receiver.hits[-1].json["comment"]["body"] == body
    world.admin.settings(unescaped_json=True)
    world.admin.comment(REPO, number, "carol", body)
    world.settled()
    assert b"a <b> & " in receiver.hits[-1].body


@pytest.mark.parametrize("name", sorted(INDEX))
def test_headers_and_signatures_are_those_of_every_recorded_delivery(name: str) -> None:
    entry = INDEX[name]
    recorded = entry["headers"]
    kind = "form" if "form" in recorded["Content-Type"] else "json"
    text = (SAMPLES / name).read_bytes().decode()
    hook = {"secret": entry["secret"], "content_type": kind}
    delivery = {
        "uuid": recorded["X-Gitea-Delivery"],
        "event": recorded["X-Gitea-Event"],
        "event_type": recorded["X-Gitea-Event-Type"],
        "payload": text,
    }
    ours = headers_of(hook, delivery, recorded["X-Gitea-Hook-Installation-Target-Type"])
    assert list(ours.items()) == list(recorded.items())
    if entry["secret"]:
        assert signatures(entry["secret"], text.encode())[1] == recorded["X-Gitea-Signature"]


def test_a_form_body_is_the_recorded_one() -> None:
    text = (SAMPLES / "issue_comment_form.json").read_text()
    assert urllib.parse.urlencode({"payload": text}) == (SAMPLES / "issue_comment_form.form").read_text()
