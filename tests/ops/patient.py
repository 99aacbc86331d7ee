"""What tests of the doctor need: a configured home, and checks inside a machine with something missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stationmaster.ops import config
from stationmaster.ops.doctor.report import Check, Finding, perform
from stationmaster.ops.home import Home
from stationmaster.ops.settings import Config

_PERFORM = """
import sys
from functools import partial
from pathlib import Path
from stationmaster.ops import config
from stationmaster.ops.doctor import {module}
from stationmaster.ops.doctor.report import Check, perform
from stationmaster.ops.home import Home
place = Home(Path(sys.argv[1]))
for finding in perform(Check("{check}", lambda: {module}.{call}, 20, "See there.")):
    print(finding.line())
"""


@dataclass(frozen=True, slots=True)
class Patient:
    """A home folder with settings."""

    home: Home
    config: Config


def patient(folder: Path, text: str = "") -> Patient:
    """Makes a home with these settings."""
    folder.mkdir(mode=0o700, exist_ok=True)
    place = Home(folder)
    place.config_file.write_text(text)
    return Patient(place, config.load(place))


def look(check: Iterable[Finding], name: str = "check") -> list[str]:
    """Performs a check as doctor does; returns its lines."""
    return [finding.line() for finding in perform(Check(name, lambda: check, 120, "See there."))]


def one(check: Iterable[Finding], name: str = "check") -> str:
    """Performs a check that finds one thing; returns its line."""
    [line] = look(check, name)
    return line


def elsewhere(place: Home, call: str, *changes: str, module: str = "host") -> list[str]:
    """Performs a check of `module` in a copy of this machine with bubblewrap's `changes`; returns its lines."""
    code = _PERFORM.format(module=module, call=call, check=call.partition("(")[0])
    words = ["bwrap", "--dev-bind", "/", "/", *changes, "--", sys.executable, "-c", code, str(place.path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
