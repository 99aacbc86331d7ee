"""Orders by comment on a running product: stop, status, help, with the receipt kept up to date."""

from __future__ import annotations

from pathlib import Path

from tests.journeys.rig import EDIT, Rig, rule
from tests.support import eventually

WITHIN_S = 30.0


def test_a_person_stops_a_run_from_the_thread_and_is_told_once(tmp_path: Path) -> None:
    # GW-R-178, GW-R-102, GW-R-001
    with Rig.made(tmp_path, rule("please change", EDIT, {"hold": "for ever"}), live_receipt=True) as rig:
        rig.start()
        task_id = rig.accepted(rig.mention())
        eventually(lambda: any("at work" in words for words in rig.said()), WITHIN_S)
        eventually((rig.trees()[0] / "new.txt").exists, WITHIN_S)
        # bob may read only: his word stops nothing, and he is not told so.
        rig.mention("stop", author="bob")
        status = rig.mention("status")
        eventually(lambda: any("is being worked on" in words for words in rig.said()), WITHIN_S)
        assert rig.task(task_id)["task"]["state"] == "running"
        rig.mention("stop")
        found = rig.rests(task_id, "aborted")
        assert found["task"]["errorCode"] == "stopped_by_comment"
        eventually(lambda: any("· stopped" in words for words in rig.said()), WITHIN_S)
        # A power cut, and the forge's administrator sends one delivery again: nothing is said twice.
        rig.restart()
        rig.admin.replay(rig.delivered(status)[0]["id"])
        rig.mention("help")
        eventually(lambda: any("`@codebot stop`" in words for words in rig.said()), WITHIN_S)
        receipt, told, ended, helped = rig.said()
        assert "· stopped" in receipt
        assert "is being worked on" in told
        assert "stopped by a comment" in ended
        assert "kept as" in ended
        assert "`@codebot help`" in helped
        rig.leaves_nothing()
