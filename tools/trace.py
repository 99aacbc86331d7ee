"""Which test cites which requirement: the ids live in comments of the tests, the texts in docs/requirements."""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ID = re.compile(r"\bGW-R-\d{3}\b")
_ABOVE = 3
# "GW-R-001…009" hides what it covers from every search; each id is written out.
RANGE = re.compile(r"GW-R-\d{3}\s*(?:[…\u2013\u2014-]|\.\.+|to\s)\s*(?:GW-R-)?\d")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement; `reason` says why no test proves it, when none does."""

    id: str
    section: str
    text: str
    reason: str


def requirements() -> list[Requirement]:
    """Reads docs/requirements/gitea.toml."""
    with (ROOT / "docs" / "requirements" / "gitea.toml").open("rb") as file:
        data = tomllib.load(file)
    reasons = data.pop("untested", {})
    listed = [
        Requirement(id=name, section=section, text=text, reason=reasons.pop(name, ""))
        for section, texts in data.items()
        for name, text in texts.items()
    ]
    if reasons:
        message = f"reasons for unknown requirements: {sorted(reasons)}"
        raise ValueError(message)
    return listed


@cache
def citations() -> dict[str, list[str]]:
    """Maps each id to the tests that cite it, as `path::test` or as a path when the whole file is meant."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not ID.search(text):
            continue
        spans = _spans(ast.parse(text))
        for number, line in enumerate(text.splitlines(), 1):
            for name in ID.findall(line):
                where = owner(spans, number)
                test = f"{path.relative_to(ROOT)}{'::' + where if where else ''}"
                tests = found.setdefault(name, [])
                if test not in tests:
                    tests.append(test)
    return found


def _spans(tree: ast.Module) -> list[tuple[int, int, str]]:
    """Lists first line, last line and name of each test; comments between two tests belong to the second."""
    spans: list[tuple[int, int, str]] = []
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    for node in functions:
        if node.name.startswith("test_"):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            spans.append((first, node.end_lineno or first, node.name))
    return sorted(spans)


def owner(spans: list[tuple[int, int, str]], line: int) -> str:
    """Names the test that a line belongs to, or nothing when it speaks for the file."""
    for first, last, name in spans:
        if first <= line <= last:
            return name
    # A comment right above a test (at most three lines) speaks for it; anything else speaks for the file.
    return next((name for first, _, name in spans if 0 < first - line <= _ABOVE), "")
