"""Makes a task's workplace ready: who asks may ask, the repository is current, the worktree stands where it must.

Every step is under the lease and either done again after a crash or put away first; nothing foreign is ever touched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from stationmaster import faults
from stationmaster.command import Cmd
from stationmaster.errors import Denied, NotFound, StationmasterError, Unavailable
from stationmaster.gitea import (
    actions,
    acts,
    authors,
    branch,
    codes,
    leftovers,
    pulls,
    push,
    registry,
    store,
    texts,
    wire,
)
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import Asker, Branch, Repository, Session, Task
from stationmaster.gitea.wire import Pull
from stationmaster.ledger.history import OpenIntent
from stationmaster.ledger.tx import Tx
from stationmaster.workspaces import branches, guard, mirror, paths, worktree
from stationmaster.workspaces.git import Git
from stationmaster.workspaces.guard import Problem

_IN_THE_WAY = "would be overwritten"


class Blocked(Unavailable):
    """Work cannot start in this workspace until somebody has looked at it; nothing there was changed."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.sentence, code=problem.code)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where a task works: a clean worktree on its branch at `head`; `notes` are lines for the answer."""

    bare: Path
    tree: Path
    tree_name: str
    branch: Branch
    head: str
    notes: tuple[str, ...] = ()
    # Code of strangers, asked about by somebody who may not write here: a run may look and nothing else.
    read_only: bool = False


# --- which repository -------------------------------------------------------------------------------------------------


async def identify(gear: Gear, task: Task) -> wire.Repository:
    """Returns the task's repository as the forge has it, under the name that it has now.

    The forge's number decides, not the name: another repository may have taken that over, and nothing may be read or
    written there for this task. Raises NotFound `git_repo_missing` when the repository is gone.
    """
    return await identified(gear, task.repository_id, actions.command("repo.moved", task, f"task:{task.id}"))


async def identified(gear: Gear, repository_id: str, moved: Cmd) -> wire.Repository:
    """Returns a repository as the forge has it; `moved` is the command that stores a new name of it."""
    known = await gear.port.read(store.repository, repository_id)
    try:
        seen = await gear.at(known.id, gear.forge.get_repository)
        if seen.id == known.native_id:
            return seen
        true = await gear.forge.get_repository_by_id(known.native_id)
    except NotFound:
        try:
            true = await gear.forge.get_repository_by_id(known.native_id)
        except NotFound as error:
            raise NotFound(error.message, code=codes.GIT_REPO_MISSING, hint="Check that the bot may see it.") from error
    await gear.port.do(moved, registry.moved, known.id, true.owner.name, true.name)
    return true


# --- where to work ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Site:
    """What a preparation is about."""

    repository: Repository
    session: Session
    bare: Path
    tree: Path
    pull: Pull | None = None
    read_only: bool = False


async def workplace(gear: Gear, hold: Hold, task: Task) -> Workplace:
    """Makes the worktree of a task ready, or raises Blocked, or one of the eight kinds (section 8).

    Order: leftovers of our own, what is foreign, the resource at the forge, clone or fetch, the branch.
    """
    site = await _site(gear, task)
    await reclaim(gear, task)
    row = await gear.port.read(store.current_branch, site.session.id)
    await _guard(gear, site, row.name if row else branch.first_name(site.session))
    site = await _trusted(gear, task, await _asked(gear, task, site))
    await _bring(gear, hold, task, site)
    return await _stand(gear, hold, task, site)


async def standing(gear: Gear, task: Task) -> Workplace | None:
    """Returns the workplace as it is on disk, changing and asking nobody; None when there is none."""
    site = await _site(gear, task)
    row = await gear.port.read(store.current_branch, site.session.id)
    if row is None or not await gear.port.off(_is_here, site.bare, site.tree):
        return None
    head = await gear.port.off(_head, gear.git, site.bare, site.tree)
    return Workplace(site.bare, site.tree, site.tree.name, row, head)


async def reclaim(gear: Gear, task: Task) -> tuple[str, ...]:
    """Settles every act on a task and its repository that never got a result; returns what was renamed.

    Only while nobody else works on the repository. What was half made on disk is put away, what was sent is read back
    (K7, GW-R-189). Raises Busy while such an act still goes on.
    """
    moved: list[str] = []
    for intent in await gear.port.read(acts.open_of, task):
        moved += await _settle(gear, task, intent)
    return tuple(moved)


async def _settle(gear: Gear, task: Task, intent: OpenIntent) -> tuple[str, ...]:
    away = await acts.reclaim_disk(gear, intent) if "bare" in intent.data else ()
    faults.point("prepare.reclaim.put_away")
    if intent.action == "git.push":
        await push.settle(gear, task, intent)
    elif intent.action == "pull.create":
        await pulls.settle(gear, task, intent)
    elif intent.action.startswith("git."):
        data = {"recovery": "put_away" if away else "done_again", "moved": list(away)}
        await acts.finish(gear, task, intent.seq, "unknown", data)
    return away


async def _site(gear: Gear, task: Task) -> _Site:
    repository = await gear.port.read(store.repository, task.repository_id)
    session = await gear.port.read(store.session, task.session_id)
    paths.check_name(repository.owner, repository.name)
    bare = gear.layout.bare(repository.id)
    return _Site(repository, session, bare, gear.layout.tree(repository.id, branch.tree_name(session)))


async def _guard(gear: Gear, site: _Site, name: str) -> None:
    problem = await gear.port.off(guard.check, gear.git, gear.layout, site.repository.id, site.tree.name, branch=name)
    if problem is not None:
        raise Blocked(problem)


async def _asked(gear: Gear, task: Task, site: _Site) -> _Site:
    """Looks at the repository and the resource at the forge, and follows what changed there."""
    seen = await identify(gear, task)
    number, pull = site.session.number, None
    try:
        if site.session.kind == "pull_request":
            pull = await gear.at(site.repository.id, lambda repo: gear.forge.get_pull(repo, number))
        else:
            await gear.at(site.repository.id, lambda repo: gear.forge.get_issue(repo, number))
    except NotFound as error:
        raise NotFound(error.message, code=codes.RESOURCE_GONE, hint="Nothing is left to do.") from error
    cmd = actions.command("repo.settle", task, f"task:{task.id}")
    await gear.port.do(cmd, _settle_branch, site.repository.id, seen.default_branch)
    repository = await gear.port.read(store.repository, site.repository.id)
    return replace(site, repository=repository, pull=pull)


async def _trusted(gear: Gear, task: Task, site: _Site) -> _Site:
    """Decides whether a run may change anything: code of a fork lends itself only to people who may write here."""
    if site.pull is None or not _of_a_fork(site.pull):
        return site
    asker = await gear.port.read(actions.asked_by, task)
    if await authors.may_write(gear, site.repository.id, asker):
        return site
    bare_agent = gear.station.isolation == "codex_only" and gear.codex.sandbox == "danger-full-access"
    if gear.settings.reply_mode == "official" or bare_agent:
        # There the agent has the bot's own rights, or no walls at all.
        raise Denied(
            f"{asker.login} may not write here, and the code is a fork's.",
            code=codes.FORK_NOT_TRUSTED,
            hint="Have somebody with write access ask.",
        )
    cmd = actions.command("fork.read_only", task, f"task:{task.id}")
    await gear.port.do(cmd, _note_read_only, asker)
    return replace(site, read_only=True)


def _of_a_fork(pull: Pull) -> bool:
    # A head that is no branch here any more may have come from anybody.
    return pull.head.repo is None or pull.head.repo_id != pull.base.repo_id or pull.head.ref.startswith("refs/")


def _note_read_only(tx: Tx, asker: Asker) -> None:
    tx.event("fork.read_only", author=asker.login, author_id=asker.id)


def _settle_branch(tx: Tx, repository_id: str, default_branch: str) -> None:
    repository = store.repository(tx, repository_id)
    if default_branch and default_branch != repository.default_branch:
        actions.settle(tx, repository, default_branch=default_branch)


async def _bring(gear: Gear, hold: Hold, task: Task, site: _Site) -> None:
    """Clones the repository, or fetches it (GW-R-126, GW-R-129)."""
    extra = () if site.pull is None else (mirror.pull_refspec(site.pull.number),)
    if not site.bare.is_dir():
        await _clone(gear, hold, task, site)
        if not extra:
            return
    try:
        await push.fetch(gear, hold, task, extra)
    except NotFound as error:
        if error.code != codes.GIT_REF_MISSING:
            raise
        raise NotFound(error.message, code=codes.PULL_NOT_SUPPORTED, hint="Its head cannot be fetched.") from error


async def _clone(gear: Gear, hold: Hold, task: Task, site: _Site) -> None:
    repository, bare = site.repository, site.bare
    about = {"bare": str(bare), "part": leftovers.part_of(bare), "url": repository.clone_url}
    async with acts.act(gear, task, "git.clone", subject=repository.id, hold=hold, about=about) as doing:
        faults.point("prepare.clone.intended")
        await doing.off(mirror.ensure, gear.git, bare, repository.clone_url, gear.credential)
        faults.point("prepare.clone.done")
    await gear.port.hot(store.fetched, repository.id)


async def _stand(gear: Gear, hold: Hold, task: Task, site: _Site) -> Workplace:
    """Puts the worktree on the branch that the task works on."""
    wanted = await _wanted(gear, task, site)
    choice = await gear.port.off(branch.choose, gear.git, site.bare, site.tree, wanted)
    decision = choice.decision
    if decision.start is None:
        raise NotFound(
            f"{site.repository.owner}/{site.repository.name} has no commit on {site.repository.default_branch}.",
            code=codes.GIT_REF_MISSING,
            hint="Push a first one.",
        )
    head = decision.start
    if decision.branch != wanted.name:
        await _guard(gear, site, decision.branch)
    if not choice.in_place or wanted.current is None:
        head = await _move(gear, hold, task, site, choice)
    row = await gear.port.read(store.current_branch, site.session.id)
    assert row is not None, "BUG: the branch was just recorded"  # noqa: S101 - in the same act
    notes = await gear.port.read(branch.kept_lines, task.id)
    if site.pull is not None and wanted.base is not None:
        notes = (texts.base_line(wanted.base, site.pull.head.ref), *notes)
    if site.read_only:
        notes = (texts.read_only_line(gear.settings.language), *notes)
    return Workplace(site.bare, site.tree, site.tree.name, row, head, notes, site.read_only)


async def _wanted(gear: Gear, task: Task, site: _Site) -> branch.Wanted:
    rows = await gear.port.read(store.branches, site.session.id)
    if site.pull is not None:
        ref = mirror.pull_ref(site.pull.number)
    else:
        ref = f"refs/remotes/origin/{site.repository.default_branch}"
    base = await gear.port.off(mirror.tip, gear.git, site.bare, ref)
    asked = branch.Wanted(site.session, task.id, rows, base, follow=site.pull is not None, merged=False)
    row = asked.current
    if row is None or row.pull_number is None:
        return asked
    number = row.pull_number
    try:
        merged = (await gear.at(site.repository.id, lambda repo: gear.forge.get_pull(repo, number))).merged
    except NotFound:
        merged = False
    return branch.Wanted(site.session, task.id, rows, base, follow=asked.follow, merged=merged)


async def _move(gear: Gear, hold: Hold, task: Task, site: _Site, choice: branch.Choice) -> str:
    decision = choice.decision
    assert decision.start is not None, "BUG: there is nothing to start from"  # noqa: S101 - the caller looked
    about = {
        "bare": str(site.bare),
        "tree": str(site.tree),
        "branch_step": decision.step,
        "branch": decision.branch,
        "start": decision.start,
        "reason": decision.reason,
        "left": decision.left,
        "kept_as": choice.kept_as,
    }
    first = partial(branch.record, session_id=site.session.id, name=decision.branch, start=decision.start)
    try:
        async with acts.act(
            gear, task, "git.branch", subject=site.repository.id, hold=hold, about=about, first=first
        ) as doing:
            faults.point("prepare.branch.intended")
            head = await doing.off(branches.apply, gear.git, site.bare, site.tree, decision, saved_as=choice.kept_as)
            faults.point("prepare.branch.done")
            doing.data = {"head": head}
    except StationmasterError as error:
        raise _why(error, site) from error
    faults.point("prepare.branch.told")
    return head


def _why(error: StationmasterError, site: _Site) -> StationmasterError:
    if error.code in guard.CODES:
        return Blocked(Problem(error.code, str(error)))
    if _IN_THE_WAY in error.message:
        # A file that git ignores stands where the branch now has one: it is somebody's, so it stays.
        return Blocked(
            Problem(codes.WORKSPACE_DIRTY, f"A file in {site.tree} is in the way: {error.message} Move it away.")
        )
    return error


def _is_here(bare: Path, tree: Path) -> bool:
    return tree.is_dir() and worktree.is_registered(bare, tree)


def _head(git: Git, bare: Path, tree: Path) -> str:
    return git.tree(bare, tree, "rev-parse", "HEAD^{commit}", write=False).stdout.strip()
