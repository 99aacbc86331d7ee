"""Finds every line that the product may log: its event, its level and the fields that stand beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "stationmaster"
LEVELS = ("debug", "info", "warning", "error", "exception")
# Of every line, or of how it is written.
_COMMON = {"exc_info"}


@dataclass(frozen=True, slots=True)
class Line:
    """One call of a log; `event` is None where it is no text of its own."""

    event: str | None
    level: str
    fields: tuple[str, ...]
    place: str


def lines() -> Iterator[Line]:
    """Yields every call of a module's `_log`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "_log." in text and "standins" not in path.parts:
            yield from _of(path, ast.parse(text))


def _of(path: Path, tree: ast.Module) -> Iterator[Line]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in LEVELS:
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "_log":
            first = node.args[0] if node.args else None
            event = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
            named = [word.arg for word in node.keywords if word.arg is not None and word.arg not in _COMMON]
            level = "error" if node.func.attr == "exception" else node.func.attr
            yield Line(event, level, tuple(named), path.relative_to(PACKAGE).as_posix())
