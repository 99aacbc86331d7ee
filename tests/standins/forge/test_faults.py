"""What goes wrong on purpose on the wire and in what is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from stationmaster.standins.forge import Forge, ForgeAdmin, ForgeAdminError
from tests.standins.forge.world import REPO, World

COMMENTS = f"/repos/{REPO}/issues/1/comments"
POSTED = {"method": "^POST$", "path": r"/issues/\d+/comments$"}


@pytest.fixture
def post(world: World) -> Callable[[str], httpx.Response]:
    world.admin.issue(REPO, "bob", "Crash", "text")
    api = world.api()
    return lambda body: api.post(COMMENTS, json={"body": body})


def bodies(world: World) -> list[str]:
    return [row["body"] for row in world.admin.comments(REPO, 1)]


Post = Callable[[str], httpx.Response]


def test_dropped_after_the_effect(world: World, post: Post) -> None:
    world.admin.add_fault("drop_after", match={**POSTED, "body": "marker"})
    assert post("another").status_code == 201
    with pytest.raises(httpx.RemoteProtocolError):
        post("with marker")
    assert post("with marker again").status_code == 201
    assert bodies(world) == ["another", "with marker", "with marker again"]
    (fault,) = world.admin.faults()
    assert (fault["hits"], fault["remaining"]) == (1, 0)


def test_dropped_before_the_effect(world: World, post: Post) -> None:
    world.admin.add_fault("drop_before", match=POSTED, skip=1)
    assert post("one").status_code == 201
    with pytest.raises(httpx.RemoteProtocolError):
        post("two")
    assert bodies(world) == ["one"]


def test_dropped_in_the_middle_of_the_answer(world: World, post: Post) -> None:
    world.admin.add_fault("drop_midway", match=POSTED)
    with pytest.raises(httpx.RemoteProtocolError):
        post("one")
    assert bodies(world) == ["one"]


@pytest.mark.parametrize("effect", [True, False])
@pytest.mark.parametrize("status", [502, 500, 403, 429])
def test_another_status_with_and_without_the_effect(world: World, post: Post, status: int, effect: bool) -> None:
    world.admin.add_fault("answer", match=POSTED, status=status, effect=effect)
    answer = post("one")
    assert (answer.status_code, answer.content) == (status, b"")
    assert bodies(world) == (["one"] if effect else [])


def test_slow_before_and_after(world: World, post: Post) -> None:
    world.admin.add_fault("delay", match=POSTED, seconds=60)
    with pytest.raises(httpx.ReadTimeout):
        world.api().post(COMMENTS, json={"body": "late"}, timeout=0.3)
    assert bodies(world) == []
    world.admin.add_fault("delay", match=POSTED, seconds=60, when="after")
    with pytest.raises(httpx.ReadTimeout):
        world.api().post(COMMENTS, json={"body": "there"}, timeout=0.5)
    assert bodies(world) == ["there"]


def test_cut_and_garbled_answers(world: World, post: Post) -> None:
    for kind in ("cut", "garble"):
        world.admin.add_fault(kind, match=POSTED)
        answer = post(kind)
        assert answer.status_code == 201
        with pytest.raises(json.JSONDecodeError):
            answer.json()
    assert bodies(world) == ["cut", "garble"]


def test_a_redirect_that_no_rename_caused(world: World, post: Post) -> None:
    world.admin.add_fault("redirect", match=POSTED, location="https://other.example/x")
    answer = post("one")
    assert (answer.status_code, answer.headers["location"]) == (301, "https://other.example/x")
    assert bodies(world) == []


def test_a_comment_hidden_from_some_reads(world: World, post: Post) -> None:
    made = post("mine <!-- stationmaster:x -->").json()["id"]
    post("other")
    world.admin.add_fault("hide_comment", match={"body": "stationmaster:x", "where": "list"}, count=2)
    api = world.api()
    seen = [[row["body"] for row in api.get(COMMENTS).json()] for _ in range(3)]
    assert seen == [["other"], ["other"], ["mine <!-- stationmaster:x -->", "other"]]
    world.admin.add_fault("hide_comment", match={"login": "codebot", "where": "single"}, count=None)
    assert api.get(f"/repos/{REPO}/issues/comments/{made}").status_code == 404
    assert len(api.get(COMMENTS).json()) == 2
    world.admin.clear_faults("hide_comment")
    assert api.get(f"/repos/{REPO}/issues/comments/{made}").status_code == 200


def test_a_list_may_be_shorter_than_it_says(world: World, post: Post) -> None:
    post("mine")
    post("other")
    world.admin.add_fault("hide_comment", match={"body": "mine"}, honest_count=True)
    answer = world.api().get(COMMENTS)
    assert ([row["body"] for row in answer.json()], answer.headers["x-total-count"]) == (["other"], "2")


def test_a_comment_altered_in_reads(world: World, post: Post) -> None:
    post("answer <!-- stationmaster:x -->")
    world.admin.add_fault("alter_comment", match={"body": "answer"}, pattern="<!--.*?-->", replace="")
    assert world.api().get(COMMENTS).json()[0]["body"] == "answer "
    assert bodies(world) == ["answer <!-- stationmaster:x -->"]


def test_a_doubled_comment(world: World, post: Post) -> None:
    world.admin.add_fault("double_comment", match={"body": "answer"})
    assert post("answer").status_code == 201
    rows = world.admin.comments(REPO, 1)
    assert [row["body"] for row in rows] == ["answer", "answer"]
    assert rows[0]["id"] != rows[1]["id"]


def test_faults_on_git(world: World) -> None:
    world.admin.add_fault("answer", match={"path": "git-receive-pack"}, status=500)
    tree = world.clone()
    world.change(tree, "a", "a")
    assert "500" in world.git("push", "origin", "HEAD:refs/heads/x", cwd=tree).stderr
    world.admin.add_fault("drop_after", match={"method": "POST", "path": "git-receive-pack$"})
    assert world.git("push", "origin", "HEAD:refs/heads/x", cwd=tree).returncode != 0
    assert "x" in world.admin.branches(REPO)  # the push arrived, nobody said so


def test_the_request_log_names_the_fault(world: World, post: Post) -> None:
    world.admin.add_fault("answer", match=POSTED, status=502, effect=True, name="bad gateway")
    post("one")
    (entry,) = world.admin.requests(method="POST", path="/comments")
    assert (entry["login"], entry["status"], entry["fault"]) == ("codebot", 502, "bad gateway")


def test_rules_that_make_no_sense_are_refused(world: World) -> None:
    with pytest.raises(ForgeAdminError, match="no action kind 'explode'"):
        world.admin.add_fault("explode")
    with pytest.raises(ForgeAdminError, match="no key colour"):
        world.admin.add_fault("lose", match={"colour": "red"})


def test_rules_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text(
        json.dumps({"faults": [{"match": {"path": "version"}, "action": {"kind": "answer", "status": 502}}]})
    )
    with Forge(tmp_path / "forge", faults=file) as forge, ForgeAdmin(forge.url) as admin:
        url = f"{forge.url}/api/v1/version"
        assert [httpx.get(url, trust_env=False).status_code for _ in range(2)] == [502, 200]
        assert admin.faults()[0]["hits"] == 1
