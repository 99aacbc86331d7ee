"""The REST quirks of issues and comments, status by status."""

from __future__ import annotations

import time

import pytest

from tests.standins.forge.world import REPO, Receiver, World
from tests.support import eventually

ISSUES = f"/repos/{REPO}/issues"


@pytest.fixture
def number(world: World) -> int:
    return world.admin.issue(REPO, "bob", "Crash", "text")


def test_a_comment_is_kept_byte_for_byte(world: World, number: int) -> None:
    body = "line\r\nline <b> & 🙏 <!-- stationmaster:x -->\n"
    created = world.api().post(f"{ISSUES}/{number}/comments", json={"body": body})
    assert created.status_code == 201
    assert created.json()["body"] == body
    assert world.api().get(f"{ISSUES}/comments/{created.json()['id']}").json() == created.json()
    assert created.headers["content-type"] == "application/json;charset=utf-8"
    assert created.text.endswith("}\n")


def test_refusals_of_a_new_comment(world: World, number: int) -> None:
    api, path = world.api("bob"), f"{ISSUES}/{number}/comments"
    url = f"{world.forge.url}/api/swagger"
    assert (api.post(path, json={"body": ""}).status_code, api.post(path, json={}).status_code) == (422, 422)
    assert api.post(path, json={"body": ""}).json() == {"message": "[Body]: Required", "url": url}
    unknown = api.post(f"{ISSUES}/999/comments", json={"body": "x"})
    assert (unknown.status_code, unknown.json()) == (500, {"message": "", "url": url})
    world.admin.lock(REPO, number)
    locked = api.post(path, json={"body": "x"})
    assert (locked.status_code, locked.json()["message"]) == (403, "You cannot comment on a locked issue.")
    assert world.api("carol").post(path, json={"body": "writers may"}).status_code == 201
    world.admin.lock(REPO, number, on=False)
    world.admin.block("acme", "bob")
    assert (api.post(path, json={"body": "x"}).json()["message"]) == "user is blocked"
    world.admin.repo_settings(REPO, archived=True)
    archived = api.post(path, json={"body": "x"})
    assert (archived.status_code, archived.json()["message"]) == (423, f"{REPO} is archived")
    assert world.api("").post(path, json={"body": "x"}).status_code == 404  # a private repository is not there
    stranger = world.admin.user("eve")
    assert stranger > 0
    world.tokens["eve"] = world.admin.token("eve")
    hidden = world.api("eve").post(path, json={"body": "x"})
    assert (hidden.status_code, hidden.json()) == (404, {"errors": None, "message": "not found", "url": url})


def test_a_site_admin_reads_the_cause_of_a_500(world: World) -> None:
    world.admin.user("root", admin=True)
    world.tokens["root"] = world.admin.token("root")
    answer = world.api("root").get(f"{ISSUES}/77/comments")
    assert answer.status_code == 500
    assert answer.json()["message"] == "issue does not exist [id: 0, repo_id: 101, index: 77]"


def test_the_list_of_an_issue_has_no_pages(world: World, number: int) -> None:
    for index in range(55):
        world.admin.comment(REPO, number, "carol", f"comment {index}")
    answer = world.api().get(f"{ISSUES}/{number}/comments", params={"page": 2, "limit": 10})
    assert [row["body"] for row in answer.json()] == [f"comment {index}" for index in range(55)]
    assert answer.headers["x-total-count"] == "55"
    assert "link" not in answer.headers
    assert world.api().get(f"{ISSUES}/99/comments").status_code == 500


def test_the_list_of_a_repository_has_pages_only_when_asked(world: World, number: int) -> None:
    for index in range(35):
        world.admin.comment(REPO, number, "carol", f"comment {index}")
    api, path = world.api(), f"{ISSUES}/comments"
    assert len(api.get(path, params={"limit": 5}).json()) == 35
    assert len(api.get(path, params={"page": 1}).json()) == 30
    assert [row["body"] for row in api.get(path, params={"page": 2, "limit": 34}).json()] == ["comment 34"]
    assert api.get(path, params={"page": 1}).headers["x-total-count"] == "35"


def test_since_and_before_are_whole_seconds_and_inclusive(world: World, number: int) -> None:
    first = world.admin.comment(REPO, number, "carol", "first")
    stamp = world.api().get(f"{ISSUES}/comments/{first}").json()["updated_at"]
    eventually(lambda: int(time.time()) > world.forge.store.get("comment", first)["updated"])
    world.admin.comment(REPO, number, "carol", "second")
    api, path = world.api(), f"{ISSUES}/{number}/comments"
    assert [row["body"] for row in api.get(path, params={"since": stamp}).json()] == ["first", "second"]
    assert [row["body"] for row in api.get(path, params={"before": stamp}).json()] == ["first"]
    bad = api.get(path, params={"since": "yesterday"})
    assert bad.status_code == 422


def test_one_comment(world: World, number: int) -> None:
    comment = world.admin.comment(REPO, number, "carol", "text")
    api = world.api()
    assert api.get(f"{ISSUES}/comments/{comment}").status_code == 200
    missing = api.get(f"{ISSUES}/comments/1")
    assert (missing.status_code, missing.json()["errors"]) == (404, ["comment does not exist [id: 1, issue_id: 0]"])
    world.admin.repo("alice", "other", {"a": "a"}, collaborators={"codebot": "write"})
    foreign = api.get(f"/repos/alice/other/issues/comments/{comment}")
    assert (foreign.status_code, foreign.content) == (404, b"")


def test_who_may_edit_and_delete_a_comment(world: World, number: int, receiver: Receiver) -> None:
    comment = world.admin.comment(REPO, number, "carol", "text")
    world.admin.hook(receiver.url, repo=REPO)
    path = f"{ISSUES}/comments/{comment}"
    assert world.api("bob").patch(path, json={"body": "mine"}).status_code == 403
    assert world.api("codebot").patch(path, json={"body": "text"}).status_code == 200
    assert world.api("codebot").patch(path, json={"body": "new"}).json()["body"] == "new"
    assert world.api("bob").delete(path).status_code == 403
    assert world.api("carol").delete(path).status_code == 204
    assert world.api("carol").delete(path).status_code == 404
    world.settled()
    assert [hit.json["action"] for hit in receiver.hits] in (["edited", "deleted"], ["deleted", "edited"])


def test_issues(world: World, number: int) -> None:
    api = world.api()
    assert api.get(f"{ISSUES}/{number}").json()["pull_request"] is None
    assert api.get(f"{ISSUES}/99").status_code == 404
    assert api.post(ISSUES, json={"title": ""}).json()["message"] == "[Title]: Required"
    made = api.post(ISSUES, json={"title": "Second", "body": "b"})
    assert (made.status_code, made.json()["number"]) == (201, number + 1)
    closed = api.patch(f"{ISSUES}/{number}", json={"state": "closed"})
    assert (closed.status_code, closed.json()["state"]) == (201, "closed")
    assert [row["number"] for row in api.get(ISSUES).json()] == [number + 1]
    assert [row["number"] for row in api.get(ISSUES, params={"state": "all"}).json()] == [number + 1, number]
    assert world.api("carol").patch(f"{ISSUES}/{number}", json={"state": "gone"}).status_code == 412
    world.admin.repo_settings(REPO, has_issues=False)
    assert api.get(f"{ISSUES}/{number}").status_code == 404
    assert api.post(ISSUES, json={"title": "x"}).status_code == 403
    world.admin.repo_settings(REPO, has_pulls=False)
    assert api.post(ISSUES, json={"title": "x"}).status_code == 404


def test_reactions(world: World, number: int) -> None:
    comment, api = world.admin.comment(REPO, number, "carol", "text"), world.api()
    path = f"{ISSUES}/comments/{comment}/reactions"
    assert api.get(path).json() is None
    assert [api.post(path, json={"content": "eyes"}).status_code for _ in range(2)] == [201, 200]
    assert api.post(path, json={"content": "poop"}).status_code == 403
    assert [row["content"] for row in api.get(path).json()] == ["eyes"]
    assert api.request("DELETE", path, json={"content": "eyes"}).status_code == 200
    assert world.api().post(f"{ISSUES}/{number}/reactions", json={"content": "rocket"}).status_code == 201
