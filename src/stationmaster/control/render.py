"""Shows an answer to a person: tables for lists, `name: value` lines for the rest.

Texts of strangers (instructions, messages) are shown without control characters, so that they cannot move the cursor,
recolour the terminal or fake a line.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_CELL = 60
_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})


def text(value: Any) -> str:
    """Returns one line of harmless text."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={text(inner)}" for name, inner in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(text(inner) for inner in value) or "-"
    return "".join(" " if unicodedata.category(char) in _UNSEEN else char for char in str(value))


def table(rows: Sequence[Mapping[str, Any]], columns: Iterable[str] = ()) -> str:
    """Returns aligned columns with a heading; long cells are cut."""
    names = list(columns) or list(rows[0] if rows else ())
    if not rows:
        return "Nothing."
    cells = [[_cut(text(row.get(name))) for name in names] for row in rows]
    widths = [max(len(name), *(len(row[index]) for row in cells)) for index, name in enumerate(names)]
    lines = [names, *cells]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def aligned(rows: Iterable[Sequence[Any]]) -> str:
    """Returns rows in aligned columns without a heading; nothing is cut."""
    cells = [[text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def page(body: Any, columns: Mapping[str, Sequence[str]] | None = None) -> str:
    """Returns a whole answer: its plain values first, then a block for each object and a table for each list in it."""
    if not isinstance(body, Mapping):
        return text(body)
    chosen = columns or {}
    blocks = {name: value for name, value in body.items() if _is_table(value) or _is_object(value)}
    plain = [(name, value) for name, value in body.items() if name not in blocks]
    parts = [aligned(plain)] if plain else []
    for name, value in blocks.items():
        shown = page(value, chosen) if _is_object(value) else table(value, chosen.get(name, ()))
        parts.append(shown if len(body) == 1 else f"{name}:\n{shown}")
    return "\n\n".join(parts)


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, Mapping) for row in value)


def _cut(cell: str) -> str:
    return cell if len(cell) <= _CELL else cell[: _CELL - 1] + "…"
