"""Which branch a task works on: the rows, the decision, and the words for the reply.

The rows say it before git does it, so whoever dies in between finds the name again and the same step is done. Nothing
here is forced, and no work of ours is dropped: what cannot go on is kept under another name (architecture §8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stationmaster import ids
from stationmaster.gitea import acts, store, texts
from stationmaster.gitea.machine import BRANCH
from stationmaster.gitea.model import Branch, Session
from stationmaster.ledger.tx import Reader, Tx
from stationmaster.workspaces import branches, branching, mirror, worktree
from stationmaster.workspaces.branching import Decision
from stationmaster.workspaces.git import Git


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a session's branch is decided from.

    `base` is the tip that a new branch starts from: of the default branch, or with `follow` the head of a pull request,
    which work always builds on. `merged` says that the forge shows the branch's pull request as merged.
    """

    session: Session
    task_id: str
    rows: Sequence[Branch]
    base: str | None
    follow: bool
    merged: bool

    @property
    def current(self) -> Branch | None:
        """Returns the branch used last."""
        return next((row for row in self.rows if row.state == "current"), None)

    @property
    def name(self) -> str:
        """Returns the name used last, or the first one."""
        return self.current.name if self.current else first_name(self.session)


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision, and the branch on which a side that cannot go on is kept."""

    decision: Decision
    kept_as: str
    in_place: bool


def tree_name(session: Session) -> str:
    """Returns the name of the worktree of an issue or pull request."""
    return f"{session.kind}-{session.number}"


def first_name(session: Session) -> str:
    """Returns the name of a session's first task branch."""
    return f"stationmaster/{tree_name(session)}"


def choose(git: Git, bare: Path, tree: Path, wanted: Wanted) -> Choice:
    """Decides where the next task works; reads only, after a fetch."""
    name, base, row = wanted.name, wanted.base, wanted.current
    published = row.published_sha if row else None
    merged = wanted.merged or (not wanted.follow and _contained(git, bare, name, row, base))
    facts = branches.facts(git, bare, name, base=base, published=published, merged=merged)
    taken = mirror.branches(git, bare, first_name(wanted.session)) | {each.name for each in wanted.rows}
    decision = branching.decide(facts, taken)
    if wanted.follow and base is not None:
        start = decision.start or base
        decision = branching.follow_head(
            decision,
            base,
            head_in_ours=mirror.is_ancestor(git, bare, base, start),
            ours_in_head=mirror.is_ancestor(git, bare, start, base),
            taken=taken,
        )
    kept_as = name
    if decision.step == "set_aside":
        kept_as = branches.free_name(git, bare, f"stationmaster/saved/{wanted.task_id}")
    in_place = (
        decision.step == "keep"
        and worktree.is_registered(bare, tree)
        and worktree.current_branch(bare, tree) == decision.branch
    )
    return Choice(decision, kept_as if decision.left else "", in_place)


def _contained(git: Git, bare: Path, name: str, row: Branch | None, base: str | None) -> bool:
    # Merged as git sees it: what was published, and all that the forge's branch holds now, is in the base.
    if row is None or base is None or row.published_sha in {None, row.base_sha}:
        return False
    there = mirror.remote_tracking_tip(git, bare, name) or row.published_sha
    return all(mirror.is_ancestor(git, bare, str(sha), base) for sha in (row.published_sha, there))


def record(tx: Tx, session_id: str, name: str, start: str) -> None:
    """Makes `name` the session's current branch, before git does."""
    current = store.current_branch(tx, session_id)
    if current is not None and current.name == name:
        return
    if current is not None:
        tx.move(BRANCH, current.id, "retire", rev=current.rev, updated_at=tx.now)
    made = ids.new("branch")
    tx.born(BRANCH, made, "cut", session_id=session_id, name=name, base_sha=start, created_at=tx.now, updated_at=tx.now)


def published(tx: Tx, session_id: str, name: str, sha: str) -> None:
    """Stores that the forge's branch was proven to contain a commit."""
    _publish(tx, session_id, name, published_sha=sha)


def proposed(tx: Tx, session_id: str, name: str, pull: int) -> None:
    """Stores the pull request that was proven to be open for a branch."""
    _publish(tx, session_id, name, pull_number=pull)


def _publish(tx: Tx, session_id: str, name: str, **cols: str | int) -> None:
    row = store.current_branch(tx, session_id)
    if row is not None and row.name == name and any(getattr(row, key) != value for key, value in cols.items()):
        tx.move(BRANCH, row.id, "publish", rev=row.rev, updated_at=tx.now, **cols)


def kept_lines(reader: Reader, task_id: str) -> tuple[str, ...]:
    """Names the work that was kept aside for a task, also by an earlier try of it."""
    kept = [entry.data or {} for entry in acts.of_task(reader, task_id, "git.branch.intent")]
    return tuple(texts.kept_aside_line(data["left"], data["kept_as"]) for data in kept if data.get("left"))
