"""Agent processes: started under a run mark, ended with everything they started, and proven gone.

The mark is one environment variable that every descendant inherits. It names the run, never a secret. Inside
bubblewrap the kernel ends the whole PID namespace with its first process; the scan by mark is the proof, the way
without namespaces, and the way of recovery after this process was killed itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from stationmaster import command as commands
from stationmaster import redact
from stationmaster.errors import Invalid, Unavailable

MARK = "STATIONMASTER_RUN"
# One line of Codex's protocol reached 1.2 MB; asyncio's default of 64 KiB would break the stream.
LINE_LIMIT = 64 * 1024 * 1024
_STDERR_KEPT = 400
_SCAN_PAUSE_S = 0.05
_PROC = Path("/proc")


class AgentProcess:
    """One running agent and the pipes to it."""

    def __init__(self, proc: asyncio.subprocess.Process, *, run_id: str, isolated: bool, log: TextIO | None) -> None:
        if proc.stdin is None or proc.stdout is None or proc.stderr is None:
            raise Unavailable("The agent was started without pipes.", code="app_server_unreachable")
        self._proc = proc
        self._run_id = run_id
        self._isolated = isolated
        self._log = log
        self._tail: deque[str] = deque(maxlen=_STDERR_KEPT)
        self.stdin = proc.stdin
        self.stdout = proc.stdout
        self._stderr = asyncio.create_task(self._keep_stderr(proc.stderr))

    @classmethod
    async def spawn(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        run_id: str,
        isolated: bool,
        log: Path | None = None,
    ) -> AgentProcess:
        """Starts the agent in a session of its own.

        Must run on a loop whose thread lives as long as the daemon: the parent-death signal follows the thread that
        forked.
        """
        commands.assert_outside("an agent process")
        _check_run_id(run_id)
        opened = _open_log(log) if log else None
        try:
            proc = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**env, MARK: run_id},
                cwd=cwd,
                start_new_session=True,
                limit=LINE_LIMIT,
            )
        except OSError as error:
            if opened:
                opened.close()
            raise Unavailable(
                f"The agent could not be started: {error.strerror or type(error).__name__}.",
                code="app_server_unreachable",
                hint="Run `stationmaster doctor`.",
            ) from None
        return cls(proc, run_id=run_id, isolated=isolated, log=opened)

    @property
    def pid(self) -> int:
        """The process this one started: bubblewrap's outer half, or the agent itself without isolation."""
        return self._proc.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal, or None while it runs."""
        return self._proc.returncode

    def words(self) -> str:
        """Returns the last words of the agent's error stream, redacted."""
        return "\n".join(self._tail)[-2000:]

    async def wait(self) -> int:
        """Waits for the end of the process."""
        return await self._proc.wait()

    async def close(self, *, grace_s: float = 2.0) -> None:
        """Closes the agent's input, then kills what is left, and returns once nothing of the run is alive."""
        with contextlib.suppress(OSError, RuntimeError):
            self.stdin.close()
        if not await self._ended(grace_s):
            self.kill()
            if not await self._ended(grace_s):
                self._signal()
                await self._ended(grace_s)
        try:
            await asyncio.to_thread(sweep, self._run_id)
        finally:
            self._stderr.cancel()
            await asyncio.gather(self._stderr, return_exceptions=True)

    def kill(self) -> None:
        """Kills the first process of the namespace (with it everything inside), or the session without isolation."""
        first = _children().get(self.pid, []) if self._isolated else []
        for pid in first:
            _kill(pid)
        if not first:
            self._signal()

    def _signal(self) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def _ended(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self._proc.wait()
        except TimeoutError:
            return False
        return True

    async def _keep_stderr(self, stream: asyncio.StreamReader) -> None:
        log = self._log
        try:
            while chunk := await stream.read(64 * 1024):
                text = redact.clean(chunk.decode(errors="replace"))
                self._tail.extend(text.splitlines())
                if log:
                    log.write(text)
                    log.flush()
        finally:
            if log:
                log.close()


def _open_log(path: Path) -> TextIO:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise Unavailable(
            f"The log of a run cannot be written: {path}: {error.strerror}.",
            code="run_log_unwritable",
            hint="Give the folder to the user that runs Stationmaster.",
        ) from None
    return os.fdopen(handle, "a", encoding="utf-8")


def marked(run_id: str) -> list[int]:
    """Lists the live processes of a run: those that carry its mark, and their descendants."""
    commands.assert_outside("a process scan")
    _check_run_id(run_id)
    wanted = f"{MARK}={run_id}".encode()
    found = {pid for pid in _pids() if wanted in _environ(pid).split(b"\0")}
    # A process that is not dumpable hides its environment from an ordinary user; its parent's mark gives it away.
    children, queue = _children(), list(found)
    while queue:
        for child in children.get(queue.pop(), ()):
            if child not in found:
                found.add(child)
                queue.append(child)
    found.discard(os.getpid())
    return sorted(pid for pid in found if not _is_zombie(pid))


def sweep(run_id: str, *, timeout_s: float = 20.0) -> int:
    """Kills every process of a run until two scans in a row find none; returns how many it killed.

    Raises Unavailable `agent_process_alive` when one survives: the caller must not start anything in its worktree.
    """
    end = time.monotonic() + timeout_s
    killed: set[int] = set()
    quiet = 0
    while True:
        alive = marked(run_id)
        quiet = 0 if alive else quiet + 1
        if quiet > 1:
            return len(killed)
        for pid in alive:
            _kill(pid)
            killed.add(pid)
        if time.monotonic() > end:
            raise Unavailable(
                f"Process {alive[0] if alive else '?'} of run {run_id} does not end.",
                code="agent_process_alive",
                hint="End it by hand, then start the worker again.",
            )
        time.sleep(_SCAN_PAUSE_S if alive else 0)


def _check_run_id(run_id: str) -> None:
    # An empty or partial mark would match, and kill, what is not ours.
    if not run_id or not all(char.isalnum() or char in "_-" for char in run_id):
        raise Invalid(f"A run id of letters, digits, _ and - is needed, not {run_id!r}.", code="invalid_run_id")


def _kill(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return
    finally:
        os.close(handle)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 - names only, of a large folder


def _environ(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""


def _stat(pid: int) -> list[bytes]:
    try:
        # The second field is a name in parentheses that may hold anything; the fields after it are plain.
        return (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def _is_zombie(pid: int) -> bool:
    fields = _stat(pid)
    return not fields or fields[0] in (b"Z", b"X")


def _children() -> dict[int, list[int]]:
    tree: dict[int, list[int]] = {}
    for pid in _pids():
        fields = _stat(pid)
        if len(fields) > 1:
            tree.setdefault(int(fields[1]), []).append(pid)
    return tree
