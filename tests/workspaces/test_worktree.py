from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stationmaster.errors import Invalid, Unavailable
from stationmaster.workspaces import mirror, worktree
from stationmaster.workspaces.git import Git
from tests.support import eventually
from tests.workspaces.conftest import AUTHOR, BRANCH, Place, person, picture
from tests.workspaces.test_git import with_word

ADMIN = "worktrees/issue-7"


def test_a_worktree_stands_on_a_branch_of_its_own(ready: Place) -> None:
    state = ready.inspect()
    assert (state.head, state.branch, state.problem) == (ready.main(), BRANCH, None)
    assert (ready.tree / "src" / "app.py").read_text() == "print('hello')\n"
    assert (ready.tree / ".git").read_text() == f"gitdir: {ready.bare / ADMIN}\n"


def test_making_it_again_changes_nothing(ready: Place) -> None:
    (ready.tree / "README.md").write_text("edited")
    before = picture(ready.bare, ready.tree)
    later = ready.commit_at_remote("main", "n.txt", "1")
    worktree.ensure(ready.git, ready.bare, ready.tree, BRANCH, later)
    assert picture(ready.bare, ready.tree) == before


def test_a_branch_left_by_a_crash_is_used_where_it_is(place: Place) -> None:
    place.clone()
    place.git.bare(place.bare, "branch", "--", BRANCH, place.main())
    new = place.commit_at_remote("main", "n.txt", "1")
    mirror.fetch(place.git, place.bare, None)
    worktree.ensure(place.git, place.bare, place.tree, BRANCH, new)
    assert place.inspect().head != new


def test_another_branch_is_not_taken_for_ours(ready: Place) -> None:
    with pytest.raises(Unavailable) as busy:
        worktree.ensure(ready.git, ready.bare, ready.tree, "stationmaster/issue-7-2", ready.main())
    assert busy.value.code == "workspace_branch_busy"


@pytest.mark.parametrize("foreign", ["files", "link", "file", "registered"])
def test_something_in_the_way_is_refused_untouched(place: Place, foreign: str) -> None:
    place.clone()
    place.tree.parent.mkdir()
    if foreign == "files":
        place.tree.mkdir()
        (place.tree / "x").write_text("x")
    elif foreign == "link":
        place.tree.symlink_to(place.root)
    elif foreign == "file":
        place.tree.write_text("x")
    else:
        (place.bare / ADMIN).mkdir(parents=True)
    before = picture(place.layout.root)
    with pytest.raises(Unavailable) as refused:
        worktree.ensure(place.git, place.bare, place.tree, BRANCH, place.main())
    assert refused.value.code == "workspace_missing"
    assert picture(place.layout.root) == before


@pytest.mark.parametrize("branch", ["-d", "a..b", "x.lock", "HEAD", ""])
def test_branch_names_are_checked(place: Place, branch: str) -> None:  # GW-R-132
    place.clone()
    with pytest.raises(Invalid):
        worktree.ensure(place.git, place.bare, place.tree, branch, place.main())


def test_looking_changes_nothing_not_even_the_index(ready: Place) -> None:
    os.utime(ready.tree / "README.md", (1, 1))  # git would like to refresh its index now
    (ready.tree / "new").write_text("x")
    before = picture(ready.bare, ready.tree)
    assert ready.inspect().dirty == ("new",)
    assert picture(ready.bare, ready.tree) == before


def test_ignored_files_are_no_dirt_and_stay(ready: Place) -> None:
    (ready.tree / "ignored").mkdir()
    (ready.tree / "ignored" / "cache").write_text("x")
    (ready.tree / "a.log").write_text("x")
    assert ready.inspect().problem is None
    assert not ready.save().changed
    assert (ready.tree / "a.log").exists()


def test_a_conflict_and_a_begun_operation_are_seen(ready: Place) -> None:
    (ready.tree / "README.md").write_text("ours\n")
    ready.save()
    theirs = ready.commit_at_remote("main", "README.md", "theirs\n")
    mirror.fetch(ready.git, ready.bare, None)
    person("-c", "user.name=a", "-c", "user.email=a@b", "merge", theirs, cwd=ready.tree, check=False)
    state = ready.inspect()
    assert (state.problem, state.conflicts, state.operation) == ("workspace_conflict", ("README.md",), "merge")
    (ready.tree / "README.md").write_text("both\n")
    person("add", "-A", cwd=ready.tree)
    assert ready.inspect().problem == "workspace_locked"  # GW-R-128


@pytest.mark.parametrize(
    "lock",
    [f"{ADMIN}/index.lock", f"{ADMIN}/HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock", "HEAD.lock",
     f"refs/heads/{BRANCH}.lock"],
)  # fmt: skip
def test_a_lock_that_stays_is_found(ready: Place, lock: str) -> None:  # GW-R-128
    path = ready.bare / lock
    path.write_text("")
    state = ready.inspect()
    assert (state.problem, state.locks) == ("workspace_locked", (path,))
    assert path.exists()


def test_a_lock_that_ends_in_time_is_none(ready: Place) -> None:
    patient = Git(timeout_s=60, lock_wait_s=20, home=ready.root / "h")
    lock = ready.bare / ADMIN / "index.lock"
    lock.touch()
    looking = threading.Event()
    seen: list[object] = []

    def look() -> None:
        looking.set()
        seen.append(worktree.inspect(patient, ready.bare, ready.tree).problem)

    worker = threading.Thread(target=look)
    worker.start()
    looking.wait(10)
    lock.rename(ready.root / "away")
    worker.join(20)
    assert seen == [None]


def test_a_clean_tree_moves_between_branches(ready: Place) -> None:
    (ready.tree / "mine.txt").write_text("x")
    saved = ready.save()
    worktree.switch(ready.git, ready.bare, ready.tree, "stationmaster/issue-7-2", ready.main())
    assert not (ready.tree / "mine.txt").exists()
    assert ready.inspect().head == ready.main()
    worktree.switch(ready.git, ready.bare, ready.tree, "stationmaster/issue-7-2", saved.after)
    assert ready.inspect().head == ready.main()  # an existing branch keeps its place
    worktree.switch(ready.git, ready.bare, ready.tree, BRANCH, ready.main())
    assert ready.inspect().head == saved.after


def test_a_dirty_tree_does_not_move(ready: Place) -> None:
    (ready.tree / "README.md").write_text("edited")
    before = picture(ready.bare, ready.tree)
    for move in (
        lambda: worktree.switch(ready.git, ready.bare, ready.tree, "stationmaster/x", ready.main()),
        lambda: worktree.fast_forward(ready.git, ready.bare, ready.tree, ready.main()),
    ):
        with pytest.raises(Unavailable) as refused:
            move()
        assert refused.value.code == "workspace_dirty"
    assert picture(ready.bare, ready.tree) == before


def test_ignored_files_are_not_overwritten_by_a_move(ready: Place) -> None:
    work = ready.root / "force"
    person("clone", "-q", str(ready.remote), str(work))
    (work / "ignored").mkdir()
    (work / "ignored" / "cache").write_text("theirs")
    person("add", "-f", "-A", cwd=work)
    person("commit", "-qm", "Track it", cwd=work)
    person("push", "-q", "origin", "HEAD:main", cwd=work)
    mirror.fetch(ready.git, ready.bare, None)
    (ready.tree / "ignored").mkdir()
    (ready.tree / "ignored" / "cache").write_text("ours")
    with pytest.raises(Unavailable):
        worktree.fast_forward(ready.git, ready.bare, ready.tree, ready.main())
    with pytest.raises(Unavailable):
        worktree.switch(ready.git, ready.bare, ready.tree, "stationmaster/x", ready.main())
    assert (ready.tree / "ignored" / "cache").read_text() == "ours"


def test_fast_forward_goes_forward_only(ready: Place) -> None:
    new = ready.commit_at_remote("main", "n.txt", "1")
    mirror.fetch(ready.git, ready.bare, None)
    assert worktree.fast_forward(ready.git, ready.bare, ready.tree, new)
    assert worktree.fast_forward(ready.git, ready.bare, ready.tree, new)
    assert (ready.tree / "n.txt").exists()
    (ready.tree / "mine.txt").write_text("x")
    ready.save()
    assert not worktree.fast_forward(ready.git, ready.bare, ready.tree, new)


def test_two_issues_have_two_trees(ready: Place) -> None:
    other = ready.layout.tree("repo_1", "issue-8")
    worktree.ensure(ready.git, ready.bare, other, "stationmaster/issue-8", ready.main())
    (other / "x.txt").write_text("x")
    worktree.save(ready.git, ready.bare, other, "m", ready.nested, AUTHOR)
    assert ready.inspect().problem is None
    assert ready.inspect().head == ready.main()
    with pytest.raises(Unavailable):
        worktree.switch(ready.git, ready.bare, other, BRANCH, ready.main())


def test_a_half_made_worktree_of_ours_is_moved_away_and_made_again(ready: Place) -> None:
    (ready.bare / ADMIN / "locked").write_text("initializing")
    (ready.tree / "half").write_text("x")
    assert ready.inspect().problem == "workspace_missing"
    moved = worktree.orphan_worktree(ready.bare, ready.tree, 77)
    assert [path.name for path in moved] == ["issue-7.orphan-77", "issue-7.orphan-77"]
    assert (moved[0] / "half").read_text() == "x"
    assert worktree.orphan_worktree(ready.bare, ready.tree, 77) == ()
    worktree.ensure(ready.git, ready.bare, ready.tree, BRANCH, ready.main())
    assert ready.inspect().problem is None


def test_orphans_never_overwrite_and_may_be_repeated(tmp_path: Path) -> None:
    for expected in ("x.part.orphan-5", "x.part.orphan-5-2", "x.part.orphan-5-3"):
        (tmp_path / "x.part").mkdir()
        assert worktree.orphan(tmp_path / "x.part", 5).name == expected
    assert worktree.orphan(tmp_path / "x.part", 5) == tmp_path / "x.part.orphan-5"
    assert len(list(tmp_path.iterdir())) == 3


def test_a_save_of_many_files_is_one_commit(ready: Place) -> None:
    for number in range(2000):
        (ready.tree / f"f{number}.txt").write_text(str(number))
    saved = ready.save()
    assert len(ready.saved_files(saved.after)) == 2003


_POINTS = (
    "workspace.clone.before_rename",
    "workspace.worktree.after_branch",
    "workspace.worktree.after_add",
    "workspace.save.after_nested",
    "workspace.save.after_add",
    "workspace.save.after_commit",
    "workspace.branch.after_set_aside",
    "workspace.switch.after_branch",
)
_LIFE = """
import sys
from pathlib import Path
from stationmaster import faults
from stationmaster.workspaces import branches, mirror, worktree
from stationmaster.workspaces.branching import Decision
from stationmaster.workspaces.git import Author, Git
remote, bare, tree, nested, home, theirs, point = sys.argv[1:]
bare, tree = Path(bare), Path(tree)
git = Git(timeout_s=60, lock_wait_s=0.2, home=Path(home), local_remotes=(Path(remote).parent,))
faults.arm(point)
mirror.ensure(git, bare, remote, None)
start = mirror.remote_tracking_tip(git, bare, "main")
if mirror.local_tip(git, bare, "stationmaster/saved/t") is None:
    worktree.ensure(git, bare, tree, "stationmaster/issue-7", start)
    (tree / "inner").mkdir(exist_ok=True)
    (tree / "inner" / ".git").mkdir(exist_ok=True)
    (tree / "inner" / "work.txt").write_text("half")
    worktree.save(git, bare, tree, "m", Path(nested), Author("a", "a@b"))
left = mirror.local_tip(git, bare, "stationmaster/saved/t") or mirror.local_tip(git, bare, "stationmaster/issue-7")
decision = Decision("set_aside", "stationmaster/issue-7", theirs, left)
branches.apply(git, bare, tree, decision, saved_as="stationmaster/saved/t")
"""


@pytest.mark.parametrize("point", _POINTS)
def test_a_kill_at_any_point_is_made_good_by_doing_it_again(place: Place, point: str) -> None:  # K10
    theirs = place.commit_at_remote("main", "n.txt", "1")

    def live(armed: str) -> int:
        places = (place.remote, place.bare, place.tree, place.nested, place.root / "h", theirs, armed)
        return subprocess.run([sys.executable, "-c", _LIFE, *map(str, places)], check=False).returncode

    assert live(point) == -signal.SIGKILL
    if mirror.part_of(place.bare).exists():
        worktree.orphan(mirror.part_of(place.bare), 9)
    assert live("nowhere") == 0
    assert live("nowhere") == 0
    saved = mirror.local_tip(place.git, place.bare, "stationmaster/saved/t")
    assert saved is not None
    assert place.content(saved, "inner/work.txt") == "half"
    assert (place.inspect().head, place.inspect().branch, place.inspect().problem) == (theirs, BRANCH, None)


_SAVE = """
import sys
from pathlib import Path
from stationmaster.workspaces import worktree
from stationmaster.workspaces.git import Author, Git
bare, tree, nested, home = map(Path, sys.argv[1:])
worktree.save(Git(timeout_s=600, lock_wait_s=1, home=home), bare, tree, "m", nested, Author("a", "a@b"))
"""


def test_a_save_killed_in_the_middle_of_git_is_made_good(ready: Place) -> None:
    with (ready.tree / "large.bin").open("wb") as file:
        file.truncate(4 * 1024**3)
    lock = ready.bare / ADMIN / "index.lock"
    places = (ready.bare, ready.tree, ready.nested, ready.root / "h")
    product = subprocess.Popen([sys.executable, "-c", _SAVE, *map(str, places)])
    eventually(lock.exists)
    product.kill()
    product.wait()
    mark = f"--work-tree={ready.tree}"
    eventually(lambda: not with_word(mark))
    assert worktree.locks_now(ready.bare, ready.tree) == (lock,)
    assert ready.inspect().problem == "workspace_locked"
    worktree.orphan(lock, 12)
    with (ready.tree / "large.bin").open("wb") as file:
        file.truncate(4)
    assert ready.save().changed
    assert ready.inspect().problem is None
