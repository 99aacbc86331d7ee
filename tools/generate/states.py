"""docs/states.md: every machine as a diagram and a table."""

from __future__ import annotations

from stationmaster.machine import UNBORN, Machine
from tools.machines import machines

PATH = "states.md"

_HEAD = """# States

Generated from the machines (`machine.py` of each slice) by `make docs`; the guards inside the database are made from
the same tables.
"""


def render() -> str:
    """Returns the whole document."""
    return "\n".join([_HEAD, *(_section(machine) for machine in machines())])


def _section(machine: Machine) -> str:
    lines = [f"## {machine.table}", "", "```mermaid", "stateDiagram-v2"]
    lines += [f"    {origin or '[*]'} --> {to}: {verb}" for origin, verb, to in machine.edges]
    lines += [f"    {state} --> [*]" for state in sorted(machine.terminal)]
    lines += ["```", "", "| from | verb | to |", "|---|---|---|"]
    lines += [f"| {_name(origin)} | `{verb}` | {to} |" for origin, verb, to in machine.edges]
    moved = ", ".join(f"`{column}`" for column in sorted(machine.moved)) or "none"
    ends = ", ".join(sorted(machine.terminal)) or "none"
    return "\n".join([*lines, "", f"Ends: {ends}. Columns a move may change: {moved}.", ""])


def _name(state: str) -> str:
    return "(birth)" if state == UNBORN else state
