"""Credentials, scopes, repositories under another name, permissions, branches and hooks of the REST API."""

from __future__ import annotations

import base64

import httpx
import pytest

from tests.standins.forge.world import REPO, Receiver, World


def basic(user: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()


def test_every_form_of_credentials(world: World) -> None:
    token = world.tokens["codebot"]
    accepted = [
        f"token {token}", f"Bearer {token}", f"bearer {token}", f"TOKEN {token}", basic("anybody", token),
        basic(token, "x-oauth-basic"), basic(token, ""),
    ]  # fmt: skip
    for value in accepted:
        answer = world.api("", Authorization=value).get("/user")
        assert (answer.status_code, answer.json()["login"]) == (200, "codebot"), value
    assert world.api("").get("/user", params={"token": token}).status_code == 200
    assert world.api("", Authorization=basic("alice", "alice-secret")).get("/user").json()["login"] == "alice"


def test_bad_credentials_are_401_even_where_none_are_needed(world: World) -> None:
    for value in ("token wrong", "Bearer wrong", basic("alice", "wrong")):
        answer = world.api("", Authorization=value).get("/version")
        assert (answer.status_code, answer.json()["message"]) == (401, "invalid username, password or token")
    assert world.api("").get("/user").json()["message"] == "token is required"
    world.admin.revoke(token=world.tokens["codebot"])
    assert world.api().get("/user").status_code == 401
    world.admin.prohibit("carol")
    assert world.api("carol").get("/user").status_code == 403


def test_a_token_needs_its_scope(world: World) -> None:
    number = world.admin.issue(REPO, "bob", "Crash")
    world.tokens["codebot"] = world.admin.token("codebot", scopes=["read:issue", "read:user"])
    api = world.api()
    assert api.get("/user").status_code == 200
    assert api.get(f"/repos/{REPO}/issues/{number}/comments").status_code == 200
    for answer in (
        api.post(f"/repos/{REPO}/issues/{number}/comments", json={"body": "x"}),
        api.get(f"/repos/{REPO}"),
        api.get(f"/repos/{REPO}/pulls"),
        api.get("/repos/acme/absent"),
    ):
        assert answer.status_code == 403
        assert answer.json()["message"].startswith("token does not have at least one of required scope(s), required=[")
    refused = api.post(f"/repos/{REPO}/issues/{number}/comments", json={"body": "x"}).json()["message"]
    assert refused.endswith("required=[write:issue], token scope=read:issue,read:user")


def test_a_user_sees_more_of_itself(world: World) -> None:
    own, other = world.api("alice").get("/user").json(), world.api("bob").get("/users/alice").json()
    assert (own["email"], own["active"]) == ("alice@example.org", True)
    assert (other["email"], other["active"]) == ("alice@noreply.127.0.0.1", False)
    missing = world.api().get("/users/nobody")
    assert (missing.status_code, missing.json()["message"]) == (404, "GetUserByName")


def test_tokens_are_made_with_a_password_only(world: World) -> None:
    form = {"name": "t", "scopes": ["write:issue"]}
    assert world.api("alice").post("/users/alice/tokens", json=form).status_code == 401
    made = world.api("", Authorization=basic("alice", "alice-secret")).post("/users/alice/tokens", json=form)
    assert made.status_code == 201
    world.tokens["new"] = made.json()["sha1"]
    assert world.api("new").get("/user").status_code == 403  # no read:user


def test_a_renamed_repository(world: World) -> None:
    number = world.admin.issue(REPO, "bob", "Crash")
    before = world.api().get(f"/repos/{REPO}").json()
    assert world.admin.rename(REPO, name="widgets-ng") == "acme/widgets-ng"
    api = world.api()
    moved = api.post(f"/repos/{REPO}/issues/{number}/comments", json={"body": "lost?"})
    assert (moved.status_code, moved.content) == (301, b"")
    assert moved.headers["location"] == f"/api/v1/repos/acme/widgets-ng/issues/{number}/comments"
    with httpx.Client(follow_redirects=True, trust_env=False, headers=api.headers) as follower:
        followed = follower.post(f"{world.forge.url}/api/v1/repos/{REPO}/issues/{number}/comments", json={"body": "x"})
    assert (followed.status_code, followed.json()) == (200, [])  # the POST became a GET and wrote nothing
    assert world.admin.comments("acme/widgets-ng", number) == []
    after = api.get(f"/repositories/{before['id']}").json()
    assert (after["id"], after["full_name"]) == (before["id"], "acme/widgets-ng")
    assert api.get("/repositories/99999").status_code == 404
    assert world.admin.rename("acme/widgets-ng", owner="alice") == "alice/widgets-ng"
    assert api.get(f"/repos/{REPO}").headers["location"] == "/api/v1/repos/alice/widgets-ng"


def test_names_are_matched_whatever_their_case(world: World) -> None:
    assert world.api().get("/repos/ACME/Widgets").json()["full_name"] == REPO


@pytest.mark.parametrize(
    ("asker", "about", "status", "permission"),
    [
        ("alice", "bob", 200, "read"),
        ("alice", "carol", 200, "write"),
        ("alice", "alice", 200, "owner"),
        ("codebot", "codebot", 200, "write"),
        ("codebot", "bob", 403, None),
        ("codebot", "nobody", 403, None),
        ("alice", "nobody", 404, None),
    ],
)
def test_who_may_ask_for_permissions(world: World, asker: str, about: str, status: int, permission: str | None) -> None:
    answer = world.api(asker).get(f"/repos/{REPO}/collaborators/{about}/permission")
    assert answer.status_code == status
    assert answer.json().get("permission") == permission


def test_permission_changes_count_at_once(world: World) -> None:
    path = f"/repos/{REPO}/collaborators/bob/permission"
    world.admin.collaborator(REPO, "codebot", "admin")
    assert world.api().get(path).json()["permission"] == "read"
    world.admin.collaborator(REPO, "bob", "none")
    assert world.api().get(path).json()["permission"] == "none"
    world.admin.repo_settings(REPO, private=False)
    assert world.api().get(path).json()["permission"] == "read"  # public read counts
    assert world.api().get(f"/repos/{REPO}/collaborators/bob").status_code == 404
    assert world.api().get(f"/repos/{REPO}/collaborators/carol").status_code == 204
    assert world.api().get(f"/repos/{REPO}/collaborators/nobody").status_code == 422


def test_branches(world: World) -> None:
    world.admin.commit(REPO, "carol", {"a": "a"}, branch="feat/one")
    world.admin.protect(REPO, "main")
    api = world.api()
    branch = api.get(f"/repos/{REPO}/branches/feat/one").json()
    assert (branch["name"], branch["protected"], branch["user_can_push"]) == ("feat/one", False, True)
    assert branch["commit"]["id"] == world.admin.branches(REPO)["feat/one"]
    assert api.get(f"/repos/{REPO}/branches/feat%2Fone").json() == branch
    main = api.get(f"/repos/{REPO}/branches/main").json()
    assert (main["protected"], main["user_can_push"], main["effective_branch_protection_name"]) == (True, False, "")
    assert api.get(f"/repos/{REPO}/branches/absent").status_code == 404
    assert [row["name"] for row in api.get(f"/repos/{REPO}/branches").json()] == ["feat/one", "main"]
    assert world.api("bob").delete(f"/repos/{REPO}/branches/feat/one").status_code == 403
    assert api.delete(f"/repos/{REPO}/branches/feat/one").status_code == 204
    assert api.delete(f"/repos/{REPO}/branches/main").json()["message"] == "can not delete default branch"


def test_hooks(world: World, receiver: Receiver) -> None:
    api, path = world.api("alice"), f"/repos/{REPO}/hooks"
    assert world.api().get(path).status_code == 403
    form = {"type": "gitea", "config": {"url": receiver.url, "content_type": "json", "secret": "s"}}
    for wrong, message in (
        ({**form, "type": "x"}, "Invalid hook type: x"),
        ({**form, "config": {"url": receiver.url}}, "Missing config option: content_type"),
        ({**form, "config": {**form["config"], "content_type": "xml"}}, "Invalid content type"),  # type: ignore[dict-item]
        ({**form, "config": {**form["config"], "url": "ftp://x"}}, "Invalid url"),  # type: ignore[dict-item]
    ):
        answer = api.post(path, json=wrong)
        assert (answer.status_code, answer.json()["message"]) == (422, message)
    made = api.post(path, json=form)
    assert made.status_code == 201
    hook = made.json()
    assert (hook["active"], hook["events"]) == (False, ["push"])
    assert "secret" not in hook["config"]
    full = api.patch(f"{path}/{hook['id']}", json={"active": True, "events": ["issues", "pull_request_only"]}).json()
    assert full["events"] == [
        "issues", "issue_assign", "issue_label", "issue_milestone", "issue_comment", "pull_request",
    ]  # fmt: skip
    reset = api.patch(f"{path}/{hook['id']}", json={"config": {"secret": "other"}}).json()
    assert (reset["events"], reset["active"]) == (["push"], True)
    assert api.post(f"{path}/{hook['id']}/tests").status_code == 204
    assert len(receiver.wait_for(1)) == 1
    assert world.settled()[0]["request"]["headers"]["X-Gitea-Event"] == "push"
    assert world.forge.store.get("hook", hook["id"])["secret"] == "s"
    assert api.delete(f"{path}/{hook['id']}").status_code == 204
    assert api.get(f"{path}/{hook['id']}").status_code == 404


def test_unknown_paths_and_methods(world: World) -> None:
    assert world.api().get("/nothing").status_code == 404
    assert world.api().put(f"/repos/{REPO}/issues").status_code == 405
