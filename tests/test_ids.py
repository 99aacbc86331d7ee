"""K11: one id maker, whose ids sort by the millisecond they were made in."""

from __future__ import annotations

import re
import time

import pytest

from stationmaster import ids


def test_an_id_names_its_kind_and_is_a_uuid_of_version_7() -> None:
    made = ids.uuid7()
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert abs((made.int >> 80) - time.time() * 1000) < 60_000
    assert re.fullmatch(r"run_[0-9a-f]{32}", ids.new("run"))


def test_no_two_are_equal() -> None:
    assert len({ids.new("x") for _ in range(10_000)}) == 10_000


def test_a_later_one_sorts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(1_700_000_000_000, 1_700_000_000_100))
    monkeypatch.setattr(time, "time_ns", lambda: next(moments) * 1_000_000)
    made = [ids.new("x") for _ in range(100)]
    assert made == sorted(made)
