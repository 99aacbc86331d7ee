"""Starts the product without paying for its imports each time: a process that has them forks for every start.

All else is as with `python -m stationmaster.ops.main`: a process of its own with its own arguments, environment,
session and end, which can be killed. Imports are four fifths of what a start costs, and the tests start it hundreds of
times; tests of the demo, and one of the daemon, start it as users do.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_ROOT = Path(__file__).parent.parent
_MOST = 1 << 20


class Process:
    """One start of the product, with as much of `subprocess.Popen` as tests need; its standard output is a pipe."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], *, stderr: int) -> None:
        out, out_end = os.pipe()
        status, status_end = os.pipe()
        try:
            told = json.dumps({"argv": list(argv), "env": dict(env), "cwd": str(Path.cwd())}).encode()
            self.pid = _server().fork(told, [out_end, stderr, status_end])
        finally:
            os.close(out_end)
            os.close(status_end)
        self.stdout: IO[bytes] = os.fdopen(out, "rb")
        self.returncode: int | None = None
        self._status = status
        os.set_blocking(status, False)

    def poll(self) -> int | None:
        """Returns how it ended, as `subprocess` words it, or None."""
        if self.returncode is None:
            with contextlib.suppress(BlockingIOError):
                said = os.read(self._status, 64)
                assert said, "whoever starts the product is gone"
                self.returncode = os.waitstatus_to_exitcode(int(said))
                os.close(self._status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end; raises TimeoutExpired."""
        if self.returncode is None:
            select.select([self._status], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def send_signal(self, sig: int) -> None:
        """Sends a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """Ends it as a power cut would."""
        self.send_signal(signal.SIGKILL)


def run(argv: Sequence[str], env: Mapping[str, str], *, timeout: float) -> subprocess.CompletedProcess[str]:
    """Runs one command line to its end."""
    with tempfile.TemporaryFile() as err:
        process = Process(argv, env, stderr=err.fileno())
        with process.stdout:
            out = process.stdout.read()
        code = process.wait(timeout)
        err.seek(0)
        return subprocess.CompletedProcess(list(argv), code, out.decode(), err.read().decode())


class _Server:
    """The process that has imported the product."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(theirs.fileno())],
                cwd=_ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self.close)

    def fork(self, told: bytes, descriptors: list[int]) -> int:
        """Starts the product once; returns its process id."""
        socket.send_fds(self._ours, [len(told).to_bytes(4), told], descriptors)
        return int.from_bytes(self._ours.recv(4))

    def close(self) -> None:
        """Ends the server; what it started goes on."""
        self._ours.close()
        self._process.wait()


@functools.cache
def _server() -> _Server:
    return _Server()


def _serve(door: socket.socket) -> Sequence[str] | None:
    """Forks for whoever asks; returns the arguments in the fork, and None at the end of the server."""
    ended: dict[int, int] = {}
    reaper, bell = socket.socketpair()
    for end in (reaper, bell):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(bell.fileno())
    with selectors.DefaultSelector() as chosen:
        chosen.register(door, selectors.EVENT_READ)
        chosen.register(reaper, selectors.EVENT_READ)
        while True:
            for key, _ in chosen.select():
                if key.fileobj is reaper:
                    _reap(reaper, ended)
                    continue
                asked = _asked(door)
                if asked is None:
                    return None
                told, (out, err, status) = asked
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for descriptor in (status, *ended.values()):
                        os.close(descriptor)
                    for mine in (door, reaper, bell):
                        mine.close()
                    return _become(told, out, err)
                ended[pid] = status
                os.close(out)
                os.close(err)
                door.sendall(pid.to_bytes(4))


def _asked(door: socket.socket) -> tuple[dict[str, object], list[int]] | None:
    head, descriptors, _, _ = socket.recv_fds(door, 4, 3)
    if not head:
        return None
    size, body = int.from_bytes(head), b""
    while len(body) < size:
        body += door.recv(min(_MOST, size - len(body)))
    return json.loads(body), descriptors


def _reap(reaper: socket.socket, ended: dict[int, int]) -> None:
    with contextlib.suppress(BlockingIOError):
        reaper.recv(4096)
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = found
            with contextlib.suppress(BrokenPipeError):
                os.write(ended[pid], str(status).encode())
            os.close(ended.pop(pid))


def _become(told: dict[str, object], out: int, err: int) -> Sequence[str]:
    os.setsid()
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.chdir(str(told["cwd"]))
    env, argv = told["env"], told["argv"]
    assert isinstance(env, dict)
    assert isinstance(argv, list)
    os.environ.clear()
    os.environ.update(env)
    return argv


if __name__ == "__main__":
    from stationmaster.ops import main

    arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is not None:
        sys.argv[1:] = arguments
        main.main()
