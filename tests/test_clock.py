"""K11: one clock, which never runs backwards and never gives one moment twice."""

from __future__ import annotations

import threading
import time

import pytest

from stationmaster import clock
from stationmaster.clock import MICROS, ManualClock, SystemClock


def test_every_moment_is_later_than_the_last_one() -> None:
    one = SystemClock()
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.extend(one.now() for _ in range(2000))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(set(seen)) == 8000
    assert abs(one.now() - time.time() * MICROS) < 60 * MICROS


def test_a_wall_clock_that_jumps_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one = SystemClock()
    before = one.now()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert 0 < one.now() - before < 60 * MICROS


def test_what_the_ledger_has_seen_is_never_in_the_future() -> None:
    seen = time.time_ns() // 1000 + 500 * MICROS
    late, told = SystemClock(seen), SystemClock()
    told.not_before(seen)
    for one in (late, told):
        first = one.now()
        assert seen < first < seen + 60 * MICROS
        one.not_before(seen - 1000)
        assert one.now() > first


def test_a_clock_set_by_hand_moves_by_hand() -> None:
    one = ManualClock(10 * MICROS)
    first = one.now()
    one.advance(2.5)
    assert one.now() - first == 2_500_001


@pytest.mark.parametrize(
    ("micros", "text"), [(0, "1970-01-01T00:00:00.000Z"), (1_800_000_000_123_999, "2027-01-15T08:00:00.123Z")]
)
def test_the_wire_shows_milliseconds(micros: int, text: str) -> None:  # GW-R-024
    assert clock.iso(micros) == text
    assert clock.from_iso(text) == micros // 1000 * 1000
    assert clock.from_iso(text.replace("Z", "+00:00")) == micros // 1000 * 1000


def test_a_time_without_a_zone_is_no_time() -> None:
    with pytest.raises(ValueError, match="without a zone"):
        clock.from_iso("2027-01-15T08:00:00")
