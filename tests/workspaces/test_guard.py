from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stationmaster.workspaces import guard, mirror, worktree
from stationmaster.workspaces.guard import Problem
from stationmaster.workspaces.status import TreeState
from tests.workspaces.conftest import BRANCH, NAME, REPOSITORY, Place, person, picture

ADMIN = "worktrees/issue-7"


def check(place: Place) -> Problem | None:
    """Looks twice and proves that nothing on disk changed, byte by byte (GW-R-128)."""
    before = picture(place.layout.root) if place.layout.root.exists() else {}
    problem = guard.check(place.git, place.layout, REPOSITORY, NAME, branch=BRANCH)
    assert guard.check(place.git, place.layout, REPOSITORY, NAME, branch=BRANCH) == problem
    assert (picture(place.layout.root) if place.layout.root.exists() else {}) == before
    return problem


def test_what_is_not_made_yet_is_no_problem(place: Place) -> None:
    assert check(place) is None
    place.clone()
    assert check(place) is None
    place.tree.mkdir(parents=True)
    assert check(place) is None


def test_a_clean_worktree_is_no_problem(ready: Place) -> None:
    (ready.tree / "a.log").write_text("ignored")
    assert check(ready) is None
    (ready.tree / "new.txt").write_text("x")
    ready.save()
    assert check(ready) is None


def test_a_persons_commit_is_no_problem(ready: Place) -> None:
    (ready.tree / "new.txt").write_text("x")
    person("add", "-A", cwd=ready.tree)
    person("commit", "-qm", "By hand", cwd=ready.tree)
    assert check(ready) is None


def dirt(place: Place) -> None:
    (place.tree / "README.md").write_text("edited by a person")


def untracked(place: Place) -> None:
    (place.tree / "notes.txt").write_text("mine")


def staged(place: Place) -> None:
    (place.tree / "README.md").write_text("staged")
    person("add", "-A", cwd=place.tree)


def nested_repository(place: Place) -> None:
    person("init", "-q", str(place.tree / "inner"))


def conflict(place: Place) -> None:
    (place.tree / "README.md").write_text("ours\n")
    place.save()
    theirs = place.commit_at_remote("main", "README.md", "theirs\n")
    mirror.fetch(place.git, place.bare, None)
    person("merge", theirs, cwd=place.tree, check=False)


def rebase(place: Place) -> None:
    (place.bare / ADMIN / "rebase-merge").mkdir()


def stale_lock(place: Place) -> None:
    (place.bare / ADMIN / "index.lock").write_bytes(b"half an index")


def stale_shared_lock(place: Place) -> None:
    (place.bare / "packed-refs.lock").touch()


def elsewhere(place: Place) -> None:
    person("-C", str(place.tree), "checkout", "-q", "--detach")
    person("-C", str(place.bare), "worktree", "add", "-q", str(place.root / "desk"), BRANCH)


def unregistered(place: Place) -> None:
    (place.bare / ADMIN).rename(place.bare / "was")


def folder_gone(place: Place) -> None:
    place.tree.rename(place.root / "was")


def unfinished(place: Place) -> None:
    (place.bare / ADMIN / "locked").write_text("initializing")


def moved(place: Place) -> None:
    (place.bare / ADMIN / "gitdir").write_text("/elsewhere/.git\n")


def repository_gone(place: Place) -> None:
    place.bare.rename(place.root / "was")


def repository_hollow(place: Place) -> None:
    (place.bare / "objects").rename(place.root / "was")


def unfinished_clone(place: Place) -> None:
    mirror.part_of(place.bare).mkdir()


def git_folder(place: Place) -> None:
    (place.tree / ".git").rename(place.root / "was")
    person("init", "-q", str(place.tree))


def git_file_elsewhere(place: Place) -> None:
    (place.tree / ".git").write_text("gitdir: /elsewhere\n")


def tree_is_a_link(place: Place) -> None:
    place.tree.rename(place.root / "outside")
    place.tree.symlink_to(place.root / "outside")


def parent_is_a_link(place: Place) -> None:
    place.tree.parent.rename(place.root / "outside")
    place.tree.parent.symlink_to(place.root / "outside")


def bare_is_a_link(place: Place) -> None:
    place.bare.rename(place.root / "outside")
    place.bare.symlink_to(place.root / "outside")


def tree_is_a_file(place: Place) -> None:
    place.tree.rename(place.root / "was")
    place.tree.write_text("a file")


def index_broken(place: Place) -> None:
    (place.bare / ADMIN / "index").write_bytes(b"DIRCgarbage")


@pytest.mark.parametrize(
    ("spoil", "code", "scope", "says"),
    [
        (dirt, "workspace_dirty", "worktree", "README.md"),
        (untracked, "workspace_dirty", "worktree", "notes.txt"),
        (staged, "workspace_dirty", "worktree", "README.md"),
        (nested_repository, "workspace_dirty", "worktree", "inner/"),
        (conflict, "workspace_conflict", "worktree", "README.md"),
        (rebase, "workspace_locked", "worktree", "rebase"),
        (stale_lock, "workspace_locked", "worktree", "index.lock"),
        (stale_shared_lock, "workspace_locked", "repository", "packed-refs.lock"),
        (elsewhere, "workspace_branch_busy", "worktree", "desk"),
        (unregistered, "workspace_missing", "worktree", "does not know it"),
        (folder_gone, "workspace_missing", "worktree", "worktree prune"),
        (unfinished, "workspace_missing", "worktree", "half made"),
        (moved, "workspace_missing", "worktree", "half made or was moved"),
        (repository_gone, "workspace_missing", "repository", "bare.git"),
        (repository_hollow, "workspace_missing", "repository", "objects"),
        (unfinished_clone, "workspace_missing", "repository", ".part"),
        (git_folder, "workspace_path_invalid", "worktree", "Put back a file"),
        (git_file_elsewhere, "workspace_path_invalid", "worktree", "gitdir: "),
        (tree_is_a_link, "workspace_path_invalid", "worktree", "symbolic link"),
        (parent_is_a_link, "workspace_path_invalid", "worktree", "symbolic link"),
        (bare_is_a_link, "workspace_path_invalid", "worktree", "symbolic link"),
        (tree_is_a_file, "workspace_path_invalid", "worktree", "not a folder"),
        (index_broken, "workspace_missing", "worktree", "index"),
    ],
)
def test_foreign_trouble_is_named_and_left_byte_identical(
    ready: Place, spoil: Callable[[Place], None], code: str, scope: str, says: str
) -> None:
    spoil(ready)
    problem = check(ready)
    assert problem is not None
    assert (problem.code, problem.scope) == (code, scope)
    assert says in problem.sentence
    assert problem.sentence.endswith(".")
    assert code in guard.CODES


def test_a_worktree_of_another_user_is_refused(ready: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    problem = check(ready)
    assert problem is not None
    assert "chown" in problem.sentence


def test_a_branch_held_by_a_folder_that_is_gone(ready: Place) -> None:
    elsewhere(ready)
    (ready.root / "desk").rename(ready.root / "was")
    problem = check(ready)
    assert problem is not None
    assert "worktree prune" in problem.sentence


def test_another_worktree_on_another_branch_is_no_problem(ready: Place) -> None:
    other = ready.layout.tree(REPOSITORY, "issue-8")
    worktree.ensure(ready.git, ready.bare, other, "stationmaster/issue-8", ready.main())
    (other / "x").write_text("dirty")
    assert check(ready) is None


def test_a_long_list_of_dirt_is_shortened(ready: Place) -> None:
    for number in range(12):
        (ready.tree / f"n{number:02}").write_text("x")
    problem = check(ready)
    assert problem is not None
    assert "n04 and 7 more" in problem.sentence
    assert len(problem.sentence) < 600


def test_a_folder_that_cannot_be_read_is_a_problem(ready: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(bare: Path, tree: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(tree))

    monkeypatch.setattr(worktree, "is_registered", broken)
    problem = check(ready)
    assert problem is not None
    assert "Permission denied" in problem.sentence


def test_every_problem_of_a_look_is_worded(tmp_path: Path) -> None:
    assert guard.of_state(TreeState("1", "b"), tmp_path) is None
    missing = guard.of_state(TreeState("", None, missing=True), tmp_path)
    assert missing is not None
    assert missing.code == "workspace_missing"
