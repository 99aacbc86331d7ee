from __future__ import annotations

import pytest

from stationmaster.errors import Invalid, Unavailable
from stationmaster.workspaces import branches, branching, mirror, worktree
from stationmaster.workspaces.branching import Decision
from tests.workspaces.conftest import BRANCH, Place, person

SAVED = "stationmaster/saved/task_2"


def next_step(place: Place, *, published: str | None, merged: bool = False, branch: str = BRANCH) -> Decision:
    mirror.fetch(place.git, place.bare, None)
    known = branches.facts(place.git, place.bare, branch, base=place.main(), published=published, merged=merged)
    return branching.decide(known, mirror.branches(place.git, place.bare, BRANCH))


def carry_out(place: Place, decision: Decision) -> str:
    return branches.apply(place.git, place.bare, place.tree, decision, saved_as=SAVED)


def work(place: Place, name: str = "mine.txt") -> str:
    (place.tree / name).write_text("x")
    return place.save().after


def publish(place: Place, sha: str, branch: str = BRANCH) -> str:
    assert mirror.push(place.git, place.bare, None, sha, branch).kind == "done"
    return sha


def test_the_first_task_cuts_the_branch_from_the_tip(place: Place) -> None:
    place.clone()
    decision = next_step(place, published=None)
    assert carry_out(place, decision) == place.main()
    assert place.inspect().branch == BRANCH
    assert carry_out(place, decision) == place.main()


def test_the_second_task_continues_unpublished_and_published_work(ready: Place) -> None:
    first = work(ready)
    assert carry_out(ready, next_step(ready, published=None)) == first
    publish(ready, first)
    ready.commit_at_remote("main", "meanwhile.txt", "x")
    assert next_step(ready, published=first) == Decision("keep", BRANCH, first)


def test_a_persons_commit_on_the_task_branch_blocks_nothing(ready: Place) -> None:
    mine = publish(ready, work(ready))
    theirs = ready.commit_at_remote(BRANCH, "theirs.txt", "x")
    decision = next_step(ready, published=mine)
    assert decision.step == "forward"
    assert carry_out(ready, decision) == theirs
    assert (ready.tree / "theirs.txt").exists()
    assert publish(ready, work(ready, "more.txt"))


def test_a_diverged_branch_is_cut_anew_and_our_side_is_kept(ready: Place) -> None:
    mine = publish(ready, work(ready))
    theirs = ready.commit_at_remote(BRANCH, "theirs.txt", "x")
    ours = work(ready, "unpublished.txt")
    assert mirror.push(ready.git, ready.bare, None, ours, BRANCH).reason == "non_fast_forward"
    decision = next_step(ready, published=mine)
    assert (decision.step, decision.left) == ("set_aside", ours)
    for _ in range(2):  # a repeat after a crash ends the same
        assert carry_out(ready, decision) == theirs
        assert mirror.local_tip(ready.git, ready.bare, SAVED) == ours
        assert ready.inspect().branch == BRANCH
        assert ready.inspect().problem is None
    assert not (ready.tree / "unpublished.txt").exists()
    assert branches.free_name(ready.git, ready.bare, SAVED) == f"{SAVED}-2"


def test_a_crash_between_the_rename_and_the_cut_is_made_good(ready: Place) -> None:
    mine = publish(ready, work(ready))
    theirs = ready.commit_at_remote(BRANCH, "theirs.txt", "x")
    ours = work(ready, "unpublished.txt")
    decision = next_step(ready, published=mine)
    mirror.rename_branch(ready.git, ready.bare, BRANCH, SAVED)
    assert carry_out(ready, decision) == theirs
    assert mirror.local_tip(ready.git, ready.bare, SAVED) == ours


def test_a_rewritten_branch_is_left_and_the_next_name_starts_from_it(ready: Place) -> None:
    mine = publish(ready, work(ready))
    theirs = ready.commit_at_remote(BRANCH, "other.txt", "x", start="origin/main")
    decision = next_step(ready, published=mine)
    assert (decision.step, decision.branch, decision.reason) == ("next", f"{BRANCH}-2", "rewritten")
    assert carry_out(ready, decision) == theirs
    assert mirror.local_tip(ready.git, ready.bare, BRANCH) == mine
    assert ready.inspect().branch == f"{BRANCH}-2"


@pytest.mark.parametrize("merged", [True, False])
def test_after_a_merge_or_deletion_the_next_name_starts_from_the_tip(ready: Place, merged: bool) -> None:
    mine = publish(ready, work(ready))
    person("-C", str(ready.remote), "branch", "-f", "main", BRANCH)
    if not merged:
        person("-C", str(ready.remote), "branch", "-D", BRANCH)
    decision = next_step(ready, published=mine, merged=merged)
    assert (decision.branch, decision.start, decision.left) == (f"{BRANCH}-2", mine, None)
    carry_out(ready, decision)
    again = publish(ready, work(ready, "second.txt"), f"{BRANCH}-2")
    third = next_step(ready, published=again, merged=True, branch=f"{BRANCH}-2")
    assert third.branch == f"{BRANCH}-3"


def test_an_empty_repository_has_nothing_to_start_from(place: Place) -> None:
    place.clone()
    with pytest.raises(Invalid):
        carry_out(place, Decision("cut", BRANCH, None))


def test_a_dirty_tree_stays_where_it_is(ready: Place) -> None:
    (ready.tree / "README.md").write_text("edited")
    with pytest.raises(Unavailable):
        carry_out(ready, Decision("next", f"{BRANCH}-2", ready.main()))
    assert worktree.current_branch(ready.bare, ready.tree) == BRANCH
