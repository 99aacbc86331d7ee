"""A table of moves that makes no sense is refused when it is loaded, not when a row is stuck."""

from __future__ import annotations

import pytest

from stationmaster.errors import Bug, Illegal
from stationmaster.machine import Machine

EDGES = (("", "make", "new"), ("new", "run", "done"), ("new", "drop", "gone"))
ENDS = frozenset({"done", "gone"})


def test_a_verb_leads_to_one_state() -> None:
    machine = Machine("thing", EDGES, ENDS)
    assert machine.states == {"new", "done", "gone"}
    assert [machine.target("", "make"), machine.target("new", "drop")] == ["new", "gone"]


@pytest.mark.parametrize(("state", "verb"), [("done", "run"), ("new", "make"), ("", "run"), ("nowhere", "run")])
def test_a_move_off_the_table_is_illegal(state: str, verb: str) -> None:
    with pytest.raises(Illegal) as refused:
        Machine("thing", EDGES, ENDS).target(state, verb)
    assert refused.value.code == "illegal_transition"


@pytest.mark.parametrize(
    ("edges", "ends", "words"),
    [
        ((*EDGES, ("new", "run", "gone")), ENDS, "two edges"),
        ((*EDGES, ("lost", "run", "done")), ENDS, "no way to"),
        ((*EDGES, ("lost", "run", "found"), ("found", "run", "lost")), ENDS, "no way to"),
        (EDGES, frozenset({"done"}), "real ends"),
        (EDGES, ENDS | {"new"}, "real ends"),
    ],
)
def test_a_senseless_table_is_a_bug(edges: tuple[tuple[str, str, str], ...], ends: frozenset[str], words: str) -> None:
    with pytest.raises(Bug, match=words):
        Machine("thing", edges, ends)
