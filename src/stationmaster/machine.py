"""State machines as data: an edge is (from, verb, to), and '' is the state before birth.

The same table drives the actions, the guards inside the database, the documentation and the tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stationmaster.errors import Bug, Illegal

UNBORN = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """One guarded table and its legal moves.

    `moved` are the columns that a move may change; every other column is fixed at birth (K2). `terminal` states are
    declared so that a forgotten way out is noticed at import.
    """

    table: str
    edges: tuple[tuple[str, str, str], ...]
    terminal: frozenset[str]
    moved: frozenset[str] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        """Checks the table: one target per (state, verb), every state reachable, terminals without a way out."""
        seen: set[tuple[str, str]] = set()
        for origin, verb, _ in self.edges:
            if (origin, verb) in seen:
                raise Bug(f"BUG: {self.table}: two edges for {verb!r} from {origin!r}.")
            seen.add((origin, verb))
        reached, grown = {UNBORN}, True
        while grown:
            more = {to for origin, _, to in self.edges if origin in reached} - reached
            reached |= more
            grown = bool(more)
        lost = {origin for origin, _, _ in self.edges} - reached
        if lost:
            raise Bug(f"BUG: {self.table}: no way to {sorted(lost)}.")
        ends = self.states - {origin for origin, _, _ in self.edges}
        if ends != self.terminal:
            raise Bug(f"BUG: {self.table}: declared ends {sorted(self.terminal)}, real ends {sorted(ends)}.")

    @property
    def states(self) -> frozenset[str]:
        """Every state a row can be in."""
        named = {to for _, _, to in self.edges} | {origin for origin, _, _ in self.edges}
        return frozenset(named - {UNBORN})

    def target(self, state: str, verb: str) -> str:
        """Returns where `verb` leads from `state`; raises Illegal when there is no such edge."""
        for origin, name, to in self.edges:
            if origin == state and name == verb:
                return to
        raise Illegal(
            f"{self.table}: cannot {verb} from {state or 'nothing'}.",
            code="illegal_transition",
            hint="Read the present state and choose one of its moves.",
            state=state,
            verb=verb,
        )
