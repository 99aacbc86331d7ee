"""Performs checks one after another, each within its own time, and says each finding in one line.

Whatever a check meets becomes a finding: an error its sentence, an unforeseen exception its place, a check that hangs
its name. No line holds a secret that this process has read.
"""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal

from stationmaster import redact
from stationmaster.errors import Bug, StationmasterError

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found: one sentence, and for anything but "ok" what to do about it."""

    status: Status
    name: str
    message: str
    hint: str = ""

    def line(self) -> str:
        """Returns the line for people."""
        return _clean(f"{self.status:<4}  {self.name}: {self.message} {self.hint}".rstrip())

    def json(self) -> str:
        """Returns the line for programs."""
        return json.dumps({key: _clean(value) for key, value in asdict(self).items()}, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Check:
    """One check; `hint` is what to do when it ends with an error that says nothing about it."""

    name: str
    look: Callable[[], Iterable[Finding]]
    seconds: float
    hint: str


def ok(name: str, message: str) -> Finding:
    """Makes a finding that asks for nothing."""
    return Finding("ok", name, message)


def warn(name: str, message: str, hint: str) -> Finding:
    """Makes a finding that an operator should know."""
    return Finding("warn", name, message, hint)


def fail(name: str, message: str, hint: str) -> Finding:
    """Makes a finding that stops work, or will."""
    return Finding("fail", name, message, hint)


def perform(check: Check) -> Iterator[Finding]:
    """Yields what a check finds, as it finds it; never raises what the check raised."""
    found: SimpleQueue[Finding | None] = SimpleQueue()
    # A daemon thread: a check that hangs in the kernel, as on a dead network folder, must not keep the process.
    threading.Thread(target=_look, args=(check, found), name=f"doctor-{check.name}", daemon=True).start()
    end = time.monotonic() + check.seconds
    while True:
        try:
            finding = found.get(timeout=max(0.0, end - time.monotonic()))
        except Empty:
            yield fail(check.name, f"This check did not end within {check.seconds:g} s.", check.hint)
            return
        if finding is None:
            return
        yield finding


def _look(check: Check, found: SimpleQueue[Finding | None]) -> None:
    try:
        for finding in check.look():
            found.put(finding)
    except Bug as error:
        found.put(_unforeseen(check.name, error))
    except StationmasterError as error:
        found.put(fail(check.name, error.message, error.hint or check.hint))
    except OSError as error:
        place = error.filename or "A file or connection"
        found.put(fail(check.name, f"{place} cannot be used: {error.strerror or type(error).__name__}.", check.hint))
    except Exception as error:  # noqa: BLE001 - one check must not take the others with it
        found.put(_unforeseen(check.name, error))
    finally:
        found.put(None)


def _unforeseen(name: str, error: Exception) -> Finding:
    # Its words may hold anything; its place is what whoever mends it needs.
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return fail(
        name,
        f"This check met a mistake of its own ({type(error).__name__}{place}).",
        "Report this line to those who maintain Stationmaster.",
    )


def _clean(text: str) -> str:
    # What others wrote (a forge, a program) must neither break the line nor steer the terminal.
    return redact.clean("".join(char if char.isprintable() else " " for char in text))
