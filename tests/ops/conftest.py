"""The product as a process: a home of its own, and the command line that works on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import warm

COMMAND = [sys.executable, "-m", "stationmaster.ops.main"]
SECRETS = {"SM_TEST_TOKEN": "seeded-token-0815", "SM_TEST_HOOK": "seeded-hook-secret-0815"}
CONFIG = """
[gitea]
base_url = "http://127.0.0.1:9"
token_ref = "env:SM_TEST_TOKEN"
webhook_secret_ref = "env:SM_TEST_HOOK"
[web]
port = 0
"""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running `stationmaster up` and what it said when it was ready."""

    process: subprocess.Popen[str]
    ready: dict[str, Any]

    @property
    def url(self) -> str:
        return str(self.ready["web"])

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Ends the process; returns its exit status and what it wrote to standard error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STATIONMASTER_")}
    return {**kept, **SECRETS, "STATIONMASTER_HOME": str(home)}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A configured home."""
    made = tmp_path / "home"
    made.mkdir(mode=0o700)
    (made / "stationmaster.toml").write_text(CONFIG)
    return made


@pytest.fixture
def run(home: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs one command line on the home."""

    def call(*words: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return warm.run(words, {**environment(home), **extra}, timeout=120)

    return call


@pytest.fixture
def start(home: Path) -> Iterator[Callable[..., Daemon]]:
    """Starts daemons on the home; every one is ended at the end."""
    started: list[Daemon] = []

    def up(**extra: str) -> Daemon:
        process = subprocess.Popen(
            [*COMMAND, "up", "--json"],
            env={**environment(home), **extra},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate(timeout=60)[1])
        daemon = Daemon(process, json.loads(line))
        started.append(daemon)
        return daemon

    yield up
    for daemon in started:
        daemon.stop(signal.SIGKILL)
