from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools import recovered

FINE: dict[str, Any] = {
    "story": "s",
    "kills": 1,
    "tasks": 1,
    "answered": 4,
    "lost": 0,
    "unanswered": 0,
    "duplicateReplies": 0,
    "stuck": 0,
    "recoveries": [{"readyS": 1.0, "left": 1, "wentOnS": 2.0, "restedS": 3.0}],
}
TWICE = {
    **FINE,
    "kills": 2,
    "recoveries": [
        {"readyS": 2.0, "left": 1, "wentOnS": None, "restedS": None},
        {"readyS": 4.0, "left": 1, "wentOnS": 5.0, "restedS": 6.0},
    ],
}


def test_what_came_of_it_is_added_up() -> None:
    found = recovered.summed([FINE, TWICE])
    assert (found.stories, found.kills, found.tasks, found.answered) == (2, 3, 2, 8)
    assert found.times == {"readyS": [1.0, 2.0, 4.0], "wentOnS": [2.0, 5.0], "restedS": [3.0, 6.0]}
    shown = recovered.table(found)
    assert "median 2.00 s, 95 % within 4.00 s, worst 4.00 s (n = 3)" in shown
    assert "median 2.00 s, 95 % within 5.00 s, worst 5.00 s (n = 2)" in shown


def test_without_a_time_nothing_is_made_up() -> None:
    assert "nothing to time" in recovered.table(recovered.summed([{**FINE, "recoveries": [{}]}]))


@pytest.mark.parametrize("wrong", ["lost", "duplicateReplies", "stuck"])
def test_whatever_went_wrong_is_the_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    file = tmp_path / "record"
    file.write_text(json.dumps(FINE) + "\n")
    assert recovered.main([str(file)]) == 0
    file.write_text(json.dumps({**FINE, wrong: 1}) + "\n")
    assert recovered.main([str(file)]) == 1
    assert "| tasks stuck |" in capsys.readouterr().out
