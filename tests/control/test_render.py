from __future__ import annotations

from stationmaster.control import render


def test_a_strangers_text_cannot_speak_to_the_terminal() -> None:
    shown = render.text("a\x1b[31mred\r\nstate\u2028succeeded\x9b2J\u202e")
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 1
    assert shown == "a [31mred  state succeeded 2J "


def test_lists_become_tables_and_the_rest_lines() -> None:
    page = render.page(
        {"state": "running", "none": None, "turns": [{"id": "t1", "ok": True}, {"id": "t22", "ok": False}]}
    )
    assert page.splitlines() == ["state  running", "none   -", "", "turns:", "id   ok", "t1   yes", "t22  no"]
    assert render.page({"tasks": []}) == "Nothing."


def test_columns_are_chosen_and_long_cells_cut() -> None:
    rows = [{"a": "x" * 100, "b": 1}]
    heading, line = render.table(rows, ("b", "a")).splitlines()
    assert heading.split() == ["b", "a"]
    assert line.endswith("…")
    assert len(line) == 63
