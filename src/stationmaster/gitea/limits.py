"""How much may be begun and used: rates of an author, a repository and all, and budgets of a task and a day.

What a run uses is one row, written with the run and counted up while it goes on. A queued task that meets a limit is
kept back by a row of its own, a hold, which a claim passes by until its time is over or an operator lets it go. Under
many workers a limit may be passed by as many runs as begin at the same moment: it breaks a loop, it is no price list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from stationmaster.clock import MICROS
from stationmaster.gitea import codes
from stationmaster.gitea.model import Asker, Task
from stationmaster.gitea.settings import LimitSettings
from stationmaster.ledger import queries
from stationmaster.ledger.tx import HotTx, Reader, Tx

Q = queries.load("stationmaster.gitea", "limits.sql")

HOUR = 3600 * MICROS
DAY = 86_400 * MICROS


@dataclass(frozen=True, slots=True)
class Reached:
    """A limit that was met: its code, and when it has room again; None when only an operator makes room."""

    code: str
    until: int | None


class Hold(msgspec.Struct, frozen=True):
    """A queued task that is kept back."""

    task_id: str
    reason: str
    since: int
    until_at: int | None
    released_by: str | None
    released_at: int | None


@dataclass(frozen=True, slots=True)
class Used:
    """What was used: runs, tokens as the agent counts them, and time."""

    turns: int
    tokens: int
    micros: int


def day_of(at: int) -> int:
    """Returns when the UTC day of a time began."""
    return at - at % DAY


def reached(reader: Reader, task: Task, asker: Asker, instance_id: str, limits: LimitSettings) -> Reached | None:
    """Returns the first limit that keeps a task from beginning another run now, or None."""
    return (
        _task_budget(reader, task, limits)
        or _rates(reader, task, asker, instance_id, limits)
        or _day_budgets(reader, task, limits)
    )


def _task_budget(reader: Reader, task: Task, limits: LimitSettings) -> Reached | None:
    if not (limits.task_turns or limits.task_tokens or limits.task_wall_s):
        return None
    used = used_by_task(reader, task.id)
    if _spent(used, limits.task_turns, limits.task_tokens, limits.task_wall_s):
        return Reached(codes.TASK_BUDGET_SPENT, None)
    return None


def _rates(reader: Reader, task: Task, asker: Asker, instance_id: str, limits: LimitSettings) -> Reached | None:
    after = reader.now - HOUR
    author = {"instance_id": instance_id, "author_id": asker.id}
    for most, query, about, code in (
        (limits.author_per_hour, Q.nth_of_author, author, codes.AUTHOR_RATE_REACHED),
        (limits.repo_per_hour, Q.nth_of_repository, {"repository_id": task.repository_id}, codes.REPO_RATE_REACHED),
        (limits.all_per_hour, Q.nth_of_all, {}, codes.RATE_REACHED),
    ):
        if not most:
            continue
        # Only when the one so many runs ago leaves the hour is there room for another.
        oldest = reader.one(query, after=after, skip=most - 1, **about)
        if oldest is not None:
            return Reached(code, oldest["opened_at"] + HOUR)
    return None


def _day_budgets(reader: Reader, task: Task, limits: LimitSettings) -> Reached | None:
    today = day_of(reader.now)
    of_repository = (limits.repo_day_turns, limits.repo_day_tokens, limits.repo_day_wall_s)
    if any(of_repository):
        used = _used(reader.one(Q.used_in_repository, repository_id=task.repository_id, since=today))
        if _spent(used, *of_repository):
            return Reached(codes.REPO_BUDGET_SPENT, today + DAY)
    of_all = (limits.day_turns, limits.day_tokens, limits.day_wall_s)
    if any(of_all) and _spent(used_since(reader, today), *of_all):
        return Reached(codes.DAY_BUDGET_SPENT, today + DAY)
    return None


def _spent(used: Used, turns: int, tokens: int, wall_s: float) -> bool:
    return (
        (turns > 0 and used.turns >= turns)
        or (tokens > 0 and used.tokens >= tokens)
        or (wall_s > 0 and used.micros >= wall_s * MICROS)
    )


# --- what is used -----------------------------------------------------------------------------------------------------


def used_by_task(reader: Reader, task_id: str) -> Used:
    """Returns what all runs of a task used."""
    return _used(reader.one(Q.used_by_task, task_id=task_id))


def used_since(reader: Reader, since: int) -> Used:
    """Returns what all runs used that began at `since` or later."""
    return _used(reader.one(Q.used_since, since=since))


def used_by_repositories(reader: Reader, since: int, limit: int) -> list[tuple[str, Used]]:
    """Returns what was used in each repository, by its key, most first."""
    rows = reader.many(Q.used_by_repositories, since=since, limit=limit)
    return [(str(row["repo_key"]), _used(row)) for row in rows]


def used_by_authors(reader: Reader, since: int, limit: int) -> list[tuple[str, Used]]:
    """Returns what was used for each person, by their name, most first."""
    rows = reader.many(Q.used_by_authors, since=since, limit=limit)
    return [(str(row["author"]), _used(row)) for row in rows]


def _used(row: dict[str, Any] | None) -> Used:
    return Used(0, 0, 0) if row is None else Used(int(row["turns"]), int(row["tokens"]), int(row["micros"]))


def begin(tx: Tx, task: Task, run_id: str, asker: Asker, instance_id: str) -> None:
    """Makes the row of what a run uses, together with the run."""
    tx.run(
        Q.open_usage,
        run_id=run_id,
        task_id=task.id,
        repository_id=task.repository_id,
        instance_id=instance_id,
        author_id=asker.id,
        author=asker.login,
        at=tx.now,
    )


def count(hot: HotTx, run_id: str, thread_id: str, total: int | None) -> int:
    """Counts what a run used up to now, and returns its tokens.

    `total` is what its agent says that the whole thread has come to, however often it says so; None says that time
    went by. What a run that died had not told any more is counted with the next run of the thread.
    """
    row = hot.one(Q.usage, run_id=run_id)
    if row is None:
        return 0
    tokens, known = int(row["tokens"]), int(row["total"])
    if total is not None:
        if row["thread_id"] != thread_id:
            last = hot.one(Q.last_total, thread_id=thread_id, run_id=run_id)
            known = 0 if last is None else int(last["total"])
        # Less than before is a count that began anew.
        tokens += total - known if total >= known else total
        known = total
    told = row["thread_id"] if total is None else thread_id
    hot.run(Q.count_usage, run_id=run_id, thread_id=told, at=hot.now, total=known, tokens=tokens)
    return tokens


# --- what is kept back ------------------------------------------------------------------------------------------------


def hold_of(reader: Reader, task_id: str) -> Hold | None:
    """Returns what keeps a queued task back, or None; also a hold that an operator let go or whose time is over."""
    row = reader.one(Q.hold, task_id=task_id)
    return None if row is None else msgspec.convert(row, Hold)


def holding(reader: Reader, task_id: str) -> Hold | None:
    """Returns the hold that keeps a task back now, or None."""
    hold = hold_of(reader, task_id)
    if hold is None or hold.released_at is not None:
        return None
    return hold if hold.until_at is None or hold.until_at > reader.now else None


class Kept(msgspec.Struct, frozen=True):
    """A hold with what it keeps back."""

    task_id: str
    reason: str
    since: int
    until_at: int | None
    resource_key: str
    author: str
    created_at: int


def holds(reader: Reader, after: tuple[int, str], limit: int) -> list[Kept]:
    """Returns what is kept back, in the order in which it began, from after a time and task on."""
    rows = reader.many(Q.holds, since=after[0], task_id=after[1], limit=limit)
    return [msgspec.convert(row, Kept) for row in rows]


def keep_back(tx: Tx, task: Task, limit: Reached) -> bool:
    """Keeps a task back; returns whether it was free before."""
    fresh = hold_of(tx, task.id) is None
    tx.run(Q.add_hold, task_id=task.id, reason=limit.code, at=tx.now, until_at=limit.until)
    return fresh


def let_go(tx: Tx, task_id: str, by: str) -> bool:
    """Lets a task begin one run whatever the limits say; returns False when nothing keeps it back."""
    return tx.run(Q.release_hold, task_id=task_id, by=by, at=tx.now) == 1


def forget(tx: Tx, task_id: str) -> None:
    """Ends the hold of a task that is not queued any more."""
    tx.run(Q.drop_hold, task_id=task_id)


def told_lately(reader: Reader, session_id: str) -> bool:
    """Tells whether a conversation was told within a day that a limit keeps it back."""
    return reader.one(Q.told_of_hold, session_id=session_id, after=reader.now - DAY) is not None
