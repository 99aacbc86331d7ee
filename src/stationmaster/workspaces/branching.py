"""Decides which branch the next task of an issue or pull request works on, and from where. Pure, table-tested.

The branch is cut once and then continued. Nothing we made is dropped: a side that cannot go on is kept under another
name or left where it is, and the decision names its commit.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Step = Literal["cut", "keep", "forward", "set_aside", "next"]
Reason = Literal["new", "same", "behind", "ahead", "diverged", "rewritten", "gone", "merged", "head_moved"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known after a fetch.

    `branch` is the name used last (or the first one, when none was), `local` and `remote` its tips here and at the
    forge, `published` the commit that we last proved to be there. The `_in_` facts say which commit contains which; a
    missing side makes them False. `merged` says that its pull request was merged. `base` is where a new branch starts.
    """

    branch: str
    base: str | None
    local: str | None = None
    remote: str | None = None
    published: str | None = None
    local_in_remote: bool = False
    remote_in_local: bool = False
    published_in_remote: bool = False
    published_contains_local: bool = False
    merged: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with the clean worktree.

    - `cut`: make `branch` at `start`; - `keep`: go on where it is; - `forward`: fast-forward to `start`;
    - `set_aside`: rename the local side to the saved branch, then make `branch` anew at `start`;
    - `next`: leave the old branch as it is and make the next name, `branch`, at `start`.
    `left` is a commit of ours with unpublished work that the new branch does not contain; the reply names it.
    `start` is None only when there is no commit to start from.
    """

    step: Step
    branch: str
    start: str | None
    left: str | None = None
    reason: Reason = "same"


def decide(facts: Facts, taken: Collection[str] = ()) -> Decision:
    """Returns what the next task does; `taken` are the branch names that may not be used again."""
    ended = _ended(facts)
    if ended is not None:
        reason, start = ended
        return Decision("next", next_name(facts.branch, taken), start, _unpublished(facts), reason)
    if facts.local is None:
        reason = "new" if facts.remote is None else "behind"
        return Decision("cut", facts.branch, facts.remote or facts.base, reason=reason)
    if facts.remote in {None, facts.local} or facts.remote_in_local:
        reason = "same" if facts.local == facts.remote else "ahead"
        return Decision("keep", facts.branch, facts.local, reason=reason)
    if facts.local_in_remote:
        return Decision("forward", facts.branch, facts.remote, reason="behind")
    return Decision("set_aside", facts.branch, facts.remote, facts.local, "diverged")


def _ended(facts: Facts) -> tuple[Reason, str | None] | None:
    # Why the branch used so far cannot be continued, and where the next one starts; None when it can.
    if facts.merged:
        return "merged", facts.base
    if facts.published is None:
        return None
    if facts.remote is None:
        return "gone", facts.base
    return None if facts.published_in_remote else ("rewritten", facts.remote)


def _unpublished(facts: Facts) -> str | None:
    # Work of ours that neither the forge's branch nor the last proven push holds.
    if facts.local is None or facts.local_in_remote or facts.local in {facts.remote, facts.published, facts.base}:
        return None
    return None if facts.published_contains_local else facts.local


def follow_head(
    decision: Decision, head: str, *, head_in_ours: bool, ours_in_head: bool, taken: Collection[str] = ()
) -> Decision:
    """Adjusts a decision for a pull request whose head may have moved on (work always builds on the current head).

    The two facts compare the head with `decision.start`.
    """
    if decision.start is None or decision.step == "next":
        return Decision(decision.step, decision.branch, head, decision.left, decision.reason)
    if decision.start == head or head_in_ours:
        return decision
    if ours_in_head:
        step: Step = "forward" if decision.step == "keep" else decision.step
        return Decision(step, decision.branch, head, decision.left, "head_moved")
    left = decision.left or (decision.start if decision.step == "keep" else None)
    return Decision("next", next_name(decision.branch, taken), head, left, "head_moved")


def next_name(branch: str, taken: Collection[str] = ()) -> str:
    """Returns `<name>-<k>` with the smallest k from 2 that is free; a name that has such an ending counts on."""
    base, _, ending = branch.rpartition("-")
    # The first name already ends in the number of the issue: only a second number is a count.
    counted = ending.isdigit() and base.rpartition("-")[2].isdigit()
    stem, number = (base, int(ending)) if counted else (branch, 1)
    while True:
        number += 1
        name = f"{stem}-{number}"
        if name not in taken:
            return name
