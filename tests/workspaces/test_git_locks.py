"""A lock of somebody else's git on a shared repository: waited for, never deleted, and nobody fails over it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stationmaster.errors import Busy
from stationmaster.workspaces import git as git_module
from stationmaster.workspaces import mirror, worktree
from stationmaster.workspaces.failures import Result, lock_in_the_way
from stationmaster.workspaces.git import Git
from tests.support import eventually
from tests.workspaces.conftest import AUTHOR, Place, person

_TASKS = 13


class _Watched:
    """A runner that counts the commands that met a lock."""

    def __init__(self, home: Path, wait_s: float, remotes: Path) -> None:
        self.git = Git(timeout_s=60, lock_wait_s=wait_s, home=home, local_remotes=(remotes,))
        self.met = 0
        plain = self.git._once

        def once(job: git_module._Job) -> Result:
            result = plain(job)
            self.met += lock_in_the_way(result) is not None
            return result

        self.git._once = once  # type: ignore[method-assign]


def _all_at_once(count: int, work: Callable[[int], None]) -> tuple[list[threading.Thread], list[BaseException]]:
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion of the test
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads, failures


def test_bug_4_thirteen_tasks_on_thirteen_issues_finish_while_the_config_is_locked_for_a_while(place: Place) -> None:
    # GW-R-128, GW-R-123; bug 4
    place.clone()
    moved = place.remote.with_name("renamed.git")
    place.remote.rename(moved)
    locks = [place.bare / "config.lock", place.bare / "packed-refs.lock"]
    for lock in locks:
        lock.write_text("somebody's")
    watched = _Watched(place.root / "h", 30, place.root / "forge")
    git = watched.git

    def task(number: int) -> None:
        # The forge's repository has a new address, so that every task writes the configuration or waits for who does.
        mirror.ensure(git, place.bare, str(moved), None)
        mirror.fetch(git, place.bare, None)
        tree, branch = place.layout.tree("repo_1", f"issue-{number}"), f"stationmaster/issue-{number}"
        start = mirror.remote_tracking_tip(git, place.bare, "main")
        assert start is not None
        worktree.ensure(git, place.bare, tree, branch, start)
        (tree / "new.txt").write_text(f"{number}\n")
        worktree.save(git, place.bare, tree, "work", place.nested, AUTHOR)
        pushed = mirror.local_tip(git, place.bare, branch)
        assert pushed is not None
        assert mirror.push(git, place.bare, None, pushed, branch).kind == "done"

    threads, failures = _all_at_once(_TASKS, task)
    eventually(lambda: watched.met >= _TASKS)
    aside = place.root / "aside"
    aside.mkdir()
    kept = [lock.read_text() for lock in locks]
    for lock in locks:
        lock.rename(aside / lock.name)
    for thread in threads:
        thread.join(120)
    assert not failures
    assert kept == ["somebody's", "somebody's"]  # while they stood nobody touched them
    at_forge = person("-C", str(moved), "for-each-ref", "--format=%(refname)", "refs/heads/stationmaster/").split()
    assert len(at_forge) == _TASKS
    assert not list(place.bare.rglob("*.lock"))


@pytest.mark.parametrize(
    ("lock", "words"),
    [
        ("config.lock", ("config", "a.b", "1")),
        ("packed-refs.lock", ("pack-refs", "--all")),
        ("refs/heads/one.lock", ("update-ref", "refs/heads/one", "refs/remotes/origin/main")),
        ("shallow.lock", ("fetch", "--quiet", "--depth=1", "--update-shallow", "origin")),
    ],
)
def test_a_lock_that_outlasts_the_wait_is_named_and_left(place: Place, lock: str, words: tuple[str, ...]) -> None:
    # GW-R-128
    place.clone()
    place.commit_at_remote("main", "later.txt", "later\n")
    standing = place.bare / lock
    standing.parent.mkdir(parents=True, exist_ok=True)
    standing.write_text("somebody's")
    watched = _Watched(place.root / "h", 0.2, place.root / "forge")
    fetching = words[0] == "fetch"
    if fetching:
        watched.git.bare(place.bare, "config", "remote.origin.url", place.remote.as_uri())
    with pytest.raises(Busy, match=lock.rsplit("/", 1)[-1]) as busy:
        watched.git.bare(place.bare, *words, network=fetching)
    assert busy.value.code == "git_locked"
    assert watched.met > 1  # it was tried again
    assert standing.read_text() == "somebody's"


def test_what_went_before_spends_none_of_a_commands_wait_for_a_lock(ready: Place) -> None:
    # GW-R-128: the wait begins when the lock is met, not when the command was asked for
    watched = _Watched(ready.root / "h", 0.4, ready.root / "forge")
    lock = ready.bare / "config.lock"
    lock.touch()
    turn = watched.git._turns.setdefault(ready.bare, threading.Lock())

    def task(_: int) -> None:
        watched.git.bare(ready.bare, "config", "a.b", "1")

    with turn:
        threads, failures = _all_at_once(1, task)
        threads[0].join(0.5)
    eventually(lambda: watched.met >= 2)
    threads[0].join(20)
    assert isinstance(failures[0], Busy)


def test_a_branch_is_renamed_once_although_the_config_is_locked(ready: Place) -> None:
    # GW-R-128: git renames first, then says that it failed
    lock = ready.bare / "config.lock"
    lock.touch()
    tip = mirror.local_tip(ready.git, ready.bare, "stationmaster/issue-7")
    mirror.rename_branch(ready.git, ready.bare, "stationmaster/issue-7", "stationmaster/kept")
    mirror.rename_branch(ready.git, ready.bare, "stationmaster/issue-7", "stationmaster/kept")
    assert mirror.local_tip(ready.git, ready.bare, "stationmaster/kept") == tip
    assert mirror.local_tip(ready.git, ready.bare, "stationmaster/issue-7") is None
    assert ready.inspect().branch == "stationmaster/kept"
    assert lock.exists()
