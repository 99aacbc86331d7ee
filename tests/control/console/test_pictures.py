"""Pictures are well-formed whatever is in them, keep within their frame, and say what they show."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from stationmaster.control.console import pictures
from stationmaster.gitea.machine import TASK

HOSTILE = st.text(st.characters(exclude_categories=("Cs", "Cc"))) | st.just('"><script>&{}\u202e')
COUNTS = st.fixed_dictionaries({name: st.integers(0, 10**9) for name in ("good", "open", "bad")})
INGRESS = {"received", "ignored", "duplicate", "rejected"}


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)


@given(st.lists(COUNTS, max_size=30), HOSTILE)
@settings(max_examples=60, deadline=None)
def test_hours(rows: list[dict[str, int]], title: str) -> None:
    root = parsed(pictures.hours(rows, title, lambda row: f"{title} {row['good']}"))
    _, _, wide, high = map(float, root.attrib["viewBox"].split())
    for bar in root.iter("rect"):
        x, y, width, height = (float(bar.attrib[name]) for name in ("x", "y", "width", "height"))
        assert -0.01 <= y <= y + height <= high + 0.01
        assert 0 <= x <= x + width <= wide
    assert [title] == [root[0].text or ""] or not title.strip()


@given(st.sampled_from(sorted(TASK.states)), st.lists(st.sampled_from(sorted(TASK.states)), max_size=12), HOSTILE)
@settings(max_examples=80, deadline=None)
def test_states(current: str, visited: list[str], word: str) -> None:
    root = parsed(pictures.states(TASK, current, visited, word, lambda _state: word))
    _, _, wide, high = map(float, root.attrib["viewBox"].split())
    boxes = [(float(box.attrib["x"]), float(box.attrib["y"])) for box in root.findall("g/rect")]
    assert len(boxes) == len(set(boxes)) == len(TASK.states - INGRESS)
    assert all(0 <= x < wide and 0 <= y < high for x, y in boxes)
    now = [group for group in root.findall("g") if group.attrib["class"] == "state is-now"]
    assert len(now) == (0 if current in INGRESS else 1)
    for line in root.findall("line"):
        assert all(0 <= float(line.attrib[name]) <= max(wide, high) for name in ("x1", "y1", "x2", "y2"))


def test_a_way_that_was_gone_is_drawn_apart_from_those_that_are_left() -> None:
    root = parsed(pictures.states(TASK, "running", ["queued", "preparing", "running"], "way", str))
    kinds = [line.attrib["class"] for line in root.findall("line")]
    assert kinds.count("way gone") == 2
    assert kinds.count("way") == len({end for begin, _, end in TASK.edges if begin == "running" and end != "running"})


@given(st.floats(-5, 5), st.floats(-5, 5))
def test_a_bar_stays_in_its_whole(begin: float, end: float) -> None:
    bar = parsed(pictures.bar(begin, end, "is-open"))[1]
    left, width = float(bar.attrib["x"]), float(bar.attrib["width"])
    assert 0 <= left <= 99
    assert 1 <= width <= 100
