"""K6: what must not happen inside a command notices that it is inside one."""

from __future__ import annotations

import threading

import pytest

from stationmaster.command import assert_outside, inside_command, is_inside
from stationmaster.errors import Bug


def test_an_effect_inside_a_command_is_a_bug() -> None:
    assert_outside("a fetch")
    with inside_command(), pytest.raises(Bug, match="a fetch inside a command"):
        assert_outside("a fetch")
    assert_outside("a fetch")


def test_a_command_inside_a_command_is_a_bug() -> None:
    with inside_command():
        with pytest.raises(Bug):
            inside_command().__enter__()
        assert is_inside()


def test_the_mark_is_the_threads_own_and_goes_with_an_error() -> None:
    seen: list[bool] = []

    def body() -> None:
        other = threading.Thread(target=lambda: seen.append(is_inside()))
        other.start()
        other.join(10)
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"), inside_command():
        body()
    assert seen == [False]
    assert not is_inside()
