"""Makes pages: the templates, and the filters through which everything that people or agents wrote has to go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import jinja2
from markupsafe import Markup

from stationmaster.clock import MICROS, from_iso, iso

# What is not seen, or turns what is around it about; joiners and variation marks belong to scripts and emoji.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff]"
)
LONGEST = 4000
_TENTHS_BELOW_S = 10


def harmless(text: object) -> str:
    """Returns text in which every character that hides or reorders others is spelled out."""
    return _UNSEEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", str(text).replace("\r\n", "\n"))


def person(text: object) -> Markup:
    """Marks words of others: they cannot change the direction of what is around them."""
    return Markup("<bdi>{}</bdi>").format(harmless(text))


def cut(text: object, longest: int = LONGEST) -> str:
    """Returns the begin of a text."""
    whole = str(text)
    return whole if len(whole) <= longest else whole[:longest] + "…"


def moment(at: int | str | None) -> Markup:
    """Shows a time, given in microseconds or as text, to the second, in UTC."""
    if at is None:
        return Markup("-")
    micros = from_iso(at) if isinstance(at, str) else at
    shown = datetime.fromtimestamp(micros / MICROS, UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        iso(micros), iso(micros), f"{shown:%Y-%m-%d %H:%M:%S}"
    )


def span(micros: float | None) -> str:
    """Words how long something lasted, in its largest two units."""
    if micros is None:
        return "-"
    seconds = max(0, int(micros)) / MICROS
    if seconds < _TENTHS_BELOW_S:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for size, unit, smaller, name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit} {rest} {name}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def number(value: object) -> str:
    """Writes a number with spaces between its thousands."""
    return f"{value:,}".replace(",", "\u202f") if isinstance(value, int) else str(value)


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("stationmaster.control.console", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "person": person,
        "cut": cut,
        "moment": moment,
        "span": span,
        "harmless": harmless,
        "number": number,
    }
    return made


_templates = _environment()


def page(template: str, context: Mapping[str, Any]) -> str:
    """Renders a template."""
    return _templates.get_template(template).render(context)
