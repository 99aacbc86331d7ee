"""Moves the forge's task branch to a commit, and proves it: pushed, then read back; never forced (K7, §7).

A refusal is definite. What is unknown is read back within bounds, sent once more only when it is proven absent, and
otherwise stays unknown.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Literal

from stationmaster import faults
from stationmaster.errors import StationmasterError
from stationmaster.gitea import acts, branch, codes, store
from stationmaster.gitea.acts import Act
from stationmaster.gitea.client import explain
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import Branch, Task
from stationmaster.ledger.history import OpenIntent
from stationmaster.workspaces import mirror
from stationmaster.workspaces.mirror import PushOutcome

_READS = 3
_CODES = {
    "non_fast_forward": codes.PUSH_NOT_FAST_FORWARD,
    "protected": codes.PUSH_PROTECTED,
    "forbidden": codes.PUSH_FORBIDDEN,
    "hook": codes.PUSH_HOOK_REFUSED,
    "auth": codes.GIT_AUTH_FAILED,
    "missing": codes.GIT_REPO_MISSING,
}
# An earlier request may have arrived after all: the transport repeats one whose connection broke, and then the forge
# refuses the second; or somebody went on from it.
_UNSURE = frozenset({"non_fast_forward", "other"})
Standing = Literal["there", "absent", "unknown"]


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of a push: without `code` the forge's branch is proven to contain the commit."""

    code: str | None = None
    words: str = ""
    absent: bool = False


async def push(gear: Gear, hold: Hold, task: Task, row: Branch, sha: str) -> Pushed:
    """Pushes a commit to the task branch of the forge, and once more where that may help."""
    first = await _once(gear, hold, task, row, sha)
    if first.code is None:
        return first
    if first.code == codes.PUSH_NOT_FAST_FORWARD:
        # Somebody pushed meanwhile. What can still be a forward move is one; the rest the next task sorts out.
        await fetch(gear, hold, task)
        again = await gear.port.off(_is_forward, gear, task.repository_id, row.name, sha)
    elif first.code == codes.GIT_REPO_MISSING:
        again = await _renamed(gear, task)
    else:
        again = first.absent
    return await _once(gear, hold, task, row, sha) if again else first


async def _once(gear: Gear, hold: Hold, task: Task, row: Branch, sha: str) -> Pushed:
    bare = gear.layout.bare(task.repository_id)
    about = {"bare": str(bare), "branch": row.name, "sha": sha}
    try:
        async with acts.act(gear, task, "git.push", subject=task.id, hold=hold, about=about) as doing:
            faults.point("publish.push.intended")
            outcome = await doing.off(mirror.push, gear.git, bare, gear.credential, sha, row.name)
            faults.point("publish.push.done")
            pushed = await _proven(gear, task, row, sha, outcome, doing)
            faults.point("publish.push.read_back")
    except StationmasterError as error:
        if error.code == codes.LEASE_LOST:
            raise
        return Pushed(explain(error), error.message)
    faults.point("publish.push.told")
    return pushed


async def _proven(gear: Gear, task: Task, row: Branch, sha: str, outcome: PushOutcome, doing: Act) -> Pushed:
    doing.data = {"branch": row.name, "sha": sha}
    doing.data["answer"] = outcome.kind
    if outcome.kind == "refused" and outcome.reason not in _UNSURE:
        return _refused(outcome, doing)
    standing = await _read_back(gear, task, row.name, sha, _READS if outcome.kind != "refused" else 1)
    if standing == "there":
        doing.also = partial(branch.published, session_id=task.session_id, name=row.name, sha=sha)
        return Pushed()
    if outcome.kind == "refused" and (standing == "absent" or outcome.reason != "other"):
        return _refused(outcome, doing)
    doing.outcome = "not_done" if standing == "absent" else "unknown"
    return Pushed(codes.PUSH_UNKNOWN, outcome.words, absent=standing == "absent")


def _refused(outcome: PushOutcome, doing: Act) -> Pushed:
    code = _code(outcome)
    doing.outcome = "refused"
    doing.data |= {"code": code, "words": outcome.words}
    return Pushed(code, outcome.words)


def _code(outcome: PushOutcome) -> str:
    if outcome.reason == "hook" and "permission denied" in outcome.words.lower():
        # The forge tells a missing right by its own hook.
        return codes.PUSH_FORBIDDEN
    return _CODES.get(outcome.reason, codes.PUSH_REFUSED)


async def _read_back(gear: Gear, task: Task, name: str, sha: str, reads: int = _READS) -> Standing:
    bare = gear.layout.bare(task.repository_id)
    standing: Standing = "unknown"
    for left in reversed(range(reads)):
        try:
            if await gear.port.off(mirror.holds, gear.git, bare, gear.credential, name, sha):
                return "there"
            standing = "absent"
        except StationmasterError:
            standing = "unknown"
        if left:
            await asyncio.sleep(gear.settings.settle_s / reads)
    return standing


async def fetch(gear: Gear, hold: Hold, task: Task, extra: tuple[str, ...] = ()) -> None:
    """Fetches a repository that is here, at its present address (GW-R-126)."""
    repository = await gear.port.read(store.repository, task.repository_id)
    bare = gear.layout.bare(repository.id)

    def bring() -> None:
        mirror.ensure(gear.git, bare, repository.clone_url, gear.credential)
        mirror.fetch(gear.git, bare, gear.credential, extra)

    about = {"bare": str(bare), "url": repository.clone_url}
    async with acts.act(gear, task, "git.fetch", subject=repository.id, hold=hold, about=about) as doing:
        faults.point("prepare.fetch.intended")
        await doing.off(bring)
        faults.point("prepare.fetch.done")
    await gear.port.hot(store.fetched, repository.id)


def _is_forward(gear: Gear, repository_id: str, name: str, sha: str) -> bool:
    bare = gear.layout.bare(repository_id)
    there = mirror.remote_tracking_tip(gear.git, bare, name)
    return there is None or mirror.is_ancestor(gear.git, bare, there, sha)


async def _renamed(gear: Gear, task: Task) -> bool:
    before = await gear.port.read(store.repository, task.repository_id)
    try:
        await gear.at(task.repository_id, gear.forge.get_repository)
    except StationmasterError:
        return False
    after = await gear.port.read(store.repository, task.repository_id)
    if after.clone_url == before.clone_url:
        return False
    bare = gear.layout.bare(task.repository_id)
    await gear.port.off(mirror.ensure, gear.git, bare, after.clone_url, gear.credential)
    return True


async def settle(gear: Gear, task: Task, intent: OpenIntent) -> None:
    """Reads back a push whose outcome nobody wrote down, and writes it (GW-R-189)."""
    name, sha = str(intent.data["branch"]), str(intent.data["sha"])
    standing = await _read_back(gear, task, name, sha, reads=1)
    outcome = {"there": "done", "absent": "not_done"}.get(standing, "unknown")
    data = {"branch": name, "sha": sha, "recovery": "read_back"}
    there = partial(branch.published, session_id=task.session_id, name=name, sha=sha)
    await acts.finish(gear, task, intent.seq, outcome, data, there if standing == "there" else None)
