"""Gathers what `branching` decides on, and carries a decision out in a clean worktree; every step may be repeated."""

from __future__ import annotations

from pathlib import Path

from stationmaster import faults
from stationmaster.errors import Invalid
from stationmaster.workspaces import mirror, worktree
from stationmaster.workspaces.branching import Decision, Facts
from stationmaster.workspaces.git import Git


def facts(git: Git, bare: Path, branch: str, *, base: str | None, published: str | None, merged: bool) -> Facts:
    """Reads where a task branch stands, here and at the last fetch."""
    local = mirror.local_tip(git, bare, branch)
    remote = mirror.remote_tracking_tip(git, bare, branch)

    def holds(old: str | None, new: str | None) -> bool:
        return bool(old and new) and (old == new or mirror.is_ancestor(git, bare, str(old), str(new)))

    return Facts(
        branch=branch,
        base=base,
        local=local,
        remote=remote,
        published=published,
        local_in_remote=holds(local, remote),
        remote_in_local=holds(remote, local),
        published_in_remote=holds(published, remote),
        published_contains_local=holds(local, published),
        merged=merged,
    )


def free_name(git: Git, bare: Path, name: str) -> str:
    """Returns `name`, or the first of `<name>-2`, `<name>-3`, … that no branch here or at the forge has."""
    taken = mirror.branches(git, bare, name)
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def apply(git: Git, bare: Path, tree: Path, decision: Decision, *, saved_as: str) -> str:
    """Carries a decision out and returns the commit that the worktree then stands on.

    `saved_as` is the branch name that a side set aside gets. Doing it again after a crash ends the same: the rename
    is skipped when it was done, and a branch that exists keeps its place.
    """
    if decision.start is None:
        raise Invalid("The repository has no commit to start from.", code="git_ref_missing", hint="Push a first one.")
    if decision.step == "set_aside":
        _set_aside(git, bare, decision, saved_as)
        faults.point("workspace.branch.after_set_aside")
    if worktree.is_registered(bare, tree):
        worktree.switch(git, bare, tree, decision.branch, decision.start)
    else:
        worktree.ensure(git, bare, tree, decision.branch, decision.start)
    if decision.step == "forward":
        worktree.fast_forward(git, bare, tree, decision.start)
    return mirror.local_tip(git, bare, decision.branch) or decision.start


def _set_aside(git: Git, bare: Path, decision: Decision, saved_as: str) -> None:
    # A branch that no longer stands on the side to keep was renamed before, or is the new one already.
    if mirror.local_tip(git, bare, decision.branch) == decision.left:
        mirror.rename_branch(git, bare, decision.branch, saved_as)
