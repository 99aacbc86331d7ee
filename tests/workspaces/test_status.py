from __future__ import annotations

from pathlib import Path

import pytest

from stationmaster.workspaces import status
from stationmaster.workspaces.status import TreeState

_HEAD = "# branch.oid 1111\0# branch.head stationmaster/issue-7\0"
_IDS = "100644 100644 100644 aaaa bbbb"


def parse(body: str, head: str = _HEAD, *, foreign: bool = False) -> status.Porcelain:
    return status.parse(head + body, lambda name: foreign)


def test_a_clean_tree() -> None:
    assert parse("") == status.Porcelain("1111", "stationmaster/issue-7", (), ())


def test_every_kind_of_change_is_dirt() -> None:
    body = (
        f"1 .M N... {_IDS} with space.txt\0"
        f"2 R. N... {_IDS} R100 new\0old\0"
        "u UU N... 100644 100644 100644 100644 a b c both.txt\0"
        "? line\nbreak\0? folder/\0"
    )
    seen = parse(body)
    assert seen.dirty == ("with space.txt", "new", "line\\nbreak", "folder/", "both.txt")
    assert seen.conflicts == ("both.txt",)


def test_a_submodule_counts_unless_it_has_a_repository_of_its_own() -> None:
    body = "1 .M SC.. 160000 160000 160000 a b sub\0"
    assert parse(body).dirty == ("sub",)
    assert parse(body, foreign=True).dirty == ()
    assert parse(f"1 .M N... {_IDS} plain\0", foreign=True).dirty == ("plain",)


def test_no_branch_and_no_commit() -> None:
    assert parse("", "# branch.oid (initial)\0# branch.head (detached)\0") == status.Porcelain("", None, (), ())


def test_a_long_listing_is_cut() -> None:
    seen = parse("".join(f"? f{n}\0" for n in range(205)))
    assert len(seen.dirty) == 101
    assert seen.dirty[-1] == "… and 105 more"


def test_names_are_printable() -> None:
    assert status.shown("a\udcffb\x1b[31m") == "a\\xffb\\x1b[31m"
    assert status.shown("Größe 7.txt") == "Größe 7.txt"


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (TreeState("1", "b"), None),
        (TreeState("1", "b", dirty=("x",)), "workspace_dirty"),
        (TreeState("1", "b", dirty=("x",), conflicts=("x",), operation="merge"), "workspace_conflict"),
        (TreeState("1", "b", dirty=("x",), locks=(Path("/l"),)), "workspace_locked"),
        (TreeState("1", "b", operation="rebase"), "workspace_locked"),
        (TreeState("", None, missing=True), "workspace_missing"),
    ],
)
def test_the_worst_problem_is_named(state: TreeState, code: str | None) -> None:  # GW-R-128
    assert state.problem == code
