"""What is written down of a story with kills is what happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.journeys.record import Recorder
from tests.journeys.rig import BOT, REPO, Rig


def test_a_kill_is_written_down_with_what_came_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "record"
    monkeypatch.setattr(Rig, "recorder", Recorder(file))
    with Rig.made(tmp_path / "killed") as rig:
        rig.start("run.turn_bound")
        comment = rig.mention()
        rig.dies()
        rig.start()
        task_id = rig.accepted(comment)
        rig.proves(rig.rests(task_id))
        # What somebody posts under the bot's name with our mark is a second answer, wherever it comes from.
        [answer] = rig.answers(task_id)
        rig.admin.comment(REPO, 1, BOT, answer)
    [line] = [json.loads(row) for row in file.read_text().splitlines()]
    assert (line["kills"], line["tasks"], line["lost"], line["stuck"]) == (1, 1, 0, 0)
    assert line["answered"] >= 1
    assert line["duplicateReplies"] == 1
    [recovery] = line["recoveries"]
    assert recovery["left"] == 1
    assert 0 < recovery["readyS"] < recovery["restedS"]
    assert 0 < recovery["wentOnS"] < recovery["restedS"]
