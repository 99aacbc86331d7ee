"""The home folder: where its files are, that only its owner can enter it, and the lock that makes one daemon of many.

Never creates anything outside the home.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stationmaster import ids
from stationmaster.errors import Busy, Invalid

_OTHERS = 0o077
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Home:
    """The paths inside one home folder."""

    path: Path

    @property
    def config_file(self) -> Path:
        """The operator's settings."""
        return self.path / "stationmaster.toml"

    @property
    def database(self) -> Path:
        """The embedded ledger."""
        return self.path / "stationmaster.db"

    @property
    def socket(self) -> Path:
        """The control socket of the running daemon."""
        return self.path / "control.sock"

    @property
    def runs(self) -> Path:
        """What runs leave for people to look at."""
        return self.path / "runs"

    @property
    def git(self) -> Path:
        """The home folder of git's processes, always empty."""
        return self.path / "git"

    @property
    def scratch(self) -> Path:
        """Where the isolation of agents is tried out; no run ever sees it."""
        return self.path / "scratch"


def prepare(path: Path) -> Home:
    """Makes the folder if needed and proves that only we can enter it and that it can be written."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.stat().st_mode
        if mode & _OTHERS:
            raise Invalid(
                f"The home folder {path} is open to other users.", code="home_open", hint=f"Run: chmod 700 {path}"
            )
        probe = path / f".write-probe-{os.getpid()}"
        probe.touch(mode=0o600)
        probe.unlink()
    except OSError as error:
        raise Invalid(
            f"The home folder {path} cannot be written: {error.strerror}.",
            code="home_unwritable",
            hint="Choose another folder with --home, or change its owner.",
        ) from None
    return Home(path)


@contextlib.contextmanager
def locked(home: Home, *, wait_s: float) -> Iterator[None]:
    """Holds the home exclusively; raises Busy when somebody else keeps it longer than `wait_s`.

    A command line that found no daemon holds the lock for moments, so a starting daemon waits a little too.
    """
    descriptor = os.open(home.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take(home, descriptor, time.monotonic() + wait_s)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _take(home: Home, descriptor: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(_POLL_S)
                continue
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise Busy(
                f"The home folder {home.path} is in use by process {holder}.",
                code="home_in_use",
                hint="One daemon runs per home; stop the other one or choose another folder with --home.",
            ) from None
        else:
            return


def worker_id(home: Home) -> str:
    """Returns the durable name of this home's worker, made at the first start (call it under the lock)."""
    path = home.path / "worker_id"
    try:
        known = path.read_text().strip()
    except FileNotFoundError:
        known = ""
    if known:
        return known
    made = ids.new("worker")
    part = path.with_suffix(".part")
    with part.open("w") as file:
        file.write(made + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    folder = os.open(home.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return made
