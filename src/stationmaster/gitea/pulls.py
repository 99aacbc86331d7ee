"""Finds or opens the one pull request of a task branch, and proves it by reading the forge's list (§7)."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from functools import partial

from stationmaster import faults, redact
from stationmaster.errors import NotFound, StationmasterError
from stationmaster.gitea import actions, acts, branch, codes, store, texts
from stationmaster.gitea.client import Done, Refused, RepoRef, Unknown, explain
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import Branch, Session, Task
from stationmaster.ledger.history import OpenIntent
from stationmaster.workspaces import mirror

_READS = 3
_LONGEST_TITLE = 200
_LONGEST_BODY = 60_000
_REFUSED = {409: codes.PULL_EXISTS}


@dataclass(frozen=True, slots=True)
class Opened:
    """The number of the open pull request, or why there is none."""

    number: int | None = None
    code: str | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """What a new pull request says, and the branch that it wants to change."""

    title: str
    body: str
    base: str


async def find_or_open(
    gear: Gear, hold: Hold, task: Task, row: Branch, *, title: str | None, body: str | None
) -> Opened:
    """Returns the open pull request of a branch; opens it when there is none."""
    try:
        found = await _find(gear, task, row.name)
        if found is None:
            draft = await _draft(gear, task, title, body)
            opened = await _open(gear, hold, task, row, draft)
            if opened.number is None and opened.code == codes.PULL_UNKNOWN and await _proven_absent(gear, task, row):
                opened = await _open(gear, hold, task, row, draft)
            return opened
    except StationmasterError as error:
        if error.code == codes.LEASE_LOST:
            raise
        return Opened(code=await _why(gear, task, error), words=error.message)
    cmd = actions.command("pull.found", task, f"task:{task.id}")
    await gear.port.do(cmd, branch.proposed, task.session_id, row.name, found)
    return Opened(found)


async def _why(gear: Gear, task: Task, error: StationmasterError) -> str:
    if isinstance(error, NotFound):
        # The forge hides the whole list where pull requests are off.
        with contextlib.suppress(StationmasterError):
            if not (await gear.at(task.repository_id, gear.forge.get_repository)).has_pull_requests:
                return codes.PULLS_OFF
    return explain(error)


async def _find(gear: Gear, task: Task, name: str) -> int | None:
    async def ask(repo: RepoRef) -> list[int]:
        return [pull.number for pull in await gear.forge.list_pulls(repo, head=name)]

    numbers = await gear.at(task.repository_id, ask)
    return numbers[0] if numbers else None


async def _proven_absent(gear: Gear, task: Task, row: Branch) -> bool:
    try:
        return await _find(gear, task, row.name) is None
    except StationmasterError:
        return False


async def _draft(gear: Gear, task: Task, title: str | None, body: str | None) -> Draft:
    session = await gear.port.read(store.session, task.session_id)
    base = await _base(gear, task, session)
    if not title:
        issue = await gear.at(task.repository_id, lambda repo: gear.forge.get_issue(repo, session.number))
        title = texts.pull_title(session.number, issue.title)
    said = body or texts.pull_body(session.number, gear.settings.language)
    return Draft(redact.clean(texts.plain(title, _LONGEST_TITLE)), redact.clean(said)[:_LONGEST_BODY], base)


async def _base(gear: Gear, task: Task, session: Session) -> str:
    """Returns what the pull request wants to change: the default branch, or the branch of the one it was asked on."""
    repository = await gear.port.read(store.repository, task.repository_id)
    if session.kind == "issue":
        return repository.default_branch
    pull = await gear.at(task.repository_id, lambda repo: gear.forge.get_pull(repo, session.number))
    ours = pull.head.repo_id == pull.base.repo_id and not pull.head.ref.startswith("refs/")
    bare = gear.layout.bare(task.repository_id)
    if not ours:
        return pull.base.ref
    tip = await gear.port.off(mirror.remote_tracking_tip, gear.git, bare, pull.head.ref)
    return pull.base.ref if tip is None else pull.head.ref


async def _open(gear: Gear, hold: Hold, task: Task, row: Branch, draft: Draft) -> Opened:
    about = {"head": row.name, "base": draft.base, "title": draft.title}
    async with acts.act(gear, task, "pull.create", subject=task.id, hold=hold, about=about) as doing:
        faults.point("publish.pull.intended")
        answer = await gear.at(
            task.repository_id,
            lambda repo: gear.forge.create_pull(
                repo, title=draft.title, body=draft.body, head=row.name, base=draft.base
            ),
        )
        faults.point("publish.pull.done")
        number = None
        if not isinstance(answer, Refused) or answer.status in _REFUSED:
            number = await _read_back(gear, task, row.name, patient=not _unsent(answer))
        faults.point("publish.pull.read_back")
        opened = _outcome(answer, number)
        doing.outcome = _word(answer, number)
        doing.data = {"number": number, "code": opened.code, "words": opened.words}
        if number is not None:
            doing.also = partial(branch.proposed, session_id=task.session_id, name=row.name, pull=number)
    faults.point("publish.pull.told")
    return opened


def _outcome(answer: Done | Refused | Unknown, number: int | None) -> Opened:
    if number is not None:
        return Opened(number)
    if isinstance(answer, Refused):
        return Opened(code=_REFUSED.get(answer.status, codes.PULL_REFUSED), words=answer.message)
    if _unsent(answer):
        assert isinstance(answer, Unknown)  # noqa: S101 - only that can be unsent
        return Opened(code=answer.reason)
    return Opened(code=codes.PULL_UNKNOWN)


def _word(answer: Done | Refused | Unknown, number: int | None) -> str:
    if number is not None:
        return "done" if not isinstance(answer, Refused) else "found"
    if isinstance(answer, Refused):
        return "refused"
    return "not_sent" if _unsent(answer) else "unknown"


def _unsent(answer: Done | Refused | Unknown) -> bool:
    return isinstance(answer, Unknown) and not answer.sent


async def _read_back(gear: Gear, task: Task, name: str, *, patient: bool) -> int | None:
    reads = _READS if patient else 1
    for left in reversed(range(reads)):
        try:
            found = await _find(gear, task, name)
        except StationmasterError:
            found = None
        if found is not None:
            return found
        if left:
            await asyncio.sleep(gear.settings.settle_s / reads)
    return None


async def settle(gear: Gear, task: Task, intent: OpenIntent) -> None:
    """Reads back an opening whose outcome nobody wrote down, and writes it (GW-R-189)."""
    name = str(intent.data["head"])
    try:
        found = await _find(gear, task, name)
        outcome = "not_done" if found is None else "done"
    except StationmasterError:
        found, outcome = None, "unknown"
    also = None
    if found is not None:
        also = partial(branch.proposed, session_id=task.session_id, name=name, pull=found)
    await acts.finish(gear, task, intent.seq, outcome, {"number": found, "recovery": "read_back"}, also)
