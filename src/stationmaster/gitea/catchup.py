"""Finds what no delivery brought: the forge sends each event once, and what is lost on the way nobody sends again.

One round reads every repository that the bot sees: at the start, when the forge answers again after it had not, on a
slow timer, and when an operator asks. Wishes to look at one pull request are met in between. Whoever holds the duty's
lease reads; a round that dies begins again at the next start, from the cursors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import structlog

from stationmaster.clock import MICROS, iso
from stationmaster.command import Cmd
from stationmaster.errors import Denied, NotFound, Stale, StationmasterError, Unavailable
from stationmaster.gitea import asked, codes, found, looks, store, watch
from stationmaster.gitea.asked import Ask
from stationmaster.gitea.client import Moved, RepoRef
from stationmaster.gitea.duty import Duty
from stationmaster.gitea.gear import Gear
from stationmaster.gitea.looks import Look
from stationmaster.gitea.normalise import Rules, Unusable, host_of
from stationmaster.gitea.spans import Desk, Reading, Reason, Tally
from stationmaster.gitea.watch import Watch
from stationmaster.gitea.wire import Repository
from stationmaster.ledger.tx import Reader, Tx

# The whole forge is away or wants rest; anything else may be about one repository.
_AWAY = frozenset({codes.FORGE_UNREACHABLE, codes.FORGE_TIMEOUT, codes.FORGE_RATE_LIMITED})
_MOST_TRIES = 3
_FIRST_REST_S = 2.0
_LONGEST_REST_S = 300.0
_AGAIN_AFTER_FAILURE_S = 60.0
_LEASE_TTL_S = 120.0
_ROWS_A_WRITE = 100
_KEEP_LOOKS_S = 7 * 86_400

_log = structlog.get_logger("stationmaster.gitea")


class _Closing(Exception):
    """Ends a reading because the daemon stops."""


@dataclass(slots=True)
class _Round:
    """One reading of all repositories that is under way."""

    reason: Reason
    since: int | None
    left: deque[int]
    asks: list[Ask] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    repositories: int = 0
    failed: int = 0
    again_soon: bool = False
    tries: dict[int, int] = field(default_factory=dict)


class Catchup:
    """The duty of one forge; `wake` is rung when a task was made."""

    def __init__(self, gear: Gear, *, wake: Callable[[], None] = lambda: None) -> None:
        self._gear = gear
        self._wake = wake
        self._instance = gear.settings.instance_id
        self._wanted: Reason = "start"
        self._due_at = 0
        self._rest_until = 0
        self._failures = 0
        self._returns = 0
        self._round: _Round | None = None
        self._closing = False
        at = gear.station
        self._duty = Duty(
            gear.port,
            f"gitea.catchup:{self._instance}",
            owner=at.worker_id,
            incarnation=at.incarnation,
            ttl_s=_LEASE_TTL_S,
        )

    async def tick(self, now: int) -> int:
        """Does one step: a wish, the beginning of a round, or one repository; 0 when there is nothing to do."""
        if self._closing or now < self._rest_until:
            return 0
        self._note_outage(now)
        wishes, asks = await self._gear.port.read(_waiting, self._instance)
        if self._round is None and not wishes and not asks and now < self._due_at:
            return 0
        return int(await self._worked(now, wishes, asks))

    async def _worked(self, now: int, wishes: list[Look], asks: list[Ask]) -> bool:
        try:
            if not await self._duty.on():
                return False
            await self._step(now, wishes, asks)
        except _Closing:
            return False
        except Stale as error:
            # Whoever took the lease over reads all that this round would have.
            _log.warning("catchup.lost", code=error.code, error=str(error))
            self._round = None
            return False
        except (Unavailable, Denied, NotFound) as error:
            await self._rest(now, error)
            return False
        else:
            self._failures = 0
            return True
        finally:
            if self._round is None or self._closing or self._rest_until > now:
                await self._duty.leave()

    def close(self) -> None:
        """Ends what is under way before its next request; the cursors know where to go on."""
        self._closing = True

    # --- when ---

    def _note_outage(self, now: int) -> None:
        if self._gear.forge.returns != self._returns and self._round is None:
            self._returns = self._gear.forge.returns
            self._wanted, self._due_at = "outage", now

    async def _rest(self, now: int, error: StationmasterError) -> None:
        """Leaves a forge alone that does not answer or refuses, each time for longer."""
        rest_s = min(_LONGEST_REST_S, _FIRST_REST_S * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        self._rest_until = now + int(rest_s * MICROS)
        _log.warning("catchup.postponed", code=error.code, error=str(error), again_in_s=rest_s)
        await self._gear.port.hot(watch.not_listed, self._instance, error.code)

    async def _step(self, now: int, wishes: list[Look], asks: list[Ask]) -> None:
        one = next((ask for ask in asks if ask.repo_key), None)
        if wishes:
            same = [each for each in wishes if _target(each) == _target(wishes[0])]
            await self._look(same)
        elif one is not None:
            await self._read_asked(one)
        elif self._round is None:
            everything = [ask for ask in asks if not ask.repo_key]
            reason: Reason = self._wanted if now >= self._due_at else "asked"
            self._round = await self._begin(now, reason, everything)
        else:
            await self._next(now, self._round)

    # --- a round ---

    async def _begin(self, now: int, reason: Reason, asks: list[Ask]) -> _Round:
        """Lists what the bot sees, and begins to watch what is new from when it was listed last."""
        port, forge = self._gear.port, self._gear.forge
        before = await port.read(watch.listing, self._instance)
        rows = await forge.list_repositories()
        at = forge.date or now
        seen = {row.id: (row.id, row.owner.name, row.name) for row in rows if not row.archived}
        began_at = self._began_at(before, at)
        new = list(seen.values())
        for first in range(0, len(new), _ROWS_A_WRITE):
            batch = new[first : first + _ROWS_A_WRITE]
            await port.hot(watch.begin, self._instance, batch, began_at)
        # Whatever was asked there once is read too, whether the bot is a member or not.
        hidden = {row.id for row in rows if row.archived}
        registered = [each for each in await port.read(_registered, self._instance) if each not in hidden]
        await port.hot(watch.listed, self._instance, at)
        self._returns = forge.returns
        since = None if before is None else before.forge_at
        return _Round(reason, since, deque(dict.fromkeys([*seen, *registered])), asks)

    def _began_at(self, before: watch.Listing | None, at: int) -> int:
        settings = self._gear.settings.catchup
        back = at - int(settings.first_look_back_s * MICROS)
        if before is None or before.forge_at is None:
            return back
        return min(back, before.forge_at - int(settings.overlap_s * MICROS))

    async def _next(self, now: int, under_way: _Round) -> None:
        if not under_way.left:
            await self._end(now, under_way)
            return
        native_id = under_way.left[0]
        try:
            await self._read(native_id, under_way.reason, under_way.tally)
            under_way.repositories += 1
        except (Unusable, NotFound) as error:
            # Gone, hidden from the bot now, or not one that can be worked in: that is no failure of the reading.
            await self._cannot(native_id, error.code)
        except Stale:
            raise
        except StationmasterError as error:
            if error.code in {*_AWAY, codes.FORGE_AUTH}:
                raise
            await self._failed(under_way, native_id, error)
        under_way.left.popleft()

    async def _failed(self, under_way: _Round, native_id: int, error: StationmasterError) -> None:
        """Lets the others go first; after some tries the repository waits for the next round."""
        tries = under_way.tries[native_id] = under_way.tries.get(native_id, 0) + 1
        await self._cannot(native_id, error.code)
        if isinstance(error, Unavailable) and tries < _MOST_TRIES:
            under_way.left.rotate(-1)
            raise error
        under_way.failed += 1
        under_way.again_soon = under_way.again_soon or isinstance(error, Unavailable)

    async def _cannot(self, native_id: int, code: str) -> None:
        _log.warning("catchup.unread", repository=native_id, code=code)
        await self._gear.port.hot(watch.looked, self._instance, native_id, code)

    async def _end(self, now: int, under_way: _Round) -> None:
        port, tally = self._gear.port, under_way.tally
        if under_way.reason != "timer" or under_way.asks:
            cmd = Cmd("catchup.done", "system", "tick:catchup")
            told: dict[str, Any] = {
                "instance": self._instance,
                "reason": under_way.reason,
                "repositories": under_way.repositories,
            }
            told["since"] = None if under_way.since is None else iso(under_way.since)
            await port.do(cmd, _done, under_way.asks, told, tally, under_way.failed)
        await port.hot(watch.round_done, self._instance, found=tally.found, taken=tally.taken, failed=under_way.failed)
        _log.info(
            "catchup.done",
            reason=under_way.reason,
            repositories=under_way.repositories,
            found=tally.found,
            taken=tally.taken,
            failed=under_way.failed,
        )
        await self._forget_looks()
        self._round = None
        if under_way.reason == "asked":
            return
        self._wanted = "timer"
        self._due_at = now + int(self._pause_s(under_way) * MICROS)

    def _pause_s(self, ended: _Round) -> float:
        settings = self._gear.settings.catchup
        if ended.again_soon:
            return min(settings.every_s, _AGAIN_AFTER_FAILURE_S)
        # What was too young to be read at the start would otherwise wait for the slow timer.
        return settings.every_s if ended.reason == "timer" else min(settings.every_s, settings.settle_s + 1)

    async def _forget_looks(self) -> None:
        now = await self._gear.port.read(_now)
        before = now - _KEEP_LOOKS_S * MICROS
        if await self._gear.port.read(looks.old, before):
            await self._gear.port.do(Cmd("retention.looks", "system", "tick:catchup"), looks.prune, before=before)

    # --- one repository ---

    async def _read(self, native_id: int, reason: Reason, tally: Tally) -> None:
        """Reads a repository from its cursors on, under the name that it has now."""
        watched = await self._gear.port.read(watch.of, self._instance, native_id)
        ref = None if watched is None else RepoRef(watched.owner, watched.name, native_id)
        for last in (False, True):
            seen = await self._repository(native_id, ref)
            reading = await self._reading(seen, reason)
            try:
                await reading.all(self._now_there())
                break
            except Moved as moved:
                if last:
                    raise Unavailable(moved.message, code=moved.code) from moved
                ref = None
            finally:
                tally.found += reading.tally.found
                tally.taken += reading.tally.taken
        await self._gear.port.hot(watch.looked, self._instance, native_id, None)

    def _now_there(self) -> int:
        at = self._gear.forge.date
        assert at is not None, "BUG: the forge has just answered"  # noqa: S101 - with its repository
        return at

    async def _repository(self, native_id: int, ref: RepoRef | None) -> Repository:
        """Returns a repository as the forge has it; its number decides, for another may have taken its name."""
        await self._check()
        if ref is not None:
            try:
                seen = await self._gear.forge.get_repository(ref)
                if seen.id == native_id:
                    return seen
            except (NotFound, Moved):
                pass
        return await self._gear.forge.get_repository_by_id(native_id)

    async def _reading(self, seen: Repository, reason: Reason) -> Reading:
        rules = await self._rules()
        repo = found.repo_of(seen, rules)
        watched = await self._watched(seen)
        gear = self._gear
        desk = Desk(gear.port, gear.forge, gear.settings, rules, self._check, self._wake)
        return Reading(desk, repo, watched, reason)

    async def _watched(self, seen: Repository) -> Watch:
        port = self._gear.port
        watched = await port.read(watch.of, self._instance, seen.id)
        if watched is None:
            before = await port.read(watch.listing, self._instance)
            assert self._gear.forge.date is not None, "BUG: the forge has just answered"  # noqa: S101 - with `seen`
            began_at = self._began_at(before, self._gear.forge.date)
            await port.hot(watch.begin, self._instance, [(seen.id, seen.owner.name, seen.name)], began_at)
            watched = await port.read(watch.of, self._instance, seen.id)
            assert watched is not None, "BUG: the watch was just begun"  # noqa: S101 - it was
        return watched

    async def _rules(self) -> Rules:
        settings = self._gear.settings
        hosts = frozenset(host for host in (host_of(settings.base_url),) if host)
        return Rules(hosts, settings.bot_login, await self._gear.bot_id(), self._instance, settings.triggers)

    # --- wishes ---

    async def _look(self, wishes: list[Look]) -> None:
        """Reads one pull request or issue, and calls the wishes done or puts them off."""
        port = self._gear.port
        try:
            seen = await self._repository(wishes[0].native_id, None)
            await (await self._reading(seen, "look")).look(wishes)
        except (Unusable, NotFound) as error:
            cmd = Cmd("look.done", "system", f"look:{wishes[0].id}")
            await port.do(cmd, _look_gone, wishes, error.code)
        except StationmasterError as error:
            if error.code == codes.LEASE_LOST:
                raise
            await port.hot(looks.later, wishes, error.code)
            if error.code in {*_AWAY, codes.FORGE_AUTH}:
                raise

    async def _read_asked(self, ask: Ask) -> None:
        """Reads one repository because an operator asks, and tells how that ended."""
        port, tally = self._gear.port, Tally()
        cmd = Cmd("catchup.done", "system", f"request:{ask.request_id}", refs={"request": ask.request_id})
        try:
            known = await port.read(watch.named, self._instance, ask.owner, ask.name)
            native_id = known.native_id if known else None
            if native_id is None:
                native_id = (await self._gear.forge.get_repository(RepoRef(ask.owner, ask.name))).id
            await self._read(native_id, "asked", tally)
        except Unusable as error:
            await port.do(cmd, asked.refuse, ask, NotFound(error.message, code=error.code))
        except NotFound as error:
            await port.do(cmd, asked.refuse, ask, error)
        except StationmasterError as error:
            if error.code in {*_AWAY, codes.FORGE_AUTH, codes.LEASE_LOST}:
                raise
            _log.warning("catchup.unread", repository=ask.repo_key, code=error.code)
            await port.do(cmd, asked.finish, [ask], found=tally.found, taken=tally.taken, failed=1)
        else:
            await port.do(cmd, asked.finish, [ask], found=tally.found, taken=tally.taken, failed=0)

    async def _check(self) -> None:
        """Stops a reading when the daemon stops or the lease is lost; keeps the lease alive."""
        if self._closing:
            raise _Closing
        await self._duty.keep()


def _waiting(reader: Reader, instance_id: str) -> tuple[list[Look], list[Ask]]:
    return looks.due(reader, instance_id), asked.waiting(reader, instance_id)


def _registered(reader: Reader, instance_id: str) -> list[int]:
    return [row.native_id for row in store.repositories(reader) if row.instance_id == instance_id]


def _now(reader: Reader) -> int:
    return reader.now


def _target(look: Look) -> tuple[int, Literal["issue", "pull_request"], int]:
    return look.native_id, look.kind, look.number


def _done(tx: Tx, asks: list[Ask], told: dict[str, Any], tally: Tally, failed: int) -> None:
    asked.finish(tx, asks, found=tally.found, taken=tally.taken, failed=failed)
    tx.event("catchup.done", **told, found=tally.found, taken=tally.taken, failed=failed)


def _look_gone(tx: Tx, wishes: list[Look], code: str) -> None:
    looks.done(tx, wishes, code)
    tx.refusal("look.done", code, looks=[look.id for look in wishes])
