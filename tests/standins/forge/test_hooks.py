"""Deliveries: sent once, five seconds, no order, a history that can be replayed."""

from __future__ import annotations

import hashlib
import hmac
import urllib.parse

import pytest

from tests.standins.forge.world import REPO, Receiver, World
from tests.support import eventually


@pytest.fixture
def number(world: World) -> int:
    return world.admin.issue(REPO, "bob", "Crash", "text")


def test_every_hook_of_repository_owner_and_site_hears_once(world: World, receiver: Receiver, number: int) -> None:
    for where in ({"repo": REPO}, {"repo": REPO}, {"owner": "acme"}, {}):
        world.admin.hook(receiver.url, secret="s3", **where)  # type: ignore[arg-type]
    world.admin.hook(receiver.url, owner="alice")  # another owner hears nothing
    world.admin.hook(receiver.url, repo=REPO, active=False)
    world.admin.hook(receiver.url, repo=REPO, events=["push"])
    world.admin.comment(REPO, number, "bob", "@codebot hi")
    world.settled()
    hits = receiver.hits
    assert len(hits) == 4
    assert len({hit.headers["X-Gitea-Delivery"] for hit in hits}) == 4
    assert len({hit.body for hit in hits}) == 1
    kinds = sorted(hit.headers["X-Gitea-Hook-Installation-Target-Type"] for hit in hits)
    assert kinds == ["organization", "repository", "repository", "system"]


def test_a_form_delivery_signs_the_json_inside(world: World, receiver: Receiver, number: int) -> None:
    world.admin.hook(receiver.url, repo=REPO, secret="s3", content_type="form")
    world.admin.comment(REPO, number, "bob", "a=b&c=ü + <x>")
    world.settled()
    hit = receiver.hits[0]
    assert hit.headers["Content-Type"] == "application/x-www-form-urlencoded"
    payload = urllib.parse.parse_qs(hit.body.decode())["payload"][0]
    assert hit.headers["X-Gitea-Signature"] == hmac.new(b"s3", payload.encode(), hashlib.sha256).hexdigest()


def test_without_a_secret_the_signature_headers_are_empty(world: World, receiver: Receiver, number: int) -> None:
    world.admin.hook(receiver.url, repo=REPO, authorization="Bearer hook-secret")
    world.admin.comment(REPO, number, "bob", "hi")
    (delivery,) = world.settled()
    headers = receiver.hits[0].headers
    assert (headers["X-Gitea-Signature"], headers["X-Hub-Signature-256"]) == ("", "sha256=")
    assert headers["Authorization"] == "Bearer hook-secret"
    assert "Authorization" not in delivery["request"]["headers"]


def test_as_forgejo_it_adds_names_of_its_own_and_tells_no_target(world: World, receiver: Receiver, number: int) -> None:
    world.admin.settings(dialect="forgejo")
    world.admin.hook(receiver.url, repo=REPO, secret="s3")
    world.admin.comment(REPO, number, "bob", "hi")
    world.settled()
    (hit,) = receiver.hits
    signed = hmac.new(b"s3", hit.body, hashlib.sha256).hexdigest()
    for family in ("Forgejo", "Gitea", "Gogs"):
        assert hit.headers[f"X-{family}-Signature"] == signed
        assert hit.headers[f"X-{family}-Event-Type"] == "issue_comment"
    assert hit.headers["X-Hub-Signature-256"] == f"sha256={signed}"
    assert not [name for name in hit.headers if name.endswith("Target-Type")]


def test_the_history_keeps_request_and_answer(world: World, receiver: Receiver, number: int) -> None:
    receiver.answer = (503, {"X-Why": "busy"}, b"come back later")
    hook = world.admin.hook(receiver.url, repo=REPO, secret="s3")
    world.admin.comment(REPO, number, "bob", "hi")
    (delivery,) = world.settled()
    assert (delivery["state"], delivery["succeeded"], delivery["hook_id"]) == ("failed", 0, hook)
    assert delivery["request"]["body"] == delivery["payload"] == receiver.hits[0].body.decode()
    assert (delivery["response"]["status"], delivery["response"]["body"]) == (503, "come back later")
    assert delivery["response"]["headers"]["X-Why"] == "busy"
    assert len(receiver.hits) == 1  # never retried


def test_a_replay_is_a_new_uuid_with_the_same_bytes_and_the_present_secret(
    world: World, receiver: Receiver, number: int
) -> None:
    hook = world.admin.hook(receiver.url, repo=REPO, secret="old")
    world.admin.comment(REPO, number, "bob", "hi")
    (delivery,) = world.settled()
    world.admin.hook_settings(hook, secret="new")
    world.admin.replay(delivery["id"])
    world.settled()
    first, second = receiver.hits
    assert first.body == second.body
    assert first.headers["X-Gitea-Delivery"] != second.headers["X-Gitea-Delivery"]
    assert second.headers["X-Gitea-Signature"] == hmac.new(b"new", second.body, hashlib.sha256).hexdigest()


def test_a_redirect_loses_the_event(world: World, receiver: Receiver, number: int) -> None:
    world.admin.hook(receiver.url, repo=REPO, secret="s3")
    receiver.answer = (301, {"Location": "/elsewhere"}, b"")
    world.admin.comment(REPO, number, "bob", "hi")
    receiver.wait_for(2)
    receiver.answer = (200, {}, b"")
    world.settled()
    assert [(hit.method, hit.path) for hit in receiver.hits[:2]] == [("POST", "/hook"), ("GET", "/elsewhere")]
    assert receiver.hits[1].body == b""


def test_a_307_keeps_method_and_body(world: World, receiver: Receiver, number: int) -> None:
    world.admin.hook(receiver.url, repo=REPO, secret="s3")
    receiver.answer = (307, {"Location": "/elsewhere"}, b"")
    world.admin.comment(REPO, number, "bob", "hi")
    hits = receiver.wait_for(2)
    assert (hits[1].method, hits[1].body) == ("POST", hits[0].body)
    (delivery,) = world.settled()
    assert delivery["response"]["body"] == "Delivery: stopped after 10 redirects"


def test_nobody_there_and_a_hanging_receiver_are_failures(
    world: World, receiver: Receiver, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stationmaster.standins.forge.hooks.TIMEOUT_S", 0.5)
    world.admin.hook("http://127.0.0.1:9/none", repo=REPO)
    world.admin.hook(receiver.url, repo=REPO)
    receiver.release.clear()
    world.admin.comment(REPO, number, "bob", "hi")
    states = [row["state"] for row in world.settled()]
    receiver.release.set()
    assert states == ["failed", "failed"]


@pytest.mark.parametrize("new_uuid", [False, True])
def test_a_doubled_delivery(world: World, receiver: Receiver, number: int, new_uuid: bool) -> None:
    world.admin.hook(receiver.url, repo=REPO, secret="s3")
    world.admin.add_fault("duplicate", match={"event": "issue_comment"}, times=2, new_uuid=new_uuid)
    world.admin.comment(REPO, number, "bob", "hi")
    hits = receiver.wait_for(3)
    assert len({hit.body for hit in hits}) == 1
    assert len({hit.headers["X-Gitea-Delivery"] for hit in hits}) == (3 if new_uuid else 1)


def test_lost_garbled_and_wrongly_signed_deliveries(world: World, receiver: Receiver, number: int) -> None:
    world.admin.hook(receiver.url, repo=REPO, secret="s3")
    world.admin.set_faults([
        {"match": {"body": "first"}, "action": {"kind": "lose"}},
        {"match": {"body": "second"}, "action": {"kind": "bad_signature"}},
        {"match": {"body": "third"}, "action": {"kind": "garble_payload"}},
    ])  # fmt: skip
    for text in ("first", "second", "third"):
        world.admin.comment(REPO, number, "bob", text)
    states = [row["state"] for row in world.settled()]
    assert states == ["lost", "delivered", "delivered"]
    by_validity = [
        hit.headers["X-Gitea-Signature"] == hmac.new(b"s3", hit.body, hashlib.sha256).hexdigest()
        for hit in receiver.hits
    ]
    assert by_validity == [False, False]
    assert sorted(hit.body.endswith(b"}") for hit in receiver.hits) == [False, True]


def test_a_held_delivery_arrives_after_later_ones(world: World, receiver: Receiver, number: int) -> None:
    world.admin.hook(receiver.url, repo=REPO)
    world.admin.add_fault("hold", match={"body": "held back"}, until=2)
    for text in ("held back", "second", "third"):
        world.admin.comment(REPO, number, "bob", text)
    world.settled()
    assert receiver.hits[-1].json["comment"]["body"] == "held back"
    assert len(receiver.hits) == 3


def test_shuffled_deliveries_all_arrive(world: World, receiver: Receiver, number: int) -> None:
    world.admin.hook(receiver.url, repo=REPO)
    world.admin.settings(shuffle=True)
    for index in range(8):
        world.admin.comment(REPO, number, "bob", str(index))
    world.settled()
    assert sorted(hit.json["comment"]["body"] for hit in receiver.hits) == [str(index) for index in range(8)]


def test_a_postponed_delivery_waits_while_others_pass(world: World, receiver: Receiver, number: int) -> None:
    world.admin.hook(receiver.url, repo=REPO)
    world.admin.add_fault("postpone", match={"body": "slow"}, seconds=600)
    world.admin.comment(REPO, number, "bob", "slow")
    world.admin.comment(REPO, number, "bob", "fast")
    receiver.wait_for(1)
    assert receiver.hits[0].json["comment"]["body"] == "fast"
    eventually(lambda: [row["state"] for row in world.admin.deliveries()] == ["sending", "delivered"])
    # Leaving the block stops the forge; the postponed one goes back to the queue instead of being sent.
