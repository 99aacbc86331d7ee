"""Hidden marks in our comments: how an answer or receipt of ours is known again without matching on its words.

A mark proves nothing by itself: anybody can copy one, so the author's id is always checked too (GW-R-165). Look for
marks only in text that came out of a JSON parser; raw payloads may escape the brackets.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, fields
from urllib.parse import quote, unquote

# A mark of ours is far shorter; the limits keep a hostile text from costing more than one pass.
_LONGEST = 4096
_MOST = 64
_START = re.compile(r"<!--[ \t\r\n]{0,8}ccweb(?=[ \t\r\n])", re.IGNORECASE)
_FENCE = re.compile(r"([ \t]*(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]+){0,8})(`{3,}|~{3,})(.*)")
_SAFE = ":/_.~"


@dataclass(frozen=True, slots=True)
class Mark:
    """The known attributes of one mark; an absent one is empty."""

    task_id: str = ""
    turn_id: str = ""
    resource_key: str = ""
    comment_key: str = ""


_ATTRIBUTES = {"taskId": "task_id", "turnId": "turn_id", "resourceKey": "resource_key", "commentKey": "comment_key"}


def _encode(value: str) -> str:
    # `--` must not occur inside an HTML comment, so every hyphen after a hyphen is escaped as well.
    return re.sub("(?<=-)-", "%2D", quote(value, safe=_SAFE))


def _write(mark: Mark) -> str:
    pairs = [f"{name}={_encode(getattr(mark, field))}" for name, field in _ATTRIBUTES.items() if getattr(mark, field)]
    return f"<!-- ccweb {' '.join(pairs)} -->"


def final(task_id: str, turn_ref: str, resource_key: str) -> str:
    """Writes the mark that ends a final answer (GW-R-163)."""
    return _write(Mark(task_id=task_id, turn_id=turn_ref, resource_key=resource_key))


def receipt(comment_key: str) -> str:
    """Writes the mark of a receipt or question (GW-R-136)."""
    return _write(Mark(comment_key=comment_key))


def _read(inside: str) -> Mark | None:
    found: dict[str, str] = {}
    for word in inside.split():
        name, equals, value = word.partition("=")
        field = _ATTRIBUTES.get(name) if equals else None
        if field is None:
            continue
        decoded = unquote(value)
        if found.setdefault(field, decoded) != decoded:
            return None
    return Mark(**found)


def marks(text: str) -> set[Mark | None]:
    """Returns the different marks in `text`; None stands for a mark that contradicts itself or for far too many."""
    found: set[Mark | None] = set()
    for count, start in enumerate(_START.finditer(text)):
        if count == _MOST:
            return {*found, None}
        end = text.find("-->", start.end(), start.end() + _LONGEST)
        if end >= 0:
            found.add(_read(text[start.end() : end]))
    return found


def only(text: str) -> Mark | None:
    """Returns the one mark of `text`; None without one, and None with two different ones (GW-R-163).

    A copy in a quotation or code block counts like any other: our own text is defused before it is posted, so a second
    mark was put there by somebody else, and then nothing is proven.
    """
    found = marks(text)
    return found.pop() if len(found) == 1 else None


def carried(text: str) -> bool:
    """Tells whether `text` contains any mark of ours, whole or broken."""
    return _START.search(text) is not None


def is_final(text: str, *, task_id: str, turns: Collection[str], resource_key: str) -> bool:
    """Tells whether `text` is the final answer of one of the accepted `turns` of a task (GW-R-165, GW-R-166)."""
    mark = only(text)
    return (
        mark is not None
        and mark.task_id == task_id
        and bool(mark.turn_id)
        and mark.turn_id in turns
        and mark.resource_key in ("", resource_key)
        and not mark.comment_key
    )


def is_receipt(text: str, *, comment_key: str) -> bool:
    """Tells whether `text` is the comment with this key."""
    mark = only(text)
    return mark is not None and mark == Mark(comment_key=comment_key)


def defuse(text: str) -> str:
    """Returns `text` with every mark in it made ordinary words: an agent must not be able to speak for another task."""
    return _START.sub("<!-- quoted ccweb", text)


def attach(text: str, mark: str) -> str:
    """Ends `text` with `mark`, after defusing what it holds and closing a code block that would show the mark."""
    body = closed(text)
    return f"{body}\n\n{mark}" if body else mark


def closed(text: str) -> str:
    """Returns `text` without marks, trailing blanks and an open code block: something can be written below it."""
    body = defuse(text).rstrip()
    return body + _closing(body)


def open_fence(text: str) -> str:
    """Returns the line that closes an open code block of `text` and could open it again; often empty."""
    return _closing(text).removeprefix("\n")


def _closing(text: str) -> str:
    """Returns the line that closes an open code block of `text`, indented as the block was opened; often empty."""
    fence = ""
    indent = listed = 0
    for line in text.split("\n"):
        bare = line.strip()
        if fence and bare and len(line) - len(line.lstrip()) < listed:
            fence = ""  # the list item that held the block has ended, and the block with it
        match = _FENCE.match(line)
        if match is None:
            continue
        before, run, rest = match.groups()
        if fence:
            closes = run[0] == fence[0] and len(run) >= len(fence) and not rest.strip() and not before.strip()
            fence = "" if closes else fence
        elif run[0] != "`" or "`" not in rest:  # "```a``` b" is inline code
            fence, indent = run, len(before)
            listed = indent if before.strip() else 0
    return f"\n{' ' * indent}{fence}" if fence else ""


assert {field.name for field in fields(Mark)} == set(_ATTRIBUTES.values())  # noqa: S101 - checked once, at import
