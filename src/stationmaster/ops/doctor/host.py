"""Checks of the machine: the home, the daemon, disk, clock, port, git and bubblewrap."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from stationmaster import bubblewrap
from stationmaster.control.server import short
from stationmaster.errors import StationmasterError
from stationmaster.ops.doctor.report import Finding, fail, ok, warn
from stationmaster.ops.home import Home
from stationmaster.ops.settings import Config
from stationmaster.workspaces.git import LEAST_VERSION, Git

_OTHERS = 0o077
_GIB = 1024**3
_LOW_BYTES, _LEAST_BYTES = 2 * _GIB, _GIB // 4
_LEAST_FILES = 10_000
_SAMPLE_S = 0.3
_STEP_S = 0.1
_EARLIEST = 1_735_689_600
_SOCKET_WAIT_S = 5.0
_GIT_S = 30.0
_LISTENING = "0A"
_NAMESPACES = (
    "Install the package bubblewrap, and allow unprivileged user namespaces "
    "(sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)."
)


def home(place: Home) -> Iterator[Finding]:
    """Tells whether the home folder is there, ours alone, and writable."""
    path = place.path
    try:
        status = path.stat()
    except OSError as error:
        yield fail("home", f"The home folder {path} cannot be entered: {error.strerror}.", _make(path))
        return
    if not path.is_dir():
        yield fail("home", f"The home {path} is not a folder.", "Choose another one with --home.")
    elif status.st_uid != os.geteuid():
        yield fail("home", f"The home folder {path} belongs to user {status.st_uid}.", "Run doctor as that user.")
    elif status.st_mode & _OTHERS:
        yield fail("home", f"The home folder {path} is open to other users.", f"Run: chmod 700 {path}")
    elif not os.access(path, os.W_OK | os.X_OK):
        yield fail(
            "home", f"The home folder {path} cannot be written.", "Mount it read-write, or choose another with --home."
        )
    else:
        yield ok("home", f"{path} is open to its owner alone and can be written.")


def _make(path: Path) -> str:
    return f"Run: mkdir -m 700 -p {path}, and put your settings into {path}/stationmaster.toml."


def daemon(place: Home) -> Iterator[Finding]:
    """Tells whether a daemon holds the home and answers."""
    pid = holder(place)
    if pid is None:
        yield ok("daemon", "No daemon runs on this home.")
        return
    if not place.socket.exists():
        yield warn(
            "daemon",
            f"Process {pid or '?'} holds the home and has no control socket.",
            "It is just starting, or a command line at work; if it stays so, end it.",
        )
        return
    try:
        with short(place.socket) as name, httpx.Client(transport=httpx.HTTPTransport(uds=name)) as client:
            status = client.get("http://stationmaster/readyz", timeout=_SOCKET_WAIT_S).status_code
    except (OSError, httpx.HTTPError) as error:
        words = f"does not answer on its control socket ({type(error).__name__})"
    else:
        if status == httpx.codes.OK:
            yield ok("daemon", f"Process {pid or '?'} runs on this home and is ready.")
            return
        words = f"says that it is not ready (status {status})"
    yield fail("daemon", f"Process {pid or '?'} {words}.", "Look at its log; end it and start it again.")


def holder(place: Home) -> int | None:
    """Returns the process that holds the home (0 when it is not known which), or None."""
    try:
        descriptor = os.open(place.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        said = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        return int(said) if said.isdecimal() else 0
    else:
        return None
    finally:
        os.close(descriptor)


def disk(place: Home, root: Path | None = None) -> Iterator[Finding]:
    """Tells how much room is left where the ledger and the worktrees lie."""
    seen: set[int] = set()
    for path in (place.path, root or place.path):
        there = existing(path)
        device = there.stat().st_dev
        if device in seen:
            continue
        seen.add(device)
        left = os.statvfs(there)
        free = left.f_bavail * left.f_frsize
        said = f"{free / _GIB:.1f} GiB are free for {path}"
        files = f" and {left.f_favail} files" if left.f_files and left.f_favail < _LEAST_FILES else ""
        advice = "Make room: every commit and every history row needs some."
        if free < _LEAST_BYTES or files:
            yield fail("disk", f"Only {said}{files}.", advice)
        elif free < _LOW_BYTES:
            yield warn("disk", f"Only {said}.", advice)
        else:
            yield ok("disk", f"{said}.")


def existing(path: Path) -> Path:
    """Returns the nearest folder above `path`, itself included, that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def workspace(place: Home, root: Path) -> Iterator[Finding]:
    """Tells whether worktrees can be made where they are wanted, and moved aside by a mere rename."""
    there = existing(root)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        yield fail("workspace", f"{there} cannot be written.", "Set workspace.root to a folder of ours.")
    elif there.stat().st_dev != existing(place.runs).stat().st_dev:
        yield warn(
            "workspace",
            f"{root} lies on another file system than {place.runs}.",
            "Set workspace.root beside the home: what is moved out of a worktree has to be copied otherwise.",
        )
    else:
        yield ok("workspace", f"{root} can be written and shares its file system with {place.runs}.")


def clock() -> Iterator[Finding]:
    """Tells whether the machine's two clocks advance together and the date can be."""
    wall, steady = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
    time.sleep(_SAMPLE_S)
    drift = (time.time() - wall) - (time.clock_gettime(time.CLOCK_BOOTTIME) - steady)
    if wall < _EARLIEST:
        yield fail("clock", f"The machine's date is {time.strftime('%Y-%m-%d', time.gmtime(wall))}.", "Set it by NTP.")
    elif abs(drift) > _STEP_S:
        yield warn(
            "clock", f"The wall clock jumped by {drift:+.2f} s while it was looked at.", "Let one NTP client set it."
        )
    else:
        yield ok("clock", "The wall clock and the steady clock advance together.")


def port(place: Home, config: Config) -> Iterator[Finding]:
    """Tells whether the web server's address is free, or held by our own daemon."""
    host, number = config.web.host, config.web.port
    if number == 0:
        yield ok("port", f"Any free port of {host} is taken at the start.")
        return
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        pid = holder(place)
        if error.errno == errno.EADDRINUSE and pid and number in listening(pid):
            yield ok("port", f"{host} port {number} is held by our daemon, process {pid}.")
            return
        yield fail(
            "port",
            f"{host} port {number} cannot be used: {error.strerror}.",
            f"Set web.host and web.port, or end what holds it (ss -ltnp 'sport = :{number}').",
        )
    else:
        yield ok("port", f"{host} port {number} is free.")


def listening(pid: int) -> set[int]:
    """Returns the TCP ports on which a process of ours listens."""
    names = set()
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            names.add(str(link.readlink()))
        except OSError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == _LISTENING and f"socket:[{fields[9]}]" in names:
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def box() -> Iterator[Finding]:
    """Tells whether bubblewrap can build walls on this machine."""
    reason = bubblewrap.available()
    if reason:
        yield fail("bubblewrap", f"bubblewrap does not work here: {reason}.", _NAMESPACES)
    else:
        yield ok("bubblewrap", f"bubblewrap works ({shutil.which('bwrap') or 'bwrap'}).")


def git() -> Iterator[Finding]:
    """Tells whether git is there and new enough, as the product runs it."""
    wanted = ".".join(map(str, LEAST_VERSION))
    advice = f"Install git {wanted} or newer, and bubblewrap, in which it runs."
    try:
        with tempfile.TemporaryDirectory(prefix="stationmaster-doctor-") as folder:
            found = Git(timeout_s=_GIT_S, lock_wait_s=0, home=Path(folder)).version()
    except StationmasterError as error:
        yield fail("git", error.message, advice)
        return
    said = ".".join(map(str, found))
    if found[:2] < LEAST_VERSION:
        yield fail("git", f"git is version {said}.", advice)
    else:
        yield ok("git", f"git {said} is there; {wanted} is needed.")


def locks(config: Config) -> Iterator[Finding]:
    """Tells of git's lock files that are older than a git command of ours would wait for."""
    repositories = config.workspace.root / "repositories"
    patterns = ("*/bare.git/*.lock", "*/bare.git/worktrees/*/*.lock", "*/bare.git/refs/heads/stationmaster/*.lock")
    before = time.time() - max(config.git.lock_wait_s, 1.0)
    old = []
    for pattern in patterns:
        for path in repositories.glob(pattern):
            try:
                if path.stat().st_mtime < before:
                    old.append(path)
            except OSError:
                continue
    if old:
        yield warn(
            "git locks",
            f"{len(old)} lock file(s) of git stand in the way, such as {re.sub(r'[^ -~]', '?', str(old[0]))}.",
            "If no git command runs there, move them away; Stationmaster never does.",
        )
    else:
        yield ok("git locks", "No lock file of git stands in the way.")
