"""Git itself against the forge: who may fetch and push, what is refused, and what a push sets going."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.standins.forge.world import REPO, Receiver, World

BRANCH = "stationmaster/issue-1"


def test_credentials_for_a_private_repository(world: World) -> None:
    token = world.tokens["bob"]
    for user, secret in (("anybody", token), (token, "x-oauth-basic"), ("bob", "bob-secret")):
        assert world.git("ls-remote", world.clone_url(user, secret)).returncode == 0
    for header in (f"token {token}", f"Bearer {token}"):
        assert world.git("ls-remote", world.clone_url(), header=header).returncode == 0
    nobody = world.git("ls-remote", world.clone_url())
    assert "could not read Username" in nobody.stderr
    wrong = world.git("ls-remote", world.clone_url("bob", "wrong"))
    assert "Authentication failed" in wrong.stderr


def test_strangers_and_scopes(world: World) -> None:
    world.admin.user("eve")
    eve, narrow = world.admin.token("eve"), world.admin.token("carol", scopes=["read:repository"])
    assert "not found" in world.git("ls-remote", world.clone_url("eve", eve)).stderr
    assert world.git("ls-remote", world.clone_url("x", narrow)).returncode == 0
    tree = world.clone("carol")
    world.change(tree, "a", "a")
    refused = world.git("push", world.clone_url("x", narrow), "HEAD:refs/heads/x", cwd=tree)
    assert "403" in refused.stderr
    no_scope = world.admin.token("carol", scopes=["write:issue"])
    assert "403" in world.git("ls-remote", world.clone_url("x", no_scope)).stderr
    world.admin.repo_settings(REPO, private=False)
    assert world.git("ls-remote", world.clone_url()).returncode == 0


def test_a_reader_is_refused_by_the_hook(world: World) -> None:
    tree = world.clone("bob")
    world.change(tree, "a", "a")
    done = world.git("push", "origin", "HEAD:refs/heads/x", cwd=tree)
    assert done.returncode != 0
    assert "remote: error: User permission denied for writing." in done.stderr
    assert "(pre-receive hook declined)" in done.stderr
    assert "x" not in world.admin.branches(REPO)


def test_a_push_moves_the_pull_request_and_tells(world: World, receiver: Receiver) -> None:
    tree = world.clone()
    first = world.change(tree, "a", "a")
    pushed = world.git("push", "origin", f"HEAD:refs/heads/{BRANCH}", cwd=tree)
    assert f"remote: Create a new pull request for '{BRANCH}':" in pushed.stderr
    number = world.admin.pull(REPO, "codebot", head=BRANCH, title="Work")
    world.admin.hook(receiver.url, repo=REPO, events=["push", "pull_request"])
    second = world.change(tree, "b", "b\n" * 200_000)
    pushed = world.git("push", "origin", f"HEAD:refs/heads/{BRANCH}", cwd=tree)
    assert "remote: Visit the existing pull request:" in pushed.stderr
    world.settled()
    found = {hit.headers["X-Gitea-Event-Type"]: hit.json for hit in receiver.hits}
    assert set(found) == {"push", "pull_request_sync"}
    push, synchronised = found["push"], found["pull_request_sync"]
    assert (push["ref"], push["before"], push["after"]) == (f"refs/heads/{BRANCH}", first, second)
    assert [row["id"] for row in push["commits"]] == [second]
    assert push["commits"][0]["added"] == ["b"]
    assert push["pusher"]["login"] == "codebot"
    assert (synchronised["action"], synchronised["pull_request"]["head"]["sha"]) == ("synchronized", second)
    refs = world.git("ls-remote", "origin", f"refs/pull/{number}/head", cwd=tree).stdout
    assert refs.split()[0] == second


def test_protected_branches(world: World) -> None:
    world.admin.protect(REPO, "main")
    world.admin.protect(REPO, "release/*", can_push=True)
    tree = world.clone()
    first = world.change(tree, "a", "a")
    refused = world.git("push", "origin", "HEAD:main", cwd=tree)
    assert "remote: error: Not allowed to push to protected branch main" in refused.stderr
    assert world.git("push", "origin", "HEAD:refs/heads/release/1", cwd=tree).returncode == 0
    world.git("commit", "--amend", "-qm", "rewritten", cwd=tree)
    forced = world.git("push", "--force", "origin", "HEAD:refs/heads/release/1", cwd=tree)
    assert "branch release/1 is protected from force push" in forced.stderr
    gone = world.git("push", "origin", ":release/1", cwd=tree)
    assert "branch release/1 is protected from deletion" in gone.stderr
    assert world.admin.branches(REPO)["release/1"] == first
    world.admin.protect(REPO, "main", whitelist=["codebot"])
    assert world.git("push", "origin", f"{first}:main", cwd=tree).returncode == 0
    world.admin.unprotect(REPO, "main")
    last = world.git("push", "origin", ":main", cwd=tree)
    assert "branch main is the default branch and cannot be deleted" in last.stderr


def test_non_fast_forward_is_refused_by_git_itself(world: World) -> None:
    tree = world.clone()
    world.change(tree, "a", "a")
    world.admin.commit(REPO, "carol", {"b": "b"})
    done = world.git("push", "origin", "HEAD:main", cwd=tree)
    assert "[rejected]" in done.stderr
    assert "fetch first" in done.stderr


def test_archived_and_renamed(world: World) -> None:
    tree = world.clone()
    world.change(tree, "a", "a")
    world.admin.repo_settings(REPO, archived=True)
    done = world.git("push", "origin", "HEAD:refs/heads/x", cwd=tree)
    assert "403" in done.stderr
    world.admin.repo_settings(REPO, archived=False)
    world.admin.rename(REPO, name="moved")
    followed = world.git("fetch", "origin", cwd=tree)
    assert (followed.returncode, "redirecting to" in followed.stderr) == (0, True)
    strict = world.git("-c", "http.followRedirects=false", "fetch", "origin", cwd=tree)
    assert strict.returncode != 0
    absent = world.git("ls-remote", world.clone_url("x", world.tokens["codebot"], "acme/absent"))
    assert "not found" in absent.stderr


def test_several_pushes_at_once(world: World) -> None:
    trees = [world.clone(name=f"clone{index}") for index in range(3)]
    for index, tree in enumerate(trees):
        world.change(tree, f"f{index}", "x")
    with ThreadPoolExecutor(3) as pool:
        results = list(
            pool.map(
                lambda pair: world.git("push", "origin", f"HEAD:refs/heads/b{pair[0]}", cwd=pair[1]), enumerate(trees)
            )
        )
    assert [done.returncode for done in results] == [0, 0, 0]
    assert {"b0", "b1", "b2"} <= set(world.admin.branches(REPO))
