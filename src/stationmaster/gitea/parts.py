"""Splits an answer that is too long for one comment; pure.

The first part is the answer: it carries the mark by which the answer is proven. The others are comments of their own,
posted once the first one stands; each says which part it is. What is longer than all parts together is cut, and the cut
says how much is missing.
"""

from __future__ import annotations

from stationmaster.gitea import marker

# Forges on MySQL keep 64 KiB of some texts; the host's lines and the mark need room too.
LONGEST = 60_000
MOST = 10
_PART = ":part:"


def split(body: str) -> tuple[str, ...]:
    """Returns the parts of an answer, each at most `LONGEST` characters beside its heading; a short one is one part."""
    if len(body) <= LONGEST:
        return (body,)
    pieces: list[str] = []
    rest = body
    while rest and len(pieces) < MOST:
        piece, rest = _first(rest)
        pieces.append(piece)
    if rest:
        pieces[-1] += f"\n\n(cut by the host: {len(rest)} more characters)"
    count = len(pieces)
    headed = [piece if n == 1 else f"(part {n} of {count})\n\n{piece}" for n, piece in enumerate(pieces, 1)]
    return (f"{headed[0]}\n\n(part 1 of {count}; the rest follows below)", *headed[1:])


def key(answer_key: str, number: int) -> str:
    """Returns the key of a further part of an answer."""
    return f"{answer_key}{_PART}{number}"


def answer_of(comment_key: str) -> str | None:
    """Returns the key of the answer that a comment continues, or None when it is no part."""
    answer, found, _ = comment_key.rpartition(_PART)
    return answer if found else None


def _first(text: str) -> tuple[str, str]:
    """Cuts one part off: at the end of a paragraph or line where there is one in its second half."""
    if len(text) <= LONGEST:
        return text, ""
    at = LONGEST
    for stop in ("\n\n", "\n", " "):
        found = text.rfind(stop, LONGEST // 2, LONGEST)
        if found > 0:
            at = found + len(stop)
            break
    piece, rest = text[:at], text[at:]
    fence = marker.open_fence(piece)
    if fence:
        # A code block goes on as one in the next part.
        return f"{piece.rstrip()}\n{fence}", f"{fence}\n{rest}"
    return piece.rstrip(), rest
