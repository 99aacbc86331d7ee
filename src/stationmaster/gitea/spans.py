"""Reads one repository from where it was read to, span of time by span of time, and admits what asks something.

A cursor moves only after everything up to it was admitted: a crash in between reads again, and the content key keeps
what was taken from being taken twice. Where it stands is told by the forge's own times of change.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import structlog

from stationmaster import faults
from stationmaster.clock import MICROS, from_iso, iso
from stationmaster.command import Cmd, LedgerPort
from stationmaster.errors import NotFound, Stale, Unavailable
from stationmaster.gitea import closing, codes, found, intake, looks, watch
from stationmaster.gitea.client import Forge, RepoRef, TooMany
from stationmaster.gitea.closed_event import Closed
from stationmaster.gitea.found import Words
from stationmaster.gitea.intake import Taken
from stationmaster.gitea.looks import Look
from stationmaster.gitea.normalise import Normalised, Repo, Rules, Unusable, repo_key
from stationmaster.gitea.settings import GiteaSettings
from stationmaster.gitea.watch import Cursor, Part, Watch
from stationmaster.gitea.wire import CommentRow, Issue
from stationmaster.ledger.tx import Tx

Row = CommentRow | Issue
Reason = Literal["start", "outage", "timer", "asked", "look"]

# What is read before anything of it is admitted; a longer span is cut in two.
_MOST_ROWS = 500
_ONE_PAGE = 50
_NO_LIMIT = 10_000_000
_MOST_TRIES = 3
# Later than any change that the forge can show, whoever tells its time.
_AHEAD = 3_650 * 86_400 * MICROS
_LATELY = 120 * MICROS
_MOST_RIVALS = 10

R = TypeVar("R")
S = TypeVar("S")

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
    to: Cursor
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
        self._closed: list[Closed] = []

    async def all(self, now: int) -> None:
        """Reads all there is to read at a time of the forge: texts and reviews first, then the comments on them."""
        self._closed.clear()
        await self._part("issues", now)
        await self._part("comments", now)
        # What was asked before a close was perhaps only found now.
        await self._close()

    async def look(self, wishes: list[Look]) -> None:
        """Reads one issue or pull request of which an event said too little."""
        kind, number = wishes[0].kind, wishes[0].number
        floor = self._before((await self._cursor("issues")).new_from)
        words = self._readable(found.of_issue, await self._desk.forge.get_issue(self._ref, number))
        reworded = any(wish.reason.endswith(f".{looks.EDITED}") for wish in wishes)
        said = [words] if words is not None and (reworded or words.created_at >= floor) else []
        if kind == "pull_request":
            said += await self._said_in_reviews(number, floor)
        await self._take(said)
        cmd = Cmd("look.done", "system", f"look:{wishes[0].id}", refs=self._refs())
        await self._desk.port.do(cmd, _look_done, wishes, self.tally)

    # --- spans ---

    async def _cursor(self, part: Part) -> Cursor:
        at = await self._desk.port.read(watch.cursor, self._instance, self._watched.native_id, part)
        return at or Cursor(self._watched.began_at, self._watched.began_at)

    def _before(self, at: int) -> int:
        """Returns a time a little earlier, for what the forge dates early and shows late; never before the watch."""
        return max(at - int(self._desk.settings.catchup.overlap_s * MICROS), self._watched.began_at)

    async def _part(self, part: Part, now: int) -> None:
        cursor = await self._cursor(part)
        # What was written before was met by an earlier reading, whatever changed it since.
        floor = self._before(cursor.new_from)
        # The latest moments are left to the deliveries that may be on their way.
        until = now - int(self._desk.settings.catchup.settle_s * MICROS)
        async for rows, last in self._spans(part, self._before(cursor.read_to), now):
            before = self.tally.taken
            await self._take(await self._new_words(rows, floor, until))
            await self._close()
            newest = min(until, max((_changed_at(row) for row in rows), default=0))
            fresh = sum(1 for row in rows if cursor.read_to < _changed_at(row) <= until)
            self.tally.found += fresh
            to = max(cursor.read_to, newest)
            moved = Cursor(to, to if last else cursor.new_from)
            await self._move(part, cursor, moved, fresh, self.tally.taken - before)
            cursor = moved

    async def _spans(self, part: Part, lower: int, now: int) -> AsyncIterator[tuple[list[Row], bool]]:
        """Yields the rows that changed from `lower` on, span after span, and whether they are the last.

        One page is one moment of the forge. More are read up to a moment that is over, in which nothing can appear any
        more, and then from there on: what changes while we read is met at the end.
        """
        end = now + _AHEAD
        try:
            page = await self._rows(part, lower, end, _ONE_PAGE)
        except TooMany:
            page = None
        if page is not None:
            yield page, True
            return
        over = now - _LATELY
        while lower < over:
            rows, lower = await self._piece(part, lower, over)
            yield rows, False
        yield await self._rows(part, lower, end, _NO_LIMIT), True

    async def _piece(self, part: Part, lower: int, upper: int) -> tuple[list[Row], int]:
        """Returns the rows of a span that begins at `lower`, and where it ends: earlier when there are too many."""
        while True:
            most = _MOST_ROWS if upper - lower > MICROS else _NO_LIMIT
            try:
                return await self._rows(part, lower, upper, most), upper
            except TooMany:
                upper = lower + (upper - lower) // 2

    async def _rows(self, part: Part, lower: int, upper: int, most: int) -> list[Row]:
        forge, tries = self._desk.forge, 0
        while True:
            await self._desk.check()
            try:
                if part == "comments":
                    return [*await forge.list_changed_comments(self._ref, lower, upper, most=most)]
                return [*await forge.list_changed_issues(self._ref, lower, upper, most=most)]
            except Unavailable as error:
                # Somebody changed or removed something between two pages: the span has other rows now.
                tries += 1
                if error.code != codes.FORGE_PARTIAL or tries >= _MOST_TRIES:
                    raise

    async def _move(self, part: Part, cursor: Cursor, to: Cursor, fresh: int, taken: int) -> None:
        """Moves the cursor, and records the gap that was closed when there was one."""
        if taken:
            faults.point("catchup.admitted")
        if taken or (fresh and self._reason != "timer"):
            gap = _Gap(self._instance, self._repo.id, self._key, part, cursor.read_to, to, fresh, taken, self._reason)
            cmd = Cmd("catchup.gap", "system", "tick:catchup", refs=self._refs())
            await self._desk.port.do(cmd, _close_gap, gap)
        elif to != cursor:
            await self._desk.port.hot(watch.move, self._instance, self._repo.id, part, to)

    # --- what was said ---

    async def _new_words(self, rows: list[Row], floor: int, until: int) -> list[Words]:
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
            shut = self._readable(partial(found.closed, native_id=self._repo.id, instance_id=self._instance), row)
            self._closed += [] if shut is None else [shut]
            if row.is_pull:
                new += await self._said_in_reviews(row.number, floor)
        ripe = [words for words in new if words.updated_at <= until]
        return sorted(ripe, key=lambda words: (words.created_at, words.native_id))

    async def _said_in_reviews(self, number: int, floor: int) -> list[Words]:
        """Returns what reviews of a pull request and their remarks on code said since a time."""
        said: list[Words] = []
        await self._desk.check()
        try:
            reviews = await self._desk.forge.list_reviews(self._ref, number)
        except NotFound:
            await self._still_there()
            return []
        for review in reviews:
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
        return [each for each in said if each.created_at >= floor]

    async def _still_there(self) -> None:
        """Raises NotFound when it is the repository that is gone or hidden: then nothing of it counts as read."""
        await self._desk.check()
        await self._desk.forge.get_repository(self._ref)

    async def _close(self) -> None:
        """Stops what was asked on what is closed, before the close; a repeat finds nothing left to stop."""
        for shut in self._closed:
            cmd = Cmd("reading.close", "system", "tick:catchup", refs=self._refs())
            if await self._desk.port.do(cmd, closing.close, shut, self._desk.settings):
                self._desk.wake()

    def _readable(self, read: Callable[[R], S | None], row: R) -> S | None:
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
        except NotFound:
            # The issue is gone with everything on it.
            await self._still_there()
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
    intake.one_at_a_time(tx, said)
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
    watch.move(tx, gap.instance_id, gap.native_id, gap.part, gap.to)
    until = gap.to.read_to
    watch.gap_closed(tx, gap.instance_id, gap.repo_key, since=gap.since, until=until, taken=gap.taken)
    tx.event(
        "catchup.gap",
        part=gap.part,
        since=iso(gap.since),
        until=iso(until),
        found=gap.found,
        taken=gap.taken,
        reason=gap.reason,
    )


def _look_done(tx: Tx, wishes: list[Look], tally: Tally) -> None:
    looks.done(tx, wishes)
    tx.event("look.done", looks=[look.id for look in wishes], taken=tally.taken)


def _changed_at(row: Row) -> int:
    try:
        return from_iso(row.updated_at)
    except (ValueError, OverflowError):
        return 0
