from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stationmaster.errors import Invalid, NotFound, Unavailable
from stationmaster.workspaces import mirror
from stationmaster.workspaces.failures import Result
from stationmaster.workspaces.git import Git, GitCredential
from stationmaster.workspaces.mirror import PushOutcome
from tests.support import eventually
from tests.workspaces.conftest import BRANCH, Place, person, picture
from tests.workspaces.http_remote import HttpRemote
from tests.workspaces.test_git import credential


class Online(Place):
    """The same place, with the forge reached over HTTP."""

    forge: HttpRemote
    who: GitCredential

    @property
    def url(self) -> str:
        return f"{self.forge.url}parcel.git"

    def push(self, sha: str, branch: str = BRANCH) -> PushOutcome:
        return mirror.push(self.git, self.bare, self.who, sha, branch)

    def at_forge(self, branch: str = BRANCH) -> str:
        return person("-C", str(self.remote), "rev-parse", "--verify", "-q", f"refs/heads/{branch}", check=False)


@pytest.fixture
def online(place: Place) -> Iterator[Online]:
    git = Git(timeout_s=30, lock_wait_s=0.2, home=place.root / "h")
    with HttpRemote(place.remote.parent) as forge:
        here = Online(place.root, place.remote, git, place.layout)
        here.forge, here.who = forge, credential(forge.url)
        yield here


@pytest.fixture
def cloned(online: Online) -> Online:
    mirror.ensure(online.git, online.bare, online.url, online.who)
    return online


def test_a_missing_repository_is_cloned_and_an_existing_one_is_not(online: Online) -> None:  # GW-R-126
    assert mirror.ensure(online.git, online.bare, online.url, online.who)
    assert not mirror.ensure(online.git, online.bare, online.url, online.who)
    assert online.main() == online.at_forge("main")
    assert not mirror.part_of(online.bare).exists()
    config = (online.bare / "config").read_text()
    assert "fetch = +refs/heads/*:refs/remotes/origin/*" in config
    assert "mirror" not in config
    assert not list((online.bare / "hooks").iterdir())


def test_a_renamed_repository_keeps_its_copy_and_gets_the_new_address(cloned: Online) -> None:
    cloned.remote.rename(cloned.remote.with_name("renamed.git"))
    address = f"{cloned.forge.url}renamed.git"
    assert not mirror.ensure(cloned.git, cloned.bare, address, cloned.who)
    mirror.fetch(cloned.git, cloned.bare, cloned.who)
    assert (cloned.bare / "config").read_text().count(address) == 1


def test_an_unfinished_clone_is_neither_used_nor_touched(online: Online) -> None:
    part = mirror.part_of(online.bare)
    part.mkdir(parents=True)
    (part / "HEAD").write_text("half")
    before = picture(part)
    with pytest.raises(Unavailable, match="unfinished clone") as refused:
        mirror.ensure(online.git, online.bare, online.url, online.who)
    assert refused.value.code == "workspace_missing"
    assert picture(part) == before


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_a_refused_clone_leaves_nothing_on_disk(online: Online, status: int) -> None:
    online.forge.status["git-upload-pack"] = status
    expected = {401: "git_auth_failed", 403: "git_auth_failed", 404: "git_repo_missing", 500: "git_network_failed"}
    with pytest.raises((Unavailable, NotFound)) as refused:
        mirror.ensure(online.git, online.bare, online.url, online.who)
    assert refused.value.code == expected[status]  # GW-R-131
    assert not online.bare.parent.exists()


@pytest.mark.parametrize(
    "url",
    [
        "http://bot:word@forge.example.test/x.git",
        "https://bot@forge.example.test/x.git",
        "ssh://forge.example.test/x.git",
        "ext::sh -c true",
        "/etc",
        "file:///etc",
        "--upload-pack=touch",
        "http:///x",
        "",
    ],
)
def test_addresses_that_hold_a_word_or_another_transport_are_refused(online: Online, url: str) -> None:
    with pytest.raises(Invalid):
        mirror.ensure(online.git, online.bare, url, online.who)


def test_a_redirect_is_not_followed_and_carries_no_credential(cloned: Online) -> None:
    with HttpRemote(cloned.remote.parent) as elsewhere:
        cloned.forge.redirect_to = elsewhere.url
        with pytest.raises(NotFound) as moved:
            mirror.fetch(cloned.git, cloned.bare, cloned.who)
        assert moved.value.code == "git_repo_missing"
        assert "renamed" in moved.value.hint
        assert cloned.push(cloned.main()) == PushOutcome("refused", "missing", cloned.push(cloned.main()).words)
        assert elsewhere.authorizations == []


def test_a_fetch_follows_the_forge_and_leaves_our_branches(ready: Place) -> None:  # GW-R-129
    ready.commit_at_remote("feature", "f.txt", "1", start="origin/main")
    new = ready.commit_at_remote("main", "n.txt", "1")
    mirror.fetch(ready.git, ready.bare, None)
    assert ready.main() == new
    assert mirror.remote_tracking_tip(ready.git, ready.bare, "feature")
    person("-C", str(ready.remote), "branch", "-D", "feature")
    person("-C", str(ready.remote), "branch", "-f", "main", "main~1")
    mirror.fetch(ready.git, ready.bare, None)
    assert mirror.remote_tracking_tip(ready.git, ready.bare, "feature") is None
    assert ready.main() != new
    assert mirror.local_tip(ready.git, ready.bare, BRANCH)
    assert (ready.tree / "README.md").exists()


def test_a_branch_may_become_a_folder_of_branches(ready: Place) -> None:
    ready.commit_at_remote("topic", "f.txt", "1", start="origin/main")
    mirror.fetch(ready.git, ready.bare, None)
    person("-C", str(ready.remote), "branch", "-m", "topic", "topic/one")
    mirror.fetch(ready.git, ready.bare, None)
    assert mirror.remote_tracking_tip(ready.git, ready.bare, "topic/one")


def test_the_head_of_a_pull_request_is_fetched_by_number(ready: Place) -> None:  # GW-R-129
    sha = ready.commit_at_remote("fork-head", "f.txt", "1", start="origin/main")
    person("-C", str(ready.remote), "update-ref", "refs/pull/9/head", sha)
    mirror.fetch(ready.git, ready.bare, None, (mirror.pull_refspec(9),))
    assert mirror.tip(ready.git, ready.bare, mirror.pull_ref(9)) == sha
    with pytest.raises(NotFound) as missing:
        mirror.fetch(ready.git, ready.bare, None, (mirror.pull_refspec(10),))
    assert missing.value.code == "git_ref_missing"


@pytest.mark.parametrize(
    "spec",
    [
        "refs/heads/main:refs/heads/main",
        "+refs/heads/x:refs/remotes/origin/x",
        "--upload-pack=x",
        "refs/pull/1/head",
        "refs/pull/*/head:refs/remotes/pull/*/head",
    ],
)
def test_a_fetch_target_is_never_a_branch_of_ours(ready: Place, spec: str) -> None:
    with pytest.raises(Invalid):
        mirror.fetch(ready.git, ready.bare, None, (spec,))


def test_the_default_branch_is_asked_for(ready: Place) -> None:
    assert mirror.default_branch(ready.git, ready.bare, None) == "main"
    person("-C", str(ready.remote), "branch", "-m", "main", "trunk")
    assert mirror.default_branch(ready.git, ready.bare, None) == "trunk"


def test_an_empty_repository_has_no_default_branch(place: Place) -> None:
    empty = place.remote.parent / "empty.git"
    person("init", "-q", "--bare", str(empty))
    mirror.ensure(place.git, place.bare, str(empty), None)
    assert mirror.default_branch(place.git, place.bare, None) is None


def test_tips_and_ancestors(ready: Place) -> None:
    git, bare = ready.git, ready.bare
    first = ready.main()
    second = ready.commit_at_remote("main", "n.txt", "1")
    assert mirror.tip(git, bare, second) is None
    assert not mirror.is_ancestor(git, bare, first, second)
    mirror.fetch(git, bare, None)
    assert mirror.tip(git, bare, "refs/remotes/origin/main") == mirror.tip(git, bare, second) == second
    assert mirror.tip(git, bare, "refs/heads/nowhere") is None
    assert mirror.is_ancestor(git, bare, first, second)
    assert not mirror.is_ancestor(git, bare, second, first)
    assert mirror.merge_base(git, bare, first, second) == first
    for name in ("main", "--all", "HEAD"):
        with pytest.raises(Invalid):
            mirror.tip(git, bare, name)


def test_the_tip_at_the_forge_is_that_of_exactly_this_branch(cloned: Online) -> None:

    def ask(branch: str) -> str | None:
        return mirror.remote_tip(cloned.git, cloned.bare, cloned.who, branch)

    assert ask("main") == cloned.main()
    assert ask(BRANCH) is None
    other = cloned.commit_at_remote("x/refs/heads/seven", "f.txt", "1", start="origin/main")
    assert ask("seven") is None
    assert ask("x/refs/heads/seven") == other


def test_renaming_never_overwrites_and_may_be_repeated(ready: Place) -> None:
    git, bare = ready.git, ready.bare
    mirror.rename_branch(git, bare, BRANCH, "stationmaster/saved/task_1")
    mirror.rename_branch(git, bare, BRANCH, "stationmaster/saved/task_1")
    assert mirror.local_tip(git, bare, BRANCH) is None
    assert ready.inspect().branch == "stationmaster/saved/task_1"
    git.bare(bare, "branch", "--", BRANCH, ready.main())
    with pytest.raises(Unavailable, match="already exists"):
        mirror.rename_branch(git, bare, BRANCH, "stationmaster/saved/task_1")
    assert mirror.branches(git, bare, "stationmaster/") == {BRANCH, "stationmaster/saved/task_1"}


def test_a_push_moves_the_branch_forward(cloned: Online) -> None:
    sha = cloned.main()
    assert cloned.push(sha) == PushOutcome("done")
    assert cloned.push(sha).kind == "done"
    assert cloned.at_forge() == sha
    assert mirror.remote_tip(cloned.git, cloned.bare, cloned.who, BRANCH) == sha


def test_a_push_is_never_forced(cloned: Online) -> None:
    sha = cloned.main()
    theirs = cloned.commit_at_remote(BRANCH, "p.txt", "1", start="origin/main")
    outcome = cloned.push(sha)
    assert (outcome.kind, outcome.reason) == ("refused", "non_fast_forward")
    mirror.fetch(cloned.git, cloned.bare, cloned.who)
    assert (cloned.push(sha).kind, cloned.push(sha).reason) == ("refused", "non_fast_forward")
    assert cloned.at_forge() == theirs


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        ("echo 'Forge: Not allowed to push to protected branch x' >&2; exit 1", "protected"),
        ("echo 'commit message has no ticket' >&2; exit 1", "hook"),
    ],
)
def test_a_refusing_hook_is_told_in_its_own_words(cloned: Online, hook: str, reason: str) -> None:
    script = cloned.remote / "hooks" / "pre-receive"
    script.write_text(f"#!/bin/sh\n{hook}\n")
    script.chmod(0o755)
    outcome = cloned.push(cloned.main())
    assert (outcome.kind, outcome.reason) == ("refused", reason)
    assert hook.split("'")[1] in outcome.words
    assert cloned.at_forge() == ""


@pytest.mark.parametrize(("status", "reason"), [(401, "auth"), (403, "forbidden"), (404, "missing")])
def test_a_push_that_the_forge_refuses_outright(cloned: Online, status: int, reason: str) -> None:
    cloned.forge.status["service=git-receive-pack"] = status
    outcome = cloned.push(cloned.main())
    assert (outcome.kind, outcome.reason) == ("refused", reason)


def test_a_push_whose_answer_is_lost_is_unknown_whether_or_not_it_arrived(cloned: Online) -> None:
    sha = cloned.main()
    cloned.forge.drop_before = True
    assert cloned.push(sha).kind == "unknown"
    assert mirror.remote_tip(cloned.git, cloned.bare, cloned.who, BRANCH) is None
    cloned.forge.drop_before, cloned.forge.drop_after = False, True
    assert cloned.push(sha).kind == "unknown"
    assert mirror.remote_tip(cloned.git, cloned.bare, cloned.who, BRANCH) == sha


def test_a_push_is_proven_also_when_somebody_pushed_after_it(cloned: Online) -> None:
    def holds(sha: str) -> bool:
        return mirror.holds(cloned.git, cloned.bare, cloned.who, BRANCH, sha)

    sha = cloned.main()
    assert not holds(sha)
    cloned.push(sha)
    assert holds(sha)
    later = cloned.commit_at_remote(BRANCH, "p.txt", "1")
    assert holds(sha)
    assert holds(later)
    cloned.commit_at_remote(BRANCH, "q.txt", "1", start=sha)
    assert not holds(later)


def test_a_forge_below_a_path_gets_the_credential(online: Online) -> None:
    online.remote.rename(online.remote.parent / "moved")
    (online.root / "forge" / "git").mkdir()
    (online.root / "forge" / "moved").rename(online.root / "forge" / "git" / "parcel.git")
    mirror.ensure(online.git, online.bare, f"{online.forge.url}git/parcel.git", credential(f"{online.forge.url}git/"))
    assert online.main()


def test_a_push_that_the_forge_answers_with_502_is_unknown(cloned: Online) -> None:
    cloned.forge.status["/git-receive-pack"] = 502
    assert cloned.push(cloned.main()).kind == "unknown"


def test_a_push_that_hangs_is_ended_and_unknown(cloned: Online) -> None:
    impatient = Git(timeout_s=1, lock_wait_s=0.2, home=cloned.root / "h")
    sha = cloned.main()
    cloned.forge.hang.clear()
    outcome = mirror.push(impatient, cloned.bare, cloned.who, sha, BRANCH)
    cloned.forge.hang.set()
    assert outcome.kind == "unknown"
    cloned.forge.hang.clear()
    with pytest.raises(Unavailable) as late:
        mirror.fetch(impatient, cloned.bare, cloned.who)
    cloned.forge.hang.set()
    assert late.value.code == "git_network_failed"


def test_a_forge_that_is_not_there_is_a_network_failure(cloned: Online) -> None:
    cloned.git.bare(cloned.bare, "config", "remote.origin.url", "http://127.0.0.1:9/x.git")
    with pytest.raises(Unavailable) as lost:
        mirror.fetch(cloned.git, cloned.bare, cloned.who)
    assert lost.value.code == "git_network_failed"


def test_a_push_of_something_that_is_not_here_is_refused_before_it_starts(cloned: Online) -> None:
    assert cloned.push("a" * 40).kind == "refused"
    with pytest.raises(Invalid):
        cloned.push("HEAD")
    with pytest.raises(Invalid):
        cloned.push(cloned.main(), "x:refs/heads/main")


def test_reports_are_read_exactly() -> None:
    def read(line: str, stderr: str = "") -> PushOutcome:
        return mirror.outcome_of(Result(1 if line.startswith("!") else 0, f"To http://f/x\n{line}\nDone\n", stderr))

    assert read("=\ta:refs/heads/x\t[up to date]").kind == "done"
    assert read(" \ta:refs/heads/x\t1..2").kind == "done"
    assert read("!\ta:refs/heads/x\t[remote failure] (remote failed to report status)").kind == "unknown"
    locked = read("!\ta:refs/heads/x\t[remote rejected] (cannot lock ref 'refs/heads/x')")
    assert (locked.kind, locked.reason) == ("refused", "other")
    assert "cannot lock ref" in locked.words
    assert mirror.outcome_of(Result(1, "", "", timed_out=True)).kind == "unknown"


def test_a_hanging_clone_leaves_a_part_that_can_be_moved_away(online: Online, tmp_path: Path) -> None:
    impatient = Git(timeout_s=2, lock_wait_s=0.2, home=online.root / "h")
    failed: list[str] = []

    def clone() -> None:
        try:
            mirror.ensure(impatient, online.bare, online.url, online.who)
        except Unavailable as error:
            failed.append(error.code)

    worker = threading.Thread(target=clone)
    worker.start()
    eventually(lambda: mirror.part_of(online.bare).exists())
    online.forge.hang.clear()
    worker.join(20)
    online.forge.hang.set()
    assert failed == ["git_network_failed"]
    assert mirror.part_of(online.bare).exists()
    assert not online.bare.exists()
