from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from stationmaster.measure import Spread, Tally


def test_a_value_counts_in_the_first_range_whose_end_it_does_not_pass() -> None:
    spread = Spread((1.0, 5.0))
    for value in (0.0, 1.0, 1.01, 5.0, 5.01, 99.0):
        spread.add(value)
    taken = spread.taken()
    assert taken.counts == (2, 2, 2)
    assert taken.total == 111.02
    spread.add(2.0)
    assert taken.counts == (2, 2, 2)


def test_nothing_is_lost_when_many_threads_count() -> None:
    spread, tally = Spread((1.0,)), Tally()

    def many(_: int) -> None:
        for _ in range(500):
            spread.add(0.5)
            tally.add("a", "b")
            tally.add("c", by=2)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(many, range(8)))
    assert spread.taken().counts == (4000, 0)
    assert tally.taken() == {("a", "b"): 4000, ("c",): 8000}
