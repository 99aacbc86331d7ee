"""SIGKILL at every fault point between webhook and proof, with the real agent, the real git and a real forge.

Whatever the point: a delivery that was answered 2xx is not lost, there is one task, one answer, no second execution
beyond the budget, no process left over, no dirt, and nobody had to do anything but start the product again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.rig import REPO, Rig, fault_points, reply, rule

# Two changed files, and a repository of the agent's own that must be moved aside before its files can be saved.
_WORK = {
    "shell": "echo better >> README.md; echo new > new.txt;"
    " mkdir -p lib; cd lib; git init -q 2>/dev/null; echo inner > inner.txt"
}
WORKING = rule("please change", _WORK, reply("Changed it."), "Done.")
# It changes something more after it has answered: that stays unpublished until the next task.
TRAILING = rule("please begin", _WORK, reply("Begun."), {"shell": "echo later > later.txt"}, "Done.")
SILENT = (
    rule("is not there", "I still keep it to myself."),
    rule("please mumble", _WORK, "I changed it, and I keep that to myself."),
)

# What only an operator's request passes through; tests/journeys/test_operators.py and tests/ops/backup kill it there.
_OPERATORS = {"backup.before_rename", "operate.accepted", "unblock.looked"}
# What is found after an absence; tests/journeys/test_catchup.py kills it there.
_FOUND = {"catchup.admitted"}
# What only some settings lead through; tests/journeys/test_kill_beside.py kills it there.
_BESIDE = {"live.edited", "steering.said"}
# What comes before the product runs at all; tests/ops/test_init.py kills it there.
_SET_UP = {"init.files_written", "init.hook_made", "init.secrets_written"}
_LATER = {
    "prepare.fetch.intended",
    "prepare.fetch.done",
    "workspace.branch.after_set_aside",
    "workspace.switch.after_branch",
}
_FALLBACK = {"verify.fallback_intended", "verify.fallback_posted"}
# The first death that brings recovery to the point.
_TWICE = {
    "prepare.reclaim.put_away": "workspace.clone.before_rename",
    "recovery.swept": "run.turn_bound",
    "recovery.saved": "run.turn_bound",
    "recovery.moved": "run.turn_bound",
}
# Recovery dies at one of its own commits, over work that died in other states.
_IN_ANY_STATE = [
    ("ledger.before_commit:4", "publish.push.done"),
    ("ledger.after_commit:6", "verify.intended"),
    ("ledger.before_commit:8", "verify.looked"),
]
# The first pass is the receipt's, the second the answer's.
_AGAIN = ("outbox.intended", "outbox.sent", "outbox.delivered", "outbox.proven")
# The ledger's points are passed at every commit: some early, some late.
_COMMITS = {"ledger.before_commit": (8, 24, 40), "ledger.after_commit": (6, 16, 32)}


def _first_tasks() -> Iterator[str]:
    for point in fault_points():
        if point in _COMMITS:
            yield from (f"{point}:{nth}" for nth in _COMMITS[point])
        elif point not in _OPERATORS | _FOUND | _BESIDE | _SET_UP | _LATER | _FALLBACK | set(_TWICE):
            yield point
    yield from (f"{point}:2" for point in _AGAIN)


def _settled(rig: Rig, comment: int, *, state: str = "succeeded") -> None:
    """Starts the product again and asserts that all is as if nothing had happened."""
    answered = [json.loads(row["response"]["body"])["taskId"] for row in rig.delivered(comment) if row["succeeded"]]
    rig.start()
    task_id = rig.accepted(comment)
    assert set(answered) <= {task_id}
    found = rig.rests(task_id)
    rig.proves(found, state=state)
    assert len([each for each in rig.tasks() if each["commentId"] == comment]) == 1
    assert len([turn for turn in found["turns"] if turn["kind"] == "normal"]) <= 2
    assert len(rig.admin.pulls(REPO)) == 1
    [branch] = [each for each in found["branches"] if each["status"] == "current"]
    assert rig.admin.branches(REPO)[branch["name"]] == branch["publishedSha"]
    assert rig.admin.file(REPO, branch["name"], "lib/inner.txt") == "inner\n"
    assert len(rig.said()) == len(set(rig.said()))


@pytest.mark.parametrize("point", list(_first_tasks()))
def test_a_kill_loses_nothing_and_repeats_nothing(tmp_path: Path, point: str) -> None:
    # GW-R-251 AC-12, GW-R-182, GW-R-190
    with Rig.made(tmp_path, WORKING) as rig:
        rig.start(point)
        comment = rig.mention()
        rig.dies()
        _settled(rig, comment)


@pytest.mark.parametrize("point", sorted(_LATER))
def test_a_kill_in_a_later_task_whose_branch_went_two_ways(tmp_path: Path, point: str) -> None:
    # GW-R-251 AC-12
    with Rig.made(tmp_path, TRAILING, WORKING) as rig:
        rig.start()
        rig.proves(rig.rests(rig.accepted(rig.mention("please begin"))))
        rig.admin.commit(REPO, "alice", {"person.txt": "mine\n"}, branch="stationmaster/issue-1")
        rig.restart(point)
        comment = rig.mention()
        rig.dies()
        _settled(rig, comment)
        assert rig.admin.file(REPO, "stationmaster/issue-1", "person.txt") == "mine\n"


@pytest.mark.parametrize("point", sorted(_FALLBACK))
def test_a_kill_while_the_answer_is_posted_for_the_agent(tmp_path: Path, point: str) -> None:
    # GW-R-249 AC-10, GW-R-251 AC-12
    with Rig.made(tmp_path, *SILENT) as rig:
        rig.start(point)
        task_id = rig.accepted(rig.mention("please mumble"))
        rig.dies()
        rig.start()
        found = rig.rests(task_id)
        rig.proves(found, state="succeeded_with_rest_fallback")
        assert len(found["turns"]) == 2


@pytest.mark.parametrize(("point", "first"), [*sorted(_TWICE.items()), *_IN_ANY_STATE])
def test_a_kill_while_recovery_works(tmp_path: Path, point: str, first: str) -> None:
    # GW-R-251 AC-12, GW-R-190
    with Rig.made(tmp_path, WORKING) as rig:
        rig.start(first)
        comment = rig.mention()
        rig.dies()
        rig.start(point)
        rig.dies()
        _settled(rig, comment)
