"""The channel of our comments: how one is posted, and how it is known again.

A comment is known by its hidden mark and the bot's id, never by its words (GW-R-136, GW-R-165).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stationmaster.command import Cmd
from stationmaster.errors import StationmasterError
from stationmaster.gitea import actions, client, codes, marker, parts, store, wire
from stationmaster.gitea.client import explain
from stationmaster.gitea.gear import Gear
from stationmaster.gitea.machine import COMMENT, TASK
from stationmaster.gitea.model import LEASE_KIND, Comment, Note, Task
from stationmaster.ledger.tx import Reader, Tx
from stationmaster.outbox.channel import Absent, Done, Found, Outcome, Refused, Seen, State, Unknown, Unreadable
from stationmaster.outbox.tries import Try

_MOST_SENDS = 2
_ANSWERS = frozenset({"mcp_final", "rest_fallback"})
# With these the forge has answered: whatever it did, it has done.
_ANSWERED = frozenset({codes.FORGE_ERROR, codes.FORGE_BAD_ANSWER, codes.FORGE_TOO_LARGE})


@dataclass(frozen=True, slots=True)
class Posting:
    """A comment of ours with its task and its text."""

    comment: Comment
    task: Task
    body: str
    # The answer that this one continues.
    answer: Comment | None = None

    @property
    def id(self) -> str:
        """The commentKey."""
        return self.comment.id

    @property
    def state(self) -> State:
        """Where it is in its life (GW-R-138)."""
        return self.comment.state

    @property
    def rev(self) -> int:
        """Its revision."""
        return self.comment.rev

    @property
    def term(self) -> int | None:
        """The term it was written under: start receipts and answers have one."""
        return self.comment.term

    @property
    def is_answer(self) -> bool:
        """Tells whether it ends a task's conversation; otherwise it is a receipt or a question."""
        return self.comment.kind in _ANSWERS


class CommentChannel:
    """Posts and proves comments on one forge."""

    action = "comment"
    lost = codes.REST_FALLBACK_UNCONFIRMED

    def __init__(self, gear: Gear) -> None:
        self._gear = gear
        self.settle_s = gear.settings.settle_s

    def load(self, reader: Reader, key: str) -> Posting:
        """Returns a comment that is known to exist."""
        comment = store.comment(reader, key)
        assert comment is not None, f"BUG: no comment {key}"  # noqa: S101 - whoever asks has intended it
        continued = parts.answer_of(key)
        answer = None if continued is None else store.comment(reader, continued)
        return Posting(comment, store.task(reader, comment.task_id), store.comment_body(reader, key), answer)

    def command(self, row: Posting, name: str) -> Cmd:
        """Makes a command about a comment, with everything that leads to it (GW-R-229)."""
        cmd = actions.command(name, row.task, f"comment:{row.id}")
        return Cmd(cmd.name, cmd.actor, cmd.cause, refs={**cmd.refs, **_refs(row)})

    def lease_of(self, row: Posting) -> tuple[str, str]:
        """Returns the lease whose term a comment may carry."""
        return LEASE_KIND, row.comment.repository_id

    def barred(self, row: Posting) -> str | None:
        """Returns why a comment must not be sent any more: what it would say is no longer so."""
        state = row.task.state
        if row.answer is not None:
            return codes.INVALID_STATE if row.answer.state == "failed" else None
        if row.comment.kind == "status":
            # A start receipt says that work begins.
            starting = row.id == actions.status_key(row.task.id, "running")
            return codes.INVALID_STATE if starting and state in TASK.terminal else None
        fits = {"running", "waiting_user"} if row.comment.kind == "question" else {"running", "verifying_reply"}
        return None if state in fits else codes.INVALID_STATE

    def again(self, row: Posting, tries: list[Try]) -> bool:
        """Tells whether a comment that is proven absent may be sent a second time (GW-R-174, GW-R-188).

        An answer never is after an unknown outcome; a fallback is when whoever sent it died over it.
        """
        if row.is_answer:
            died = all(each.outcome is None for each in tries)
            return row.comment.kind == "rest_fallback" and died and len(tries) < _MOST_SENDS
        return len(tries) < _MOST_SENDS

    def keeps(self, row: Posting) -> bool:
        """Tells whether the verification of its task decides about an absent comment."""
        return row.is_answer and row.task.state not in TASK.terminal

    def grace_s(self, code: str | None) -> float:
        """Returns how long after a try the comment may still appear."""
        return grace_s(self._gear, code)

    def deliver(self, tx: Tx, row: Posting, native: Any) -> None:
        """Notes that the forge took it."""
        tx.move(COMMENT, row.id, "deliver", rev=row.rev, native_id=native, updated_at=tx.now)
        tx.event("comment.sent", refs={"comment": str(native)}, key=row.id)

    def confirm(self, tx: Tx, row: Posting, found: Found) -> None:
        """Notes the proof, and what else carries the same mark (GW-R-138, GW-R-176)."""
        confirm(tx, row.comment, found)

    def fail(self, tx: Tx, row: Posting, code: str) -> None:
        """Notes that it is not there and will not come."""
        tx.move(COMMENT, row.id, "fail", rev=row.rev, error_code=code, updated_at=tx.now)
        tx.event("comment.failed", key=row.id, code=code)

    async def send(self, row: Posting) -> Outcome:
        """Posts it once."""
        return await post(self._gear, row.comment, row.body)

    async def read_back(self, row: Posting) -> Seen:
        """Looks for it among the bot's comments on its issue or pull request."""
        try:
            said = await bot_comments(self._gear, row.comment)
        except StationmasterError as error:
            return Unreadable(explain(error))
        return chosen([each.id for each in said if _is(each.body, row)], row.comment.native_id)


def grace_s(gear: Gear, code: str | None) -> float:
    """Returns how long after a try that ended with `code` a comment may still appear."""
    if code in _ANSWERED:
        return gear.settings.settle_s
    # Nobody heard the end of it: the request may be waiting at the forge as long as we would have waited for it.
    return 2 * gear.settings.forge_timeout_s + gear.settings.settle_s


async def post(gear: Gear, about: Comment | Note, body: str) -> Outcome:
    """Writes one comment where a row of ours says, once."""
    try:
        done = await gear.at(about.repository_id, lambda repo: gear.forge.create_comment(repo, about.number, body))
    except StationmasterError as error:
        # What a write raises means that nothing was written.
        return Unknown(explain(error), sent=False)
    if isinstance(done, client.Done):
        return Done(done.id)
    if isinstance(done, client.Refused):
        return Refused(done.code, done.message)
    return Unknown(done.reason, sent=done.sent)


def _is(body: str, row: Posting) -> bool:
    if not row.is_answer:
        return marker.is_receipt(body, comment_key=row.id)
    turns = [row.comment.run_id] if row.comment.run_id else []
    return marker.is_final(body, task_id=row.task.id, turns=turns, resource_key=row.comment.resource_key)


def chosen(ids: list[int], known: int | None) -> Seen:
    """Returns the one of several matching comments that counts: the one we were told of, else the first."""
    if not ids:
        return Absent()
    first = known if known in ids else min(ids)
    return Found(first, tuple(sorted(each for each in ids if each != first)))


async def bot_comments(gear: Gear, about: Comment | Task | Note) -> list[wire.Comment]:
    """Returns all that the bot said on an issue or pull request; raises unless the list is complete (GW-R-167).

    The forge is not asked for a part of it by time: where its clock differs from ours, a comment would seem absent that
    is there, and be posted again. Only this resource is asked, so a mark that was copied elsewhere never counts
    (GW-R-165).
    """
    number = int(about.resource_key.rsplit(":", 1)[1])
    bot = await gear.bot_id()
    rows = await gear.at(about.repository_id, lambda repo: gear.forge.list_issue_comments(repo, number))
    return [row for row in rows if row.author_id == bot]


def confirm(tx: Tx, comment: Comment, found: Found) -> None:
    """Moves a comment to `confirmed`; further comments with its mark change nothing (GW-R-176)."""
    tx.move(COMMENT, comment.id, "confirm", rev=comment.rev, native_id=found.native, error_code=None, updated_at=tx.now)
    tx.event("comment.confirmed", refs={"comment": str(found.native)}, key=comment.id)
    kind = "reply" if comment.kind in _ANSWERS else "comment"
    for native in found.also:
        tx.event(f"{kind}.duplicate_observed", refs={"comment": str(native)}, key=comment.id)


def _refs(row: Posting) -> dict[str, str]:
    about = {} if row.comment.run_id is None else {"turn": row.comment.run_id}
    return about if row.comment.native_id is None else {**about, "comment": str(row.comment.native_id)}
