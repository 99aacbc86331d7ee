"""Pull requests over REST: what Gitea refuses, and what follows git."""

from __future__ import annotations

import pytest

from tests.standins.forge.world import REPO, World

PULLS = f"/repos/{REPO}/pulls"
FORM = {"head": "feat/one", "base": "main", "title": "One"}


@pytest.fixture
def tip(world: World) -> str:
    return world.admin.commit(REPO, "carol", {"new.txt": "a\nb\n", "README.md": None}, branch="feat/one")


def test_the_first_opens_and_the_second_is_refused(world: World, tip: str) -> None:
    api = world.api()
    made = api.post(PULLS, json={**FORM, "body": "text"})
    assert made.status_code == 201
    pull = made.json()
    assert (pull["head"]["sha"], pull["head"]["ref"]) == (tip, "feat/one")
    assert pull["base"]["sha"] == pull["merge_base"] == world.admin.branches(REPO)["main"]
    assert (pull["changed_files"], pull["additions"], pull["deletions"], pull["mergeable"]) == (2, 2, 1, True)
    again = api.post(PULLS, json={**FORM, "title": "Two"})
    assert again.status_code == 409
    assert again.json()["message"] == (
        f"pull request already exists for these targets [id: {pull['id']}, issue_id: {pull['number']}, "
        "head_repo_id: 101, base_repo_id: 101, head_branch: feat/one, base_branch: main]"
    )
    assert api.patch(f"{PULLS}/{pull['number']}", json={"state": "closed"}).status_code == 201
    assert api.post(PULLS, json=FORM).status_code == 201  # a closed one is in nobody's way


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"head": ""}, 422, "[Head]: Required"),
        ({"title": ""}, 422, "[Title]: Required"),
        ({"head": "main"}, 422, "Invalid PullRequest: There are no changes between the head and the base"),
        ({"head": "absent"}, 404, "not found"),
        ({"base": "absent"}, 404, "not found"),
        ({"head": "nobody:feat/one"}, 404, "GetUserByName"),
        ({"head": "bob:feat/one"}, 404, "head repository not found"),
        ({"head": "acme:feat/one"}, 201, None),
    ],
)
def test_what_cannot_be_opened(
    world: World, tip: str, change: dict[str, str], status: int, message: str | None
) -> None:
    answer = world.api().post(PULLS, json={**FORM, **change})
    assert (answer.status_code, answer.json().get("message")) == (status, message)


def test_a_reader_from_outside_may_not_open_one(world: World, tip: str) -> None:
    world.admin.repo_settings(REPO, private=False)
    world.admin.user("eve")
    world.tokens["eve"] = world.admin.token("eve")
    answer = world.api("eve").post(PULLS, json=FORM)
    assert (answer.status_code, answer.json()["message"]) == (403, "user must be a collaborator")
    assert world.api("bob").post(PULLS, json=FORM).status_code == 201  # any collaborator may


def test_the_unit_switched_off_is_not_found(world: World, tip: str) -> None:
    world.admin.repo_settings(REPO, has_pulls=False)
    assert world.api().post(PULLS, json=FORM).status_code == 404
    assert world.api().get(f"/repos/{REPO}").json()["has_pull_requests"] is False


def test_an_archived_repository_is_locked(world: World, tip: str) -> None:
    world.admin.repo_settings(REPO, archived=True)
    assert world.api().post(PULLS, json=FORM).status_code == 423


def test_head_follows_the_branch_and_survives_its_removal(world: World, tip: str) -> None:
    number = world.api().post(PULLS, json=FORM).json()["number"]
    newer = world.admin.commit(REPO, "carol", {"more.txt": "x"}, branch="feat/one")
    path = f"{PULLS}/{number}"
    assert world.api().get(path).json()["head"]["sha"] == newer
    world.admin.delete_branch(REPO, "carol", "feat/one")
    gone = world.api().get(path).json()
    assert (gone["state"], gone["head"]["ref"], gone["head"]["label"], gone["head"]["sha"]) == (
        "closed", f"refs/pull/{number}/head", "feat/one", newer,
    )  # fmt: skip
    assert gone["changed_files"] == 3


@pytest.mark.parametrize("style", ["merge", "squash", "fast-forward-only"])
def test_merge(world: World, tip: str, style: str) -> None:
    number = world.api().post(PULLS, json=FORM).json()["number"]
    merged = world.admin.merge(REPO, number, "alice", style=style)
    pull = world.api().get(f"{PULLS}/{number}").json()
    assert (pull["merged"], pull["state"], pull["merge_commit_sha"]) == (True, "closed", merged)
    assert pull["merged_by"]["login"] == "alice"
    assert world.admin.branches(REPO)["main"] == merged
    assert world.admin.file(REPO, "main", "new.txt") == "a\nb\n"
    assert pull["changed_files"] == 2
    assert world.api().get(f"{PULLS}/{number}/merge").status_code == 204
    again = world.api().patch(f"{PULLS}/{number}", json={"state": "open"})
    assert again.status_code == 412
    issue = world.api().get(f"/repos/{REPO}/issues/{number}").json()
    assert issue["pull_request"]["merged"] is True


def test_a_conflict_shows_and_cannot_be_merged(world: World, tip: str) -> None:
    number = world.api().post(PULLS, json=FORM).json()["number"]
    world.admin.commit(REPO, "carol", {"new.txt": "other\n"})
    assert world.api().get(f"{PULLS}/{number}").json()["mergeable"] is False
    assert world.api().post(f"{PULLS}/{number}/merge", json={"Do": "merge"}).status_code == 409
    assert world.api("bob").post(f"{PULLS}/{number}/merge", json={"Do": "merge"}).status_code == 405


def test_lists_and_pages(world: World, tip: str) -> None:
    numbers = []
    for index in range(4):
        world.admin.commit(REPO, "carol", {f"f{index}": "x"}, branch=f"b{index}")
        numbers.append(world.admin.pull(REPO, "carol", head=f"b{index}", title=str(index)))
    api = world.api()
    assert [row["number"] for row in api.get(PULLS).json()] == numbers[::-1]
    assert [row["number"] for row in api.get(PULLS, params={"sort": "oldest"}).json()] == numbers
    page = api.get(PULLS, params={"limit": 3, "page": 1})
    assert (len(page.json()), page.headers["x-total-count"]) == (3, "4")
    url = f"{world.forge.url}/api/v1{PULLS}"
    assert page.headers["link"] == f'<{url}?limit=3&page=2>; rel="next",<{url}?limit=3&page=2>; rel="last"'
    assert 'rel="prev"' in api.get(PULLS, params={"limit": 3, "page": 2}).headers["link"]
    world.admin.edit_issue(REPO, numbers[0], "carol", state="closed")
    assert [row["number"] for row in api.get(PULLS, params={"state": "closed"}).json()] == [numbers[0]]
    assert len(api.get(PULLS, params={"state": "all"}).json()) == 4
    assert api.get(f"{PULLS}/main/b1").json()["number"] == numbers[1]


def test_diff_and_files(world: World, tip: str) -> None:
    number = world.api().post(PULLS, json=FORM).json()["number"]
    diff = world.api().get(f"{PULLS}/{number}.diff")
    assert diff.headers["content-type"] == "text/plain; charset=utf-8"
    assert "+++ b/new.txt\n@@ -0,0 +1,2 @@\n+a\n+b\n" in diff.text
    assert "Subject: [PATCH]" in world.api().get(f"{PULLS}/{number}.patch").text
    files = world.api().get(f"{PULLS}/{number}/files").json()
    assert [(row["filename"], row["status"], row["changes"]) for row in files] == [
        ("README.md", "deleted", 1), ("new.txt", "added", 2),
    ]  # fmt: skip
    issue = world.admin.issue(REPO, "bob", "no pull")
    assert world.api().get(f"{PULLS}/{issue}").status_code == 404
    assert world.api().get(f"{PULLS}/{issue}.diff").status_code == 404


def test_a_pull_request_of_a_fork_shows_whose_it_is(world: World) -> None:
    world.admin.user("mallory")
    world.admin.repo("mallory", "copy")
    world.admin.copy(REPO, "mallory/copy", "main")
    tip = world.admin.commit("mallory/copy", "mallory", {"evil.txt": "x\n"}, branch="evil", base="main")
    number = world.admin.pull(REPO, "mallory", head="evil", title="Trust me", fork="mallory/copy")
    api = world.api()
    pull = api.get(f"{PULLS}/{number}").json()
    head, base = pull["head"], pull["base"]
    assert (head["sha"], head["ref"], head["label"]) == (tip, "evil", "mallory:evil")
    assert head["repo"]["full_name"] == "mallory/copy"
    assert head["repo_id"] != base["repo_id"]
    assert (pull["changed_files"], pull["mergeable"]) == (1, True)
    assert "evil" not in world.admin.branches(REPO)
    moved = world.admin.commit("mallory/copy", "mallory", {"evil.txt": "y\n"}, branch="evil")
    assert api.get(f"{PULLS}/{number}").json()["head"]["sha"] == moved
    world.admin.lose_fork(REPO, number)
    gone = api.get(f"{PULLS}/{number}").json()["head"]
    assert (gone["repo"], gone["repo_id"], gone["ref"], gone["sha"]) == (None, -1, f"refs/pull/{number}/head", moved)
