"""The forge takes what it is given and does not say so, or shows less than it has: nothing is written twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.journeys.rig import CHANGE, REPO, Rig

_COMMENTS = {"method": "POST", "path": r"/issues/\d+/comments$"}
_PULLS = {"method": "POST", "path": r"/pulls$"}
_PUSH = {"method": "POST", "path": "git-receive-pack"}
# How an answer gets lost after the forge has done what it was asked.
LOST: dict[str, dict[str, Any]] = {
    "the connection drops": {"kind": "drop_after"},
    "a proxy answers 502": {"kind": "answer", "status": 502, "effect": True},
    "it hangs": {"kind": "delay", "seconds": 15, "when": "after"},
}


def _once(rig: Rig, task_id: str) -> None:
    found = rig.rests(task_id)
    rig.proves(found)
    assert len(rig.said()) == 2
    assert len(rig.admin.pulls(REPO)) == 1
    assert len(found["turns"]) == 1


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize(("what", "skip"), [("receipt", 0), ("answer", 1)])
def test_a_comment_whose_answer_is_lost_is_read_back_and_not_written_again(
    tmp_path: Path, how: str, what: str, skip: int
) -> None:
    # GW-R-138, GW-R-188
    assert what
    with Rig.made(tmp_path, CHANGE, timeout_s=2.0) as rig:
        rig.start()
        rig.admin.add_fault(match=_COMMENTS, skip=skip, **LOST[how])
        _once(rig, rig.accepted(rig.mention()))
        assert [fault["hits"] for fault in rig.admin.faults()] == [1]


@pytest.mark.parametrize("how", ["the connection drops", "a proxy answers 502"])
@pytest.mark.parametrize("match", [_PULLS, _PUSH], ids=["pull request", "push"])
def test_work_whose_publishing_is_not_confirmed_is_published_once(
    tmp_path: Path, how: str, match: dict[str, str]
) -> None:
    with Rig.made(tmp_path, CHANGE, timeout_s=2.0) as rig:
        rig.start()
        rig.admin.add_fault(match=match, **LOST[how])
        task_id = rig.accepted(rig.mention())
        _once(rig, task_id)
        [branch] = rig.task(task_id)["branches"]
        assert rig.admin.branches(REPO)[branch["name"]] == branch["publishedSha"]
        assert branch["pullRequest"] == rig.admin.pulls(REPO)[0]["number"]


def test_an_answer_that_shows_up_late_is_still_found(rig: Rig) -> None:
    rig.admin.add_fault("hide_comment", match={"body": "Changed it"}, count=1)
    _once(rig, rig.accepted(rig.mention()))


def test_a_task_whose_comments_cannot_be_read_posts_nothing_more(rig: Rig) -> None:
    # GW-R-250 AC-11, GW-R-169
    match = {"method": "GET", "path": r"/issues/\d+/comments"}
    rig.admin.add_fault("answer", match=match, count=None, status=502)
    found = rig.rests(rig.accepted(rig.mention()))
    assert (found["task"]["state"], found["task"]["errorCode"]) == ("failed_reply", "reply_status_unknown")
    assert len([body for body in rig.said() if "Changed it." in body]) == 1
    rig.leaves_nothing()
