"""Backup, wipe, restore, as an operator does it: tasks go on where they were, and nobody is answered twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from stationmaster.agents import process
from tests.journeys.rig import CHANGE, REPO, Rig, ask, rule
from tests.support import eventually

ASKING = rule("please decide", ask("Red or blue?"), "Asked.")
RED = rule(
    "red, please", {"shell": "echo red > colour.txt"}, {"call": {"name": "reply", "args": {"body": "Red."}}}, "Done."
)
LATER = rule("what did you", {"call": {"name": "reply", "args": {"body": "It is red."}}}, "Said.")


def _command(rig: Rig, *words: str) -> dict[str, Any]:
    done = rig.product.command_line(*words, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def _wipe(rig: Rig) -> None:
    """Loses everything but what an operator keeps elsewhere: the settings and the secrets."""
    rig.product.kill()
    for run_id in rig.run_ids():
        process.sweep(run_id)
    for path in rig.product.home.iterdir():
        if path.name not in {"token", "webhook-secret", "product.log"}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_after_a_wipe_and_a_restore_tasks_go_on_and_nothing_is_doubled(tmp_path: Path) -> None:
    # K7, GW-R-022, GW-R-014
    with Rig.made(tmp_path, ASKING, RED, CHANGE, LATER) as rig:
        rig.start()
        waiting = rig.accepted(rig.mention("please decide on a colour"))
        thread = rig.rests(waiting, "waiting_user")["session"]["threadId"]
        backup = tmp_path / "backup.tar"
        made = _command(rig, "backup", "create", str(backup))
        assert (made["file"], made["tasks"]) == (str(backup), 1)
        # The days that will be lost: the question is answered and so is a new one.
        rig.accepted(rig.mention("red, please"))
        rig.rests(waiting, "succeeded")
        lost = rig.accepted(rig.mention("please change it"))
        rig.rests(lost, "succeeded")
        before = rig.said()
        branches = rig.admin.branches(REPO)
        _wipe(rig)

        assert _command(rig, "backup", "restore", str(backup))["lastSeq"] == made["lastSeq"]
        rig.start()
        # What nobody delivers again is read; a person who sends it again changes nothing.
        for delivery in rig.admin.deliveries():
            rig.admin.replay(delivery["id"])
        rig.rests(waiting, "succeeded")
        eventually(lambda: len(rig.tasks()) == 2)
        for task in rig.tasks():
            rig.rests(task["taskId"], "succeeded")
        assert rig.said() == before
        assert rig.admin.branches(REPO) == branches

        # The conversation goes on in the same thread.
        task_id = rig.accepted(rig.mention("what did you do?"))
        found = rig.rests(task_id, "succeeded")
        assert found["session"]["threadId"] == thread
        assert "Red or blue?" in json.dumps([request["body"] for request in rig.model.requests[-2:]])
        assert len(rig.said()) == len(before) + 2
        rig.leaves_nothing()
        assert [event["action"] for event in rig.audit(action="backup.restored")] == ["backup.restored"]
