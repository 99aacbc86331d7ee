"""Pictures as inline SVG, from rows: how long a task was in which state, where it stands, what the last day brought.

No picture carries a style of its own: colours are classes of the stylesheet, and what a colour tells a text tells too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from stationmaster.machine import Machine

Label = Callable[[str], str]

# Where each state of a task stands: column and row of the picture.
_PLACES: Mapping[str, tuple[int, int]] = {
    "queued": (0, 1),
    "preparing": (1, 1),
    "running": (2, 1),
    "verifying_reply": (3, 1),
    "succeeded": (4, 0),
    "succeeded_with_rest_fallback": (4, 1),
    "failed_reply": (4, 2),
    "retry_wait": (1, 0),
    "waiting_user": (2, 0),
    "blocked_workspace": (1, 2),
    "aborting": (2, 2),
    "cancelled": (0, 3),
    "failed": (3, 3),
    "aborted": (2, 3),
}
_WIDE, _HIGH, _GAP_X, _GAP_Y = 136, 38, 44, 34
_PAD = 8
_BARS_HIGH = 72
_BAR_WIDE = 12
_STACK = ("good", "open", "bad")


def bar(begin: float, end: float, kind: str) -> Markup:
    """Draws when within a whole, from 0 to 1, something lasted; `kind` is the class of its colour."""
    left, right = (max(0.0, min(1.0, each)) * 100 for each in (begin, end))
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
        '<rect class="bar-all" width="100" height="8"/>'
        '<rect class="{}" x="{}" width="{}" height="8"/></svg>'
    ).format(kind, f"{min(left, 99.0):.2f}", f"{max(right - left, 1.0):.2f}")


def hours(counted: Sequence[Mapping[str, Any]], title: str, label: Callable[[Mapping[str, Any]], str]) -> Markup:
    """Draws counts by the hour, stacked by how they came out, zero-based; each bar says its numbers."""
    most = max([sum(int(row[name]) for name in _STACK) for row in counted] or [0])
    whole = len(counted) * (_BAR_WIDE + 2)
    parts = [
        Markup('<svg class="hours" viewBox="0 0 {} {}" role="img"><title>{}</title>').format(
            whole, _BARS_HIGH + 2, title
        )
    ]
    for at, row in enumerate(counted):
        top = float(_BARS_HIGH)
        parts.append(Markup("<g><title>{}</title>").format(label(row)))
        parts.append(
            Markup('<rect class="hour-all" x="{}" y="0" width="{}" height="{}"/>').format(
                at * (_BAR_WIDE + 2), _BAR_WIDE, _BARS_HIGH
            )
        )
        for name in _STACK:
            high = _BARS_HIGH * int(row[name]) / most if most else 0.0
            top -= high
            if high:
                parts.append(
                    Markup('<rect class="is-{}" x="{}" y="{}" width="{}" height="{}"/>').format(
                        name, at * (_BAR_WIDE + 2), f"{top:.2f}", _BAR_WIDE, f"{high:.2f}"
                    )
                )
        parts.append(Markup("</g>"))
    base = Markup('<line class="base" x1="0" x2="{}" y1="{}" y2="{}"/></svg>').format(whole, _BARS_HIGH, _BARS_HIGH)
    return Markup("").join([*parts, base])


def states(machine: Machine, current: str, visited: Sequence[str], title: str, label: Label) -> Markup:
    """Draws the states of a task, the way that it went, and where it can go from here.

    `visited` are the states in the order in which it was in them. The present one is framed, not only coloured.
    """
    went = set(itertools.pairwise(visited))
    columns = 1 + max(column for column, _ in _PLACES.values())
    rows = 1 + max(row for _, row in _PLACES.values())
    wide, high = (
        2 * _PAD + columns * _WIDE + (columns - 1) * _GAP_X,
        2 * _PAD + rows * _HIGH + (rows - 1) * _GAP_Y,
    )
    parts = [
        Markup(
            '<svg class="states" viewBox="0 0 {} {}" role="img"><title>{}</title><defs>'
            '<marker id="tip" viewBox="0 0 8 8" '
            'refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
            '<path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>'
        ).format(wide, high, title)
    ]
    drawn: set[tuple[str, str]] = set()
    for begin, _verb, end in machine.edges:
        gone, way = (begin, end) in went, (begin, end)
        shown = begin in _PLACES and end in _PLACES and begin != end and way not in drawn
        if shown and (gone or begin == current):
            drawn.add(way)
            parts.append(_way(begin, end, "way gone" if gone else "way"))
    for state in _PLACES:
        kind = "now" if state == current else "seen" if state in visited else "other"
        parts.append(_box(state, kind, label(state)))
    return Markup("").join([*parts, Markup("</svg>")])


def _corner(state: str) -> tuple[int, int]:
    column, row = _PLACES[state]
    return _PAD + column * (_WIDE + _GAP_X), _PAD + row * (_HIGH + _GAP_Y)


def _box(state: str, kind: str, text: str) -> Markup:
    x, y = _corner(state)
    return Markup(
        '<g class="state is-{}"><rect x="{}" y="{}" width="{}" height="{}" rx="7"/>'
        '<text x="{}" y="{}" text-anchor="middle">{}</text></g>'
    ).format(kind, x, y, _WIDE, _HIGH, x + _WIDE // 2, y + _HIGH // 2 + 4, escape(text))


def _way(begin: str, end: str, kind: str) -> Markup:
    (x1, y1), (x2, y2) = _corner(begin), _corner(end)
    if x1 == x2:
        # From one edge to the other, above one another.
        middle = x1 + _WIDE // 2
        down = y2 > y1
        x1 = x2 = middle + (10 if down else -10)
        y1, y2 = (y1 + _HIGH, y2) if down else (y1, y2 + _HIGH)
    else:
        right = x2 > x1
        x1, x2 = (x1 + _WIDE, x2) if right else (x1, x2 + _WIDE)
        aside = 5 if right else -5
        y1, y2 = y1 + _HIGH // 2 + aside, y2 + _HIGH // 2 + aside
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}" marker-end="url(#tip)"/>').format(
        kind, x1, y1, x2, y2
    )
