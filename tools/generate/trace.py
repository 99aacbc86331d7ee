"""docs/trace.md: every requirement with the tests that prove it, or the reason why none does."""

from __future__ import annotations

from itertools import groupby

from tools import trace

PATH = "trace.md"

_HEAD = """# Trace

Generated from docs/requirements and from the ids that tests cite, by `make docs`. {proven} of {total} requirements are
cited by a test, {reasoned} are not tested for the reason given, {open} are open.
"""
_OPEN = "not yet"


def render() -> str:
    """Returns the whole document."""
    cited = trace.citations()
    listed = trace.requirements()
    proven = sum(requirement.id in cited for requirement in listed)
    reasoned = sum(requirement.id not in cited and bool(requirement.reason) for requirement in listed)
    head = _HEAD.format(proven=proven, total=len(listed), reasoned=reasoned, open=len(listed) - proven - reasoned)
    parts = [head]
    for section, members in groupby(listed, key=lambda requirement: requirement.section):
        rows = [_row(requirement, cited.get(requirement.id, [])) for requirement in members]
        parts.append("\n".join([f"## {section}", "", "| id | requirement | proof |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def _row(requirement: trace.Requirement, tests: list[str]) -> str:
    proof = "<br>".join(f"`{test}`" for test in tests) or requirement.reason or _OPEN
    text = requirement.text.replace("|", "\\|")
    return f"| {requirement.id} | {text} | {proof} |"
