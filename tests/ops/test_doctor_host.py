"""Each fault of a machine is made for real; what cannot be made on this one is made in a copy of it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stationmaster.ops.doctor import host
from stationmaster.ops.home import Home
from tests.ops.patient import elsewhere, look, one, patient

# Holds a home and a port as a daemon does, and answers nothing.
_HOLDER = """
import sys, signal
from pathlib import Path
from stationmaster.control.server import bind_tcp, bind_unix
from stationmaster.ops.home import Home, locked
home = Home(Path(sys.argv[1]))
with locked(home, wait_s=0), bind_tcp("127.0.0.1", 0) as web:
    keep = bind_unix(home.socket) if sys.argv[2:] else None
    print(web.getsockname()[1], flush=True)
    signal.pause()
"""


@pytest.fixture
def place(tmp_path: Path) -> Home:
    return patient(tmp_path / "home").home


def holding(place: Home, *words: str) -> Iterator[tuple[int, int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(place.path), *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.pid, int(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


@pytest.fixture
def held(place: Home) -> Iterator[tuple[int, int]]:
    """The process that holds the home, and the port on which it listens."""
    yield from holding(place)


# --- the home ---


def test_a_home_of_ours_is_fine_and_left_as_it_is(place: Home) -> None:
    before = sorted(place.path.rglob("*"))
    assert one(host.home(place)) == f"ok    home: {place.path} is open to its owner alone and can be written."
    assert sorted(place.path.rglob("*")) == before


def test_a_home_that_is_missing_is_not_made(tmp_path: Path) -> None:
    line = one(host.home(Home(tmp_path / "none")))
    assert line.startswith(f"fail  home: The home folder {tmp_path}/none cannot be entered: No such file or directory.")
    assert f"Run: mkdir -m 700 -p {tmp_path}/none" in line
    assert not (tmp_path / "none").exists()


def test_a_home_open_to_others_is_said_with_the_command(place: Home) -> None:
    place.path.chmod(0o755)
    assert one(host.home(place)) == (
        f"fail  home: The home folder {place.path} is open to other users. Run: chmod 700 {place.path}"
    )


def test_a_home_of_somebody_else_is_said(place: Home) -> None:
    other = place
    if os.geteuid() == 0:
        os.chown(place.path, 12345, 12345)
    else:
        other = Home(Path("/"))
    assert re.match(r"fail  home: The home folder \S+ belongs to user \d+\. Run doctor as", one(host.home(other)))


def test_a_home_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is not a folder. Choose another one with --home." in one(host.home(Home(tmp_path / "file")))


def test_a_home_on_a_read_only_file_system_is_said(place: Home) -> None:
    [line] = elsewhere(place, "home(place)", "--ro-bind", str(place.path), str(place.path))
    assert line.startswith(f"fail  home: The home folder {place.path} cannot be written.")


# --- the daemon and its port ---


def test_no_daemon_is_no_fault(place: Home) -> None:
    assert one(host.daemon(place)) == "ok    daemon: No daemon runs on this home."
    assert host.holder(place) is None
    (place.path / "lock").write_text("4711\n")
    assert host.holder(place) is None, "a lock file that nobody holds is a leftover"


def test_a_home_held_by_a_process_without_a_door_is_said(place: Home, held: tuple[int, int]) -> None:
    assert one(host.daemon(place)).startswith(f"warn  daemon: Process {held[0]} holds the home and has no control")


def test_a_daemon_that_does_not_answer_is_said(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_SOCKET_WAIT_S", 0.2)
    for pid, _ in holding(place, "with a socket"):
        line = one(host.daemon(place))
        assert line.startswith(f"fail  daemon: Process {pid} does not answer on its control socket (ReadTimeout).")


def test_the_port_is_free_or_anyone_s(tmp_path: Path) -> None:
    free = patient(tmp_path / "home", "[web]\nport = 0")
    assert one(host.port(free.home, free.config)) == "ok    port: Any free port of 127.0.0.1 is taken at the start."
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number = probe.getsockname()[1]
    chosen = patient(tmp_path / "home", f"[web]\nport = {number}")
    assert one(host.port(chosen.home, chosen.config)) == f"ok    port: 127.0.0.1 port {number} is free."


def test_a_port_that_another_program_holds_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        chosen = patient(tmp_path / "home", f"[web]\nport = {number}")
        line = one(host.port(chosen.home, chosen.config))
    assert line.startswith(f"fail  port: 127.0.0.1 port {number} cannot be used: Address already in use. Set web.host")


def test_a_port_that_our_daemon_holds_is_fine(tmp_path: Path, place: Home, held: tuple[int, int]) -> None:
    pid, number = held
    ours = patient(place.path, f"[web]\nport = {number}")
    line = one(host.port(ours.home, ours.config))
    assert line == f"ok    port: 127.0.0.1 port {number} is held by our daemon, process {pid}."
    # Another home's daemon is a stranger.
    other = patient(tmp_path / "other", f"[web]\nport = {number}")
    assert one(host.port(other.home, other.config)).startswith("fail  port: ")


def test_a_host_that_is_not_ours_is_said(tmp_path: Path) -> None:
    other = patient(tmp_path / "home", '[web]\nhost = "192.0.2.1"\nport = 1')
    assert one(host.port(other.home, other.config)).startswith("fail  port: 192.0.2.1 port 1 cannot be used: ")


# --- disk, workspace, clock ---


def test_there_is_room_here(place: Home) -> None:
    [line] = look(host.disk(place, place.path / "workspaces"))
    assert re.fullmatch(r"ok    disk: \d+\.\d GiB are free for \S+\.", line)


def test_a_full_disk_is_said_and_another_file_system_for_the_work_too(place: Home) -> None:
    small = place.path / "small"
    small.mkdir()
    changes = ("--size", "1048576", "--tmpfs", str(small))
    lines = elsewhere(place, "disk(place, place.path / 'small' / 'workspaces')", *changes)
    assert lines[0].startswith("ok    disk: ")
    assert lines[1].startswith(f"fail  disk: Only 0.0 GiB are free for {small}/workspaces")
    [line] = elsewhere(place, "workspace(place, place.path / 'small' / 'workspaces')", *changes)
    assert line.startswith(f"warn  workspace: {small}/workspaces lies on another file system than {place.runs}.")


def test_the_workspace_is_beside_the_home_and_writable(place: Home) -> None:
    root = place.path / "workspaces"
    assert one(host.workspace(place, root)).startswith(f"ok    workspace: {root} can be written")
    root.mkdir()
    [line] = elsewhere(place, "workspace(place, place.path / 'workspaces')", "--ro-bind", str(root), str(root))
    assert line == f"fail  workspace: {root} cannot be written. Set workspace.root to a folder of ours."


def test_the_clocks_agree() -> None:
    assert one(host.clock()) == "ok    clock: The wall clock and the steady clock advance together."


# --- the programs ---


def test_git_and_bubblewrap_are_here() -> None:
    assert re.fullmatch(r"ok    git: git [\d.]+ is there; 2\.31 is needed\.", one(host.git()))
    assert one(host.box()).startswith("ok    bubblewrap: bubblewrap works (")


def test_git_that_cannot_be_run_is_said(place: Home) -> None:
    [line] = elsewhere(place, "git()", "--ro-bind", "/dev/null", "/usr/bin/git")
    assert line.startswith("fail  git: git version failed: bwrap: execvp git: ")
    assert line.endswith("Install git 2.31 or newer, and bubblewrap, in which it runs.")


def test_an_old_git_is_said(place: Home) -> None:
    old = place.path / "git"
    old.write_text("#!/bin/sh\necho git version 2.20.1\n")
    old.chmod(0o755)
    [line] = elsewhere(place, "git()", "--ro-bind", str(old), "/usr/bin/git")
    assert line.startswith("fail  git: git is version 2.20.1. Install git 2.31 or newer")


def test_bubblewrap_that_cannot_be_run_is_said(place: Home) -> None:
    [line] = elsewhere(place, "box()", "--ro-bind", "/dev/null", "/usr/bin/bwrap")
    assert line.startswith("fail  bubblewrap: bubblewrap does not work here: bwrap could not be run")
    assert "Install the package bubblewrap" in line


def test_old_locks_of_git_are_shown_and_left(tmp_path: Path) -> None:
    here = patient(tmp_path / "home")
    assert one(host.locks(here.config)) == "ok    git locks: No lock file of git stands in the way."
    admin = here.config.workspace.root / "repositories" / "repo_1" / "bare.git" / "worktrees" / "issue-1"
    admin.mkdir(parents=True)
    lock = admin / "index.lock"
    lock.touch()
    assert one(host.locks(here.config)).startswith("ok"), "a command may be at work just now"
    os.utime(lock, (1_000_000, 1_000_000))
    line = one(host.locks(here.config))
    assert line.startswith(f"warn  git locks: 1 lock file(s) of git stand in the way, such as {lock}.")
    assert lock.exists()
