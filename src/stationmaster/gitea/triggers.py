"""What may start something: the kinds of places in which a mention counts, and the edits that bring one.

Of an edit only the mention counts that was not there before, in what the editor wrote themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from stationmaster.gitea import codes, mention, payload

Origin = Literal["comment", "issue", "pull", "review", "code_comment"]
Trigger = Literal["comment", "edit", "issue_body", "pull_body", "review", "code_comment"]

TRIGGERS: frozenset[Trigger] = frozenset(get_args(Trigger))
OF: Mapping[Origin, Trigger] = {
    "comment": "comment",
    "issue": "issue_body",
    "pull": "pull_body",
    "review": "review",
    "code_comment": "code_comment",
}


def edit_of_a_comment(read: payload.Payload, bot_login: str) -> bool:
    """Tells whether somebody changed their own comment to one that may mention the bot, which it did not before.

    What somebody else changes has neither its author's will nor its editor's name; a reading may still find it.
    """
    comment, sender = read.comment, read.sender
    own = comment is not None and comment.user is not None and sender is not None and comment.user.id == sender.id
    return own and _was_silent(read, bot_login)


def edit_of_a_text(read: payload.Payload, bot_login: str) -> bool:
    """Tells whether the text of an issue or pull request was changed, and did not mention the bot before."""
    return _was_silent(read, bot_login)


def _was_silent(read: payload.Payload, bot_login: str) -> bool:
    before = read.changes.body if read.changes is not None else None
    return read.action == "edited" and before is not None and mention.find(before.text, bot_login) is None


class Unasked(msgspec.Struct, frozen=True):
    """A comment that asks nothing of the bot, and the code that says why."""

    reason: str


def ask(body: str, bot_login: str) -> str | Unasked:
    """Returns what a comment asks of the bot (GW-R-055, GW-R-057); also for comments found by reading the forge."""
    found = mention.find(body, bot_login)
    if found is None:
        return Unasked(codes.NO_MENTION)
    return found.instruction or Unasked(codes.EMPTY_INSTRUCTION)
