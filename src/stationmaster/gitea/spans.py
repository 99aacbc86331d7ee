"""Reads one repository from where it was read to, span of time by span of time, and admits what asks something.

A cursor moves only after everything up to it was admitted: a crash in between reads again, and the content key keeps
what was taken from being taken twice. Bounds are the forge's own times. The latest moments are left to the deliveries
that may be on their way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import structlog

from stationmaster import faults
from stationmaster.clock import MICROS, from_iso, iso
from stationmaster.command import Cmd, LedgerPort
from stationmaster.errors import Stale, StationmasterError, Unavailable
from stationmaster.gitea import codes, found, intake, looks, watch
from stationmaster.gitea.client import Forge, RepoRef, TooMany
from stationmaster.gitea.found import Words
from stationmaster.gitea.intake import Taken
from stationmaster.gitea.looks import Look
from stationmaster.gitea.normalise import Normalised, Repo, Rules, Unusable, repo_key
from stationmaster.gitea.settings import GiteaSettings
from stationmaster.gitea.watch import Part, Watch
from stationmaster.gitea.wire import CommentRow, Issue
from stationmaster.ledger.tx import Tx

Reason = Literal["start", "outage", "timer", "asked", "look"]

# What is read before anything of it is admitted; a longer span is cut in two.
_MOST_ROWS = 500
_NO_LIMIT = 10_000_000
_MOST_TRIES = 3
_MOST_RIVALS = 10

R = TypeVar("R")

_log = structlog.get_logger("stationmaster.gitea")


@dataclass(slots=True)
class Tally:
    """What a reading came to."""

    found: int = 0
    taken: int = 0


@dataclass(frozen=True, slots=True)
class Desk:
    """What a reading works with; `check` is called before each request and stops the reading by raising."""

    port: LedgerPort
    forge: Forge
    settings: GiteaSettings
    rules: Rules
    check: Callable[[], Awaitable[None]]
    wake: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Gap:
    """A time of which nothing had been read, by the forge's clock, and what was in it."""

    instance_id: str
    native_id: int
    repo_key: str
    part: Part
    since: int
    until: int
    found: int
    taken: int
    reason: Reason


class Reading:
    """One repository that is being read; `repo` is as the forge has it now."""

    def __init__(self, desk: Desk, repo: Repo, watched: Watch, reason: Reason) -> None:
        self.tally = Tally()
        self._desk = desk
        self._repo = repo
        self._ref = RepoRef(repo.owner, repo.name, repo.id)
        self._watched = watched
        self._reason = reason
        self._instance = desk.rules.instance_id

    async def all(self, until: int) -> None:
        """Reads everything that changed up to a time: texts and reviews first, then the comments on them."""
        await self._part("issues", until)
        await self._part("comments", until)

    async def look(self, wishes: list[Look]) -> None:
        """Reads one issue or pull request of which an event said too little."""
        kind, number = wishes[0].kind, wishes[0].number
        floor, _ = await self._floor("issues")
        if kind == "pull_request":
            await self._take(await self._said_in_reviews(number, floor, None))
        else:
            issue = await self._desk.forge.get_issue(self._ref, number)
            words = self._readable(found.of_issue, issue)
            await self._take([words] if words is not None and words.created_at >= floor else [])
        cmd = Cmd("look.done", "system", f"look:{wishes[0].id}", refs=self._refs())
        await self._desk.port.do(cmd, _look_done, wishes, self.tally)

    # --- spans ---

    async def _floor(self, part: Part) -> tuple[int, int]:
        """Returns from when on something counts as new, and where the cursor stands."""
        at = await self._desk.port.read(watch.read_to, self._instance, self._watched.native_id, part)
        at = self._watched.began_at if at is None else at
        overlap = int(self._desk.settings.catchup.overlap_s * MICROS)
        return max(at - overlap, self._watched.began_at), at

    async def _part(self, part: Part, until: int) -> None:
        floor, cursor = await self._floor(part)
        lower = floor
        while lower <= until:
            rows, upper = await self._span(part, lower, until)
            before = self.tally.taken
            await self._take(await self._new_words(rows, floor, until))
            newest = max((_changed_at(row) for row in rows), default=0)
            fresh = sum(1 for row in rows if _changed_at(row) > cursor)
            self.tally.found += fresh
            cursor = await self._move(part, cursor, newest, fresh, self.tally.taken - before)
            if upper >= until:
                break
            lower = upper

    async def _span(self, part: Part, lower: int, upper: int) -> tuple[list[CommentRow] | list[Issue], int]:
        """Returns the rows of a span that begins at `lower`, and where it ends: earlier when there are too many."""
        tries = 0
        while True:
            most = _MOST_ROWS if upper - lower > MICROS else _NO_LIMIT
            await self._desk.check()
            try:
                if part == "comments":
                    return await self._desk.forge.list_changed_comments(self._ref, lower, upper, most=most), upper
                return await self._desk.forge.list_changed_issues(self._ref, lower, upper, most=most), upper
            except TooMany:
                upper = lower + (upper - lower) // 2
            except Unavailable as error:
                # Somebody changed or removed something between two pages: the span has other rows now.
                tries += 1
                if error.code != codes.FORGE_PARTIAL or tries >= _MOST_TRIES:
                    raise

    async def _move(self, part: Part, cursor: int, newest: int, fresh: int, taken: int) -> int:
        """Moves the cursor, and records the gap that was closed when there was one."""
        if taken:
            faults.point("catchup.admitted")
        to = max(cursor, newest)
        if taken or (fresh and self._reason != "timer"):
            gap = _Gap(self._instance, self._repo.id, self._key, part, cursor, to, fresh, taken, self._reason)
            cmd = Cmd("catchup.gap", "system", "tick:catchup", refs=self._refs())
            await self._desk.port.do(cmd, _close_gap, gap)
        elif to > cursor:
            await self._desk.port.hot(watch.move, self._instance, self._repo.id, part, to)
        return to

    # --- what was said ---

    async def _new_words(self, rows: list[CommentRow] | list[Issue], floor: int, until: int) -> list[Words]:
        """Returns what was written since `floor`, and comments that were changed since then."""
        new: list[Words] = []
        for row in rows:
            if isinstance(row, CommentRow):
                words = self._readable(found.of_comment, row)
                # What is older than the watch is left alone whoever touches it now.
                if words is not None and words.created_at >= self._watched.began_at:
                    new.append(found.edited(words))
                continue
            words = self._readable(found.of_issue, row)
            if words is not None and words.created_at >= floor:
                new.append(words)
            if row.is_pull:
                new += await self._said_in_reviews(row.number, floor, until)
        return sorted(new, key=lambda words: (words.created_at, words.native_id))

    async def _said_in_reviews(self, number: int, floor: int, until: int | None) -> list[Words]:
        """Returns what reviews of a pull request and their remarks on code said within a time."""
        said: list[Words] = []
        await self._desk.check()
        for review in await self._desk.forge.list_reviews(self._ref, number):
            words = self._readable(partial(found.of_review, number=number), review)
            if words is None:
                continue
            said.append(words)
            if review.comments_count == 0:
                continue
            await self._desk.check()
            for remark in await self._desk.forge.list_review_comments(self._ref, number, review.id):
                read = self._readable(partial(found.of_remark, number=number, review=words), remark)
                said += [] if read is None else [read]
        return [each for each in said if each.created_at >= floor and (until is None or each.created_at <= until)]

    def _readable(self, read: Callable[[R], Words | None], row: R) -> Words | None:
        try:
            return read(row)
        except Unusable as problem:
            _log.warning("catchup.unreadable", repository=self._key, problem=problem.message)
            return None

    async def _take(self, said: list[Words]) -> None:
        for words in said:
            asked = found.asks(words, self._desk.rules)
            if asked is None or await self._known(words):
                continue
            whole = await self._whole(words, asked)
            if whole is not None:
                self.tally.taken += await self._admit(whole)

    async def _known(self, words: Words) -> bool:
        if words.origin == "pull":
            return False
        return await self._desk.port.read(watch.known, self._instance, words.origin, words.native_id)

    async def _whole(self, words: Words, asked: str) -> Normalised | None:
        await self._desk.check()
        try:
            return await found.complete(self._desk.forge, self._ref, self._repo, words, asked, self._desk.rules)
        except Unusable as problem:
            _log.warning("catchup.unreadable", repository=self._key, problem=problem.message)
        except StationmasterError as error:
            # The issue is gone with everything on it; whatever else fails, fails the reading.
            if error.code != codes.FORGE_NOT_FOUND:
                raise
        return None

    async def _admit(self, said: Normalised) -> bool:
        refs = {**self._refs(), "delivery": said.delivery_id, "resource": said.resource_key}
        cmd = Cmd("reading.take", f"gitea:user:{said.actor.login}", "tick:catchup", refs=refs)
        for _ in range(_MOST_RIVALS):
            try:
                taken = await self._desk.port.do(cmd, take, said, self._desk.settings)
            except Stale:
                # A delivery took the same, or the same conversation, at this very moment.
                continue
            if taken:
                self._desk.wake()
            return taken
        raise Unavailable("What was found lost against deliveries every time.", code=codes.STORE_UNAVAILABLE)

    @property
    def _key(self) -> str:
        return repo_key(self._instance, self._repo.owner, self._repo.name)

    def _refs(self) -> dict[str, str]:
        return {"repo": self._key}


def take(tx: Tx, said: Normalised, settings: GiteaSettings) -> bool:
    """Admits what was found unless it is known in any wording; tells whether anything began by it."""
    if watch.known(tx, said.instance_id, said.origin, said.comment.id):
        return False
    try:
        taken = intake.admit(tx, said, settings)
    except intake.RepositoryDisabled:
        return False
    if taken.how == "known":
        return False
    about = {"comment": str(said.comment.id)} | ({"task": taken.task.id} if isinstance(taken, Taken) else {})
    tx.event("reading.accept", refs=about, author=said.comment.author_login, origin=said.origin)
    return True


def _close_gap(tx: Tx, gap: _Gap) -> None:
    watch.move(tx, gap.instance_id, gap.native_id, gap.part, gap.until)
    watch.gap_closed(tx, gap.instance_id, gap.repo_key, since=gap.since, until=gap.until, taken=gap.taken)
    tx.event(
        "catchup.gap",
        part=gap.part,
        since=iso(gap.since),
        until=iso(gap.until),
        found=gap.found,
        taken=gap.taken,
        reason=gap.reason,
    )


def _look_done(tx: Tx, wishes: list[Look], tally: Tally) -> None:
    looks.done(tx, wishes)
    tx.event("look.done", looks=[look.id for look in wishes], taken=tally.taken)


def _changed_at(row: CommentRow | Issue) -> int:
    try:
        return from_iso(row.updated_at)
    except (ValueError, OverflowError):
        return 0
