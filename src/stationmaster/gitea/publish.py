"""Commits what a run left, and publishes it: the tree decides, the instruction is never interpreted.

The host does this under the lease, never the agent. Each step is an intent, the act, its result; what is published is
proven at the forge before a row says so. A failure never keeps an answer from being posted: it becomes its last line.
"""

from __future__ import annotations

from dataclasses import dataclass

from stationmaster import faults
from stationmaster.errors import StationmasterError
from stationmaster.gitea import actions, acts, codes, pulls, store, texts
from stationmaster.gitea.client import explain
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import Branch, Task
from stationmaster.gitea.prepare import Workplace
from stationmaster.gitea.push import push
from stationmaster.ledger.tx import Reader, Tx
from stationmaster.workspaces import worktree
from stationmaster.workspaces.git import Git
from stationmaster.workspaces.worktree import Saved


@dataclass(frozen=True, slots=True)
class Published:
    """What became of the work: lines for the answer, the commit and pull request where it is, or why it is not."""

    footer: tuple[str, ...] = ()
    sha: str | None = None
    pull: int | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class _Past:
    """What a task did before: the commit it proved to be published last, whether it changed anything at all."""

    sha: str | None
    changed: bool
    nested: tuple[str, ...]


async def save(
    gear: Gear, task: Task, run_id: str, place: Workplace, outcome: str, *, hold: Hold | None = None
) -> Saved | None:
    """Commits what a run left on its branch; None when there is no worktree (architecture §8).

    Raises Unavailable `workspace_save_failed` with git's words; nothing is lost then.
    """
    if not await gear.port.off(worktree.is_registered, place.bare, place.tree):
        return None
    return await _commit(gear, hold, task, run_id, place, f"stationmaster: {task.id} {run_id} {outcome}")


async def _commit(gear: Gear, hold: Hold | None, task: Task, run_id: str, place: Workplace, message: str) -> Saved:
    about = {"bare": str(place.bare), "tree": str(place.tree), "run": run_id, "message": message}
    nested_to = gear.layout.nested(run_id)
    async with acts.act(gear, task, "git.commit", subject=task.id, hold=hold, about=about, run_id=run_id) as doing:
        faults.point("publish.commit.intended")
        saved = await doing.off(worktree.save, gear.git, place.bare, place.tree, message, nested_to, gear.author)
        faults.point("publish.commit.done")
        doing.data = {
            "before": saved.before,
            "after": saved.after,
            "changed": saved.changed,
            "nested": list(saved.nested),
        }
    faults.point("publish.commit.told")
    return saved


async def publish(
    gear: Gear,
    hold: Hold,
    task: Task,
    run_id: str,
    place: Workplace,
    *,
    title: str | None = None,
    body: str | None = None,
    summary: str | None = None,
) -> Published:
    """Commits, pushes and proposes what is new on the task branch, and tells the answer's last lines.

    `summary` is the commit's first line where there is no title. Raises only when the lease is lost: then nobody may
    answer any more.
    """
    await hold.check()
    if place.read_only:
        return Published(code=codes.FORK_READ_ONLY)
    message = f"stationmaster: {task.id} {run_id} publish"
    subject = title or summary
    sha = None
    try:
        sha = (await _commit(gear, hold, task, run_id, place, f"{subject}\n\n{message}" if subject else message)).after
        return await _Publishing(gear, hold, task, place, sha).go(title, body)
    except StationmasterError as error:
        if error.code == codes.LEASE_LOST:
            raise
        return await _failed(gear, task, explain(error), error.message, sha, ())


class _Publishing:
    """One try to publish a commit."""

    def __init__(self, gear: Gear, hold: Hold, task: Task, place: Workplace, sha: str) -> None:
        self._gear = gear
        self._hold = hold
        self._task = task
        self._place = place
        self._sha = sha

    async def go(self, title: str | None, body: str | None) -> Published:
        """Pushes and proposes what is to be, and words it."""
        gear, task = self._gear, self._task
        past = await gear.port.read(_past, task.id)
        nested = tuple(filter(None, [texts.nested_line(past.nested)]))
        row = await gear.port.read(store.current_branch, task.session_id)
        fresh = row is not None and not await gear.port.off(_at_the_forge, gear.git, self._place, self._sha)
        if gear.settings.push == "off" or row is None:
            return self._kept(nested) if fresh and past.changed else Published(nested)
        if fresh:
            pushed = await push(gear, self._hold, task, row, self._sha)
            if pushed.code is not None:
                return await _failed(gear, task, pushed.code, pushed.words, self._sha, nested)
        shown = self._sha if fresh else past.sha
        if gear.settings.push == "branch":
            line = texts.published_line(shown, None, row.name) if shown else None
            return Published((*nested, line) if line else nested, shown)
        return await self._proposed(row, shown, nested, title, body, fresh=fresh)

    async def _proposed(
        self,
        row: Branch,
        shown: str | None,
        nested: tuple[str, ...],
        title: str | None,
        body: str | None,
        *,
        fresh: bool,
    ) -> Published:
        gear, task = self._gear, self._task
        number = row.pull_number
        # What an earlier task pushed without a pull request is proposed now, but quietly: this one changed nothing.
        if fresh or (number is None and row.published_sha is not None):
            opened = await pulls.find_or_open(gear, self._hold, task, row, title=title, body=body)
            if opened.number is None:
                code = opened.code or codes.PULL_REFUSED
                return await _failed(gear, task, code, opened.words, shown, nested) if shown else Published(nested)
            shown, number = shown or row.published_sha, opened.number
        line = texts.published_line(shown, number, row.name) if shown else None
        return Published((*nested, line) if line else nested, shown, number if shown else None)

    def _kept(self, nested: tuple[str, ...]) -> Published:
        line = texts.not_published_line(codes.PUSH_OFF, self._sha, self._gear.settings.language)
        return Published((*nested, line), self._sha, code=codes.PUSH_OFF)


async def _failed(gear: Gear, task: Task, code: str, words: str, sha: str | None, nested: tuple[str, ...]) -> Published:
    await gear.port.do(actions.command("publish.tell", task, f"task:{task.id}"), _tell_failure, code, words, sha)
    line = texts.not_published_line(code, sha or "", gear.settings.language)
    return Published((*nested, line), sha, code=code)


def _tell_failure(tx: Tx, code: str, words: str, sha: str | None) -> None:
    tx.event("publish.failed", code=code, words=words, sha=sha)


def _at_the_forge(git: Git, place: Workplace, sha: str) -> bool:
    # Whichever of the forge's branches holds it: then there is nothing of ours to publish.
    found = git.bare(place.bare, "for-each-ref", "--count=1", f"--contains={sha}", "refs/remotes/")
    return bool(found.stdout.strip())


def _past(reader: Reader, task_id: str) -> _Past:
    commits = [entry.data or {} for entry in acts.of_task(reader, task_id, "git.commit.result")]
    pushes = [entry for entry in acts.of_task(reader, task_id, "git.push.result") if entry.outcome == "done"]
    nested = [str(name) for data in commits for name in data.get("nested", ())]
    last = pushes[-1].data if pushes else None
    return _Past(
        str(last["sha"]) if last else None,
        any(data.get("changed") for data in commits),
        tuple(dict.fromkeys(nested)),
    )
