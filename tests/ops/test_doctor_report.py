from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator

import pytest

from stationmaster import redact
from stationmaster.errors import Bug, Unavailable
from stationmaster.ops.doctor.report import Check, Finding, fail, ok, perform, warn
from tests.ops.patient import one

SECRET = "seeded-secret-4711"


def check(look: Callable[[], Iterator[Finding]], seconds: float = 20.0) -> list[Finding]:
    return list(perform(Check("part", look, seconds, "Look there.")))


def test_a_line_says_how_it_is_and_what_to_do() -> None:
    assert ok("part", "It works.").line() == "ok    part: It works."
    assert warn("part", "It is odd.", "Turn it.").line() == "warn  part: It is odd. Turn it."
    assert fail("part", "It is broken.", "Mend it.").line() == "fail  part: It is broken. Mend it."
    said = json.loads(fail("part", "Es ist kaputt: ä.", "Mend it.").json())
    assert said == {"status": "fail", "name": "part", "message": "Es ist kaputt: ä.", "hint": "Mend it."}


def test_a_line_neither_breaks_nor_steers_the_terminal() -> None:
    finding = ok("part", "one\ntwo\x1b[31m\rthree")
    assert finding.line() == "ok    part: one two [31m three"
    assert len(finding.json().splitlines()) == 1


def test_a_known_secret_is_in_no_line() -> None:
    redact.register(SECRET)
    finding = fail("part", f"It said {SECRET}.", f"Forget {SECRET}.")
    assert SECRET not in finding.line() + finding.json()


def test_a_check_that_hangs_ends_in_its_time_and_keeps_what_it_found() -> None:
    gate = threading.Event()

    def hangs() -> Iterator[Finding]:
        yield ok("part", "The first half works.")
        gate.wait()
        yield ok("part", "Never said.")

    found = check(hangs, 0.1)
    gate.set()
    assert [finding.status for finding in found] == ["ok", "fail"]
    assert found[1].message == "This check did not end within 0.1 s."
    assert found[1].hint == "Look there."


def test_an_error_is_its_own_sentence() -> None:
    def told() -> Iterator[Finding]:
        yield ok("part", "So far.")
        raise Unavailable("The forge sleeps.", hint="Wake it.")

    assert check(told)[1] == fail("part", "The forge sleeps.", "Wake it.")

    def silent() -> Iterator[Finding]:
        yield from ()
        raise Unavailable("The forge sleeps.")

    assert check(silent) == [fail("part", "The forge sleeps.", "Look there.")]


def test_a_file_that_cannot_be_used_is_named() -> None:
    def absent() -> Iterator[Finding]:
        with open("/nowhere/at/all"):  # noqa: PTH123 - any way of opening a file
            yield ok("part", "It is there.")

    assert check(absent) == [fail("part", "/nowhere/at/all cannot be used: No such file or directory.", "Look there.")]


@pytest.mark.parametrize("error", [ValueError(f"saw {SECRET}"), KeyError(SECRET), Bug(f"BUG: {SECRET}")])
def test_an_unforeseen_error_is_a_line_with_its_place_and_none_of_its_words(error: Exception) -> None:
    def broken() -> Iterator[Finding]:
        yield from ()
        raise error

    line = one(broken())
    assert line.startswith(f"fail  check: This check met a mistake of its own ({type(error).__name__} in ")
    assert "test_doctor_report.py, line " in line
    assert SECRET not in line
