from __future__ import annotations

import itertools

import pytest

from stationmaster.workspaces.branching import Decision, Facts, decide, follow_head, next_name

B = "stationmaster/issue-7"
BASE, OURS, THEIRS, OLD = "base", "ours", "theirs", "old"


def facts(**changes: object) -> Facts:
    return Facts(**{"branch": B, "base": BASE, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # The branch is cut once from the tip.
        (facts(), Decision("cut", B, BASE, reason="new")),
        (facts(base=None), Decision("cut", B, None, reason="new")),
        # Work that was never published is continued.
        (facts(local=OURS), Decision("keep", B, OURS, reason="ahead")),
        (facts(local=OURS, remote=OURS), Decision("keep", B, OURS)),
        (facts(local=OURS, remote=OURS, published=OURS, published_in_remote=True), Decision("keep", B, OURS)),
        (
            facts(local=OURS, remote=OLD, published=OLD, published_in_remote=True, remote_in_local=True),
            Decision("keep", B, OURS, reason="ahead"),
        ),
        # A person went on with it.
        (
            facts(local=OLD, remote=THEIRS, published=OLD, published_in_remote=True, local_in_remote=True),
            Decision("forward", B, THEIRS, reason="behind"),
        ),
        (facts(remote=THEIRS), Decision("cut", B, THEIRS, reason="behind")),
        (facts(local=OLD, remote=THEIRS, local_in_remote=True), Decision("forward", B, THEIRS, reason="behind")),
        # Both went on.
        (
            facts(local=OURS, remote=THEIRS, published=OLD, published_in_remote=True),
            Decision("set_aside", B, THEIRS, OURS, "diverged"),
        ),
        (facts(local=OURS, remote=THEIRS), Decision("set_aside", B, THEIRS, OURS, "diverged")),
        # The forge's branch was rewritten below what we had published.
        (
            facts(local=OURS, remote=THEIRS, published=OURS),
            Decision("next", f"{B}-2", THEIRS, None, "rewritten"),
        ),
        (
            facts(local=OURS, remote=THEIRS, published=OLD),
            Decision("next", f"{B}-2", THEIRS, OURS, "rewritten"),
        ),
        (
            facts(local=OLD, remote=THEIRS, published=OURS, local_in_remote=True, published_contains_local=True),
            Decision("next", f"{B}-2", THEIRS, None, "rewritten"),
        ),
        # Deleted or merged.
        (facts(local=OURS, published=OURS), Decision("next", f"{B}-2", BASE, None, "gone")),
        (facts(local=OURS, published=OLD), Decision("next", f"{B}-2", BASE, OURS, "gone")),
        (facts(published=OLD), Decision("next", f"{B}-2", BASE, None, "gone")),
        (
            facts(local=OLD, remote=OLD, published=OLD, published_in_remote=True, merged=True),
            Decision("next", f"{B}-2", BASE, None, "merged"),
        ),
        (facts(local=OURS, published=OLD, merged=True), Decision("next", f"{B}-2", BASE, OURS, "merged")),
    ],
)
def test_the_table(given: Facts, expected: Decision) -> None:
    assert decide(given) == expected


def test_nothing_of_ours_is_ever_dropped_silently() -> None:
    """Over every combination: a start that lacks our commit comes with the commit named, or it was published."""
    flags = ("local_in_remote", "remote_in_local", "published_in_remote", "published_contains_local", "merged")
    for local, remote, published in itertools.product((None, OURS), (None, OURS, THEIRS), (None, OURS, OLD)):
        for values in itertools.product((False, True), repeat=len(flags)):
            given = facts(local=local, remote=remote, published=published, **dict(zip(flags, values, strict=True)))
            made = decide(given)
            assert made.step == "next" or made.branch == B
            assert made.step != "next" or made.branch == f"{B}-2"
            kept = made.start == local or given.local_in_remote or given.published_contains_local
            assert local is None or kept or local in {remote, published} or made.left == local


def test_names_count_on_and_skip_what_is_taken() -> None:
    assert next_name(B) == f"{B}-2"
    assert next_name(f"{B}-2") == f"{B}-3"
    assert next_name(f"{B}-9", {f"{B}-10", f"{B}-11"}) == f"{B}-12"
    assert next_name("stationmaster/pull_request-12", {"stationmaster/pull_request-12-2"}).endswith("-12-3")
    assert next_name("stationmaster/free") == "stationmaster/free-2"


@pytest.mark.parametrize(
    ("before", "head_in_ours", "ours_in_head", "expected"),
    [
        (Decision("keep", B, "h"), False, False, Decision("keep", B, "h")),
        (Decision("keep", B, OURS), True, False, Decision("keep", B, OURS)),
        (Decision("keep", B, OURS), False, True, Decision("forward", B, "h", reason="head_moved")),
        (Decision("forward", B, THEIRS), False, True, Decision("forward", B, "h", reason="head_moved")),
        (Decision("keep", B, OURS), False, False, Decision("next", f"{B}-2", "h", OURS, "head_moved")),
        (Decision("forward", B, THEIRS), False, False, Decision("next", f"{B}-2", "h", None, "head_moved")),
        (Decision("set_aside", B, THEIRS, OURS), False, True, Decision("set_aside", B, "h", OURS, "head_moved")),
        (Decision("next", f"{B}-2", BASE, OURS, "gone"), False, False, Decision("next", f"{B}-2", "h", OURS, "gone")),
        (Decision("cut", B, None, reason="new"), False, False, Decision("cut", B, "h", reason="new")),
    ],
)
def test_a_pull_request_is_worked_on_from_its_head(
    before: Decision, head_in_ours: bool, ours_in_head: bool, expected: Decision
) -> None:
    assert follow_head(before, "h", head_in_ours=head_in_ours, ours_in_head=ours_in_head) == expected
