"""Decides whether a comment speaks to the bot, and what it asks (GW-R-055, GW-R-057).

Pure text; linear in the length of the comment whatever it holds. Code, quotations and HTML comments do not speak.
"""

# ruff: noqa: RUF001 - Chinese punctuation is meant

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

# ASCII classes on purpose: in `请@bot` the character before the mention is a word only for Unicode.
_BEFORE = r"(?<![A-Za-z0-9_@/])"
_AFTER = r"(?![A-Za-z0-9_-]|\.[A-Za-z0-9_])"

_LIST = r"(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]+){0,8}"
_QUOTE_LINE = re.compile(rf"[ \t]*{_LIST}>")
_FENCE_LINE = re.compile(rf"[ \t]*{_LIST}(`{{3,}}|~{{3,}})(.*)", re.DOTALL)
_COMMENT_LINE = re.compile(rf"[ \t]*{_LIST}<!--")
_INLINE = re.compile(r"\\.|`+|<!--", re.DOTALL)
_TICKS = re.compile("`+")
_WITHIN_LINE = re.compile(r"[^\n]+")
_HIDDEN = re.compile(r"<!--(?:-?>|.*?(?:-->|\Z))", re.DOTALL)
_NEWLINE = re.compile(r"\r\n?")
_ADDRESS = re.compile(r"[ \t]*[:,;：，；、]?[ \t]*")
_BLANK_START = re.compile(r"[ \t]+")


@dataclass(frozen=True, slots=True)
class Mention:
    """A comment that speaks to the bot; `instruction` may be empty, then nothing is asked."""

    instruction: str


def live(text: str) -> str:
    """Returns `text`, equally long, with everything that does not speak replaced by blanks."""
    masked: list[str] = []
    at = 0
    for start, end in _spoken(text):
        masked.extend((_blank(text[at:start]), text[start:end]))
        at = end
    masked.append(_blank(text[at:]))
    return "".join(masked)


def spans(text: str, login: str) -> list[tuple[int, int]]:
    """Returns where `text` mentions `login`, in order."""
    if not login or f"@{login}".lower() not in text.lower():
        return []
    pattern = re.compile(f"{_BEFORE}@{re.escape(login)}{_AFTER}", re.IGNORECASE | re.ASCII)
    return [match.span() for match in pattern.finditer(live(text))]


def find(body: str, login: str) -> Mention | None:
    """Returns the mention of `login` in a comment with its instruction, or None.

    The first mention is the address and is taken out; later ones are part of what is said. A comment that holds
    nothing but mentions and hidden text asks nothing.
    """
    text = _NEWLINE.sub("\n", body)
    found = spans(text, login)
    if not found:
        return None
    if not _visible(text, found):
        return Mention("")
    start, end = found[0]
    return Mention(_without(text, start, end))


def _without(text: str, start: int, end: int) -> str:
    """Takes the address out, with the punctuation that only served it when it opened its line."""
    before, after = text[:start], text[end:]
    opens_line = not before.rpartition("\n")[2].strip()
    if opens_line:
        after = _ADDRESS.sub("", after, count=1)
    elif before[-1:] in (" ", "\t"):
        after = _BLANK_START.sub("", after, count=1)
    return (before + after).strip()


def _visible(text: str, mentions: list[tuple[int, int]]) -> bool:
    """Tells whether anything is left without the mentions, HTML comments and the punctuation of an address."""
    kept: list[str] = []
    at = 0
    for start, end in mentions:
        kept.append(text[at:start])
        at = end
    kept.append(text[at:])
    rest = _HIDDEN.sub("", "".join(kept))
    return bool(rest.strip(" \t\n:,;：，；、"))


def _blank(text: str) -> str:
    return _WITHIN_LINE.sub(lambda part: " " * len(part.group()), text)


def _spoken(text: str) -> Iterator[tuple[int, int]]:
    """Yields the parts that speak: paragraphs outside fences and quotations, without inline code and comments."""
    for start, end in _paragraphs(text):
        yield from _inline(text, start, end)


def _lines(text: str) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end + 1
        yield at, end
        at = end


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Yields runs of ordinary lines; a blank line, fence, quotation or block comment ends a run."""
    fence = ""
    hidden_to = 0
    run = -1
    for line_start, end in _lines(text):
        start = max(line_start, hidden_to)  # the rest of the line on which a block comment ended
        if start >= end:
            continue
        line = text[start:end].rstrip("\r\n")
        if fence:
            fence = "" if _closes(line, fence) else fence
            continue
        opened, comment = _opens(line), _COMMENT_LINE.match(line)
        if _ordinary(line) and not opened and not comment:
            run = start if run < 0 else run
            continue
        if run >= 0:
            yield run, start
        run, fence = -1, opened
        if comment:
            hidden_to = _comment_end(text, start + comment.end(), len(text))
            run = hidden_to if hidden_to < end else -1
    if run >= 0:
        yield run, len(text)


def _ordinary(line: str) -> bool:
    return bool(line.strip()) and not _QUOTE_LINE.match(line)


def _opens(line: str) -> str:
    match = _FENCE_LINE.match(line)
    if match is None or (match.group(1)[0] == "`" and "`" in match.group(2)):
        return ""
    return match.group(1)


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and not bare.strip(fence[0])


def _comment_end(text: str, opened: int, unclosed: int) -> int:
    # `<!-->` is a whole comment, so the end may share the opening's hyphens.
    end = text.find("-->", opened - 2)
    return unclosed if end < 0 else end + 3


def _inline(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    part = text[start:end]
    ticks: dict[int, list[int]] = {}
    for run in _TICKS.finditer(part):
        ticks.setdefault(len(run.group()), []).append(run.start())
    at = 0
    spoken = 0
    last_close = part.rfind("-->")
    while match := _INLINE.search(part, at):
        token = match.group()
        at = match.end()
        if token[0] == "\\":
            continue
        if token[0] == "`":
            positions = ticks.get(len(token), [])
            index = bisect_left(positions, at)
            close = positions[index] + len(token) if index < len(positions) else -1
        else:
            close = _comment_end(part, at, -1) if match.start() < last_close else -1
        if close >= 0:
            yield start + spoken, start + match.start()
            at = spoken = close
    yield start + spoken, end
