from __future__ import annotations

from stationmaster.gitea.patience import Patience


def test_pauses_grow_to_the_longest_and_begin_anew_once_forgotten() -> None:
    patience = Patience(10, 35)
    ends = []
    for _ in range(4):
        patience.put_off("a", 100)
        ends.append(next(now for now in range(100, 200) if patience.over("a", now)))
    assert ends == [110, 120, 135, 135]
    patience.forget("a")
    patience.put_off("a", 0)
    assert (patience.over("a", 9), patience.over("a", 10)) == (False, True)


def test_a_known_time_counts_more_than_the_pause() -> None:
    patience = Patience(10, 40)
    patience.put_off("a", 100, 500)
    assert (patience.over("a", 499), patience.over("a", 500)) == (False, True)
    assert patience.over("b", 0)
    patience.keep({"b"})
    assert patience.over("a", 0)
