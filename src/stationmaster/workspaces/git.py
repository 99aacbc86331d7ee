"""The one place that starts git: fixed environment, argument lists, own namespace, a deadline (GW-R-132).

Every child runs in bubblewrap, so it and all it started die with the product. What reads a worktree gets neither
network nor credential, and the repository's config and hooks read-only; what has network or credential sees the bare
repository only. A credential travels in the environment, never in an argument, an address or a file (GW-R-127).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stationmaster import command
from stationmaster.bubblewrap import Box, argv
from stationmaster.errors import Bug, Unavailable
from stationmaster.redact import Secret
from stationmaster.workspaces import paths
from stationmaster.workspaces.failures import Result, error_of, lock_in_the_way

_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The first that takes configuration from the environment, which keeps it out of argument lists.
LEAST_VERSION = (2, 31)
_PAUSE_S = 0.05
_USER_VARIABLE = "STATIONMASTER_GIT_USER"
_WORD_VARIABLE = "STATIONMASTER_GIT_WORD"
_HELPER = (
    f'!f() {{ test "$1" = get && printf "username=%s\\npassword=%s\\n" "${_USER_VARIABLE}" "${_WORD_VARIABLE}"; }}; f'
)
_SETTINGS = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.autocrlf", "false"),
    ("core.safecrlf", "false"),
    # Alternative spellings of .git are moved away by name; git must not refuse a whole save for one of them.
    ("core.protectNTFS", "false"),
    # A commit that a run ended with must survive a power cut too; batching makes that one flush per command.
    ("core.fsync", "committed,reference"),
    ("core.fsyncMethod", "batch"),
    ("credential.helper", ""),
    ("protocol.allow", "never"),
    ("http.followRedirects", "false"),
    ("transfer.credentialsInUrl", "die"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("push.recurseSubmodules", "no"),
    ("push.followTags", "false"),
    ("branch.autoSetupMerge", "false"),
    ("commit.gpgSign", "false"),
    ("advice.detachedHead", "false"),
)


@dataclass(frozen=True, slots=True)
class GitCredential:
    """Who we are towards one forge; git offers it only to addresses under `url_prefix`."""

    url_prefix: str
    username: str
    secret: Secret


@dataclass(frozen=True, slots=True)
class Author:
    """Whose name a commit carries, as author and as committer."""

    name: str
    email: str


@dataclass(frozen=True, slots=True)
class _Job:
    box: Box
    words: tuple[str, ...]
    env: dict[str, str] = field(repr=False)
    data: bytes | None
    seconds: float
    network: bool


class Git:
    """Runs git against one machine's repositories; holds no state but the in-process locks.

    `lock_wait_s` is how long a lock of git's may be in the way before it counts (architecture §13). `home` is an
    empty folder. `ca_file` is a private certificate authority of the forge. `local_remotes` are folders that may be
    remotes by path; naming one is the only way to allow the file transport.
    """

    def __init__(
        self,
        *,
        timeout_s: float,
        lock_wait_s: float,
        home: Path,
        bwrap: str = "bwrap",
        ca_file: Path | None = None,
        local_remotes: tuple[Path, ...] = (),
        search_path: str = _SEARCH_PATH,
    ) -> None:
        self.timeout_s = timeout_s
        self.lock_wait_s = lock_wait_s
        self._home = home
        self._bwrap = bwrap
        self._ca_file = ca_file
        self._local_remotes = local_remotes
        self._search_path = search_path
        self._guard = threading.Lock()
        self._turns: dict[Path, threading.Lock] = {}
        self._living: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def close(self) -> None:
        """Ends every command that runs and begins no other: for a daemon that must stop in time."""
        with self._guard:
            self._closed = True
            living = tuple(self._living)
        for child in living:
            _kill(child)

    def version(self) -> tuple[int, ...]:
        """Returns the version of the installed git as numbers, to compare with `LEAST_VERSION`."""
        job = self._job(self._box(cwd=self._home), ("version",), None, None)
        said = self._finish(job, None, "version", check=True).stdout
        return tuple(int(number) for number in re.findall(r"\d+", said)[:3])

    def allows_path(self, url: str) -> bool:
        """Tells whether `url` is a folder that was named as a remote by path."""
        return any(Path(url).is_relative_to(folder) for folder in self._local_remotes)

    def bare(
        self,
        bare: Path,
        *args: str,
        credential: GitCredential | None = None,
        network: bool = False,
        input: str | bytes | None = None,  # noqa: A002 - the name that subprocess gave it
        timeout_s: float | None = None,
        check: bool = True,
        planting: Path | None = None,
        filling: Path | None = None,
    ) -> Result:
        """Runs `git --git-dir=<bare> …`, seeing the bare repository only.

        `planting` is the empty folder that `git worktree add` fills; it takes network and config away. `filling` is a
        folder of bundles.
        """
        if planting is not None and (network or credential):
            raise Bug("BUG: a worktree may not be planted with network or credential.")
        if credential and not network:
            raise Bug("BUG: a credential was given to a git command without network.")
        over = _protected(bare) if planting is not None else ()
        also = tuple(folder for folder in (planting, filling) if folder is not None)
        box = self._box(cwd=bare, read_write=(bare, *also), over=over, network=network)
        job = self._job(box, (f"--git-dir={bare}", *args), input, timeout_s, credential=credential)
        return self._finish(job, bare, args[0], check=check)

    def tree(
        self,
        bare: Path,
        tree: Path,
        *args: str,
        input: str | bytes | None = None,  # noqa: A002 - the name that subprocess gave it
        timeout_s: float | None = None,
        check: bool = True,
        write: bool = True,
        author: Author | None = None,
    ) -> Result:
        """Runs git on a worktree, always with explicit folders, never by discovery (architecture §8).

        Without `write` the worktree and the repository are mounted read-only.
        """
        both = (bare, tree)
        over = _protected(bare) if write else ()
        box = self._box(cwd=tree, read_only=() if write else both, read_write=both if write else (), over=over)
        words = (f"--git-dir={paths.admin(bare, tree)}", f"--work-tree={tree}", *args)
        job = self._job(box, words, input, timeout_s, author=author, optional_locks=write)
        return self._finish(job, bare, args[0], check=check)

    def anywhere(self, *args: str, credential: GitCredential | None = None) -> Result:
        """Runs a network command that needs no repository, such as `ls-remote <address>`."""
        box = self._box(cwd=self._home, network=True)
        job = self._job(box, args, None, None, credential=credential)
        return self._finish(job, None, args[0], check=True)

    def _box(
        self,
        *,
        cwd: Path,
        read_only: tuple[Path, ...] = (),
        read_write: tuple[Path, ...] = (),
        over: tuple[Path, ...] = (),
        network: bool = False,
    ) -> Box:
        ca = (self._ca_file,) if network and self._ca_file else ()
        remotes = self._local_remotes if network else ()
        self._home.mkdir(parents=True, exist_ok=True)
        return Box(
            cwd=cwd,
            read_only=(self._home, *ca, *read_only),
            read_write=(*remotes, *read_write),
            read_only_over=over,
            network=network,
        )

    def _job(
        self,
        box: Box,
        words: tuple[str, ...],
        data: str | bytes | None,
        seconds: float | None,
        *,
        credential: GitCredential | None = None,
        author: Author | None = None,
        optional_locks: bool = True,
    ) -> _Job:
        env = {
            "PATH": self._search_path,
            "HOME": str(self._home),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_EDITOR": "false",
            "GIT_PAGER": "cat",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_OPTIONAL_LOCKS": "1" if optional_locks else "0",
        }
        settings = list(_SETTINGS)
        if box.network:
            settings += self._transports()
        if credential is not None:
            settings.append((f"credential.{credential.url_prefix}.helper", _HELPER))
            env[_USER_VARIABLE] = credential.username
            env[_WORD_VARIABLE] = credential.secret.reveal()
        if author is not None:
            for role in ("AUTHOR", "COMMITTER"):
                env[f"GIT_{role}_NAME"] = author.name
                env[f"GIT_{role}_EMAIL"] = author.email
        env["GIT_CONFIG_COUNT"] = str(len(settings))
        for number, (key, value) in enumerate(settings):
            env[f"GIT_CONFIG_KEY_{number}"] = key
            env[f"GIT_CONFIG_VALUE_{number}"] = value
        raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        return _Job(box, words, env, raw, seconds or self.timeout_s, box.network)

    def _transports(self) -> list[tuple[str, str]]:
        allowed = [("protocol.https.allow", "always"), ("protocol.http.allow", "always")]
        if self._local_remotes:
            allowed.append(("protocol.file.allow", "always"))
        if self._ca_file:
            allowed.append(("http.sslCAInfo", str(self._ca_file)))
        return allowed

    def _finish(self, job: _Job, bare: Path | None, verb: str, *, check: bool) -> Result:
        deadline: float | None = None
        while True:
            with self._turn(bare):
                result = self._once(job)
            if not lock_in_the_way(result):
                break
            # From the first meeting on: however long the commands before this one took, they spend none of its time.
            deadline = deadline or time.monotonic() + self.lock_wait_s
            if time.monotonic() >= deadline:
                break
            time.sleep(_PAUSE_S)
        if check and (result.code or result.timed_out):
            raise error_of(result, what=verb, network=job.network, seconds=job.seconds)
        return result

    @contextlib.contextmanager
    def _turn(self, bare: Path | None) -> Iterator[None]:
        # Saves a wait on git's own locks, nothing more (GW-R-123): those decide, and the retry above copes with them.
        if bare is None:
            yield
            return
        with self._guard:
            turn = self._turns.setdefault(bare, threading.Lock())
        with turn:
            yield

    def _once(self, job: _Job) -> Result:
        command.assert_outside("git")
        full = argv(job.box, ["git", *job.words], bwrap=self._bwrap)
        try:
            child = subprocess.Popen(
                full,
                stdin=subprocess.DEVNULL if job.data is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=job.env,
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable(
                f"{self._bwrap} could not be started: {error.strerror}.",
                code="git_failed",
                hint="Install bubblewrap, or run `stationmaster doctor` to see what is missing.",
            ) from error
        late = False
        try:
            self._admit(child)
            out, err = child.communicate(job.data, job.seconds)
        except subprocess.TimeoutExpired:
            late = True
            _kill(child)
            out, err = child.communicate()
        finally:
            _kill(child)
            with self._guard:
                self._living.discard(child)
        return Result(child.returncode, out.decode("utf-8", "surrogateescape"), err.decode("utf-8", "replace"), late)

    def _admit(self, child: subprocess.Popen[bytes]) -> None:
        with self._guard:
            if self._closed:
                raise Unavailable("The daemon stops.", code="git_failed", hint="The next start does it again.")
            self._living.add(child)


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        # The first process of the namespace dies with bubblewrap, and the kernel ends all others in it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _protected(bare: Path) -> tuple[Path, ...]:
    return tuple(path for path in (bare / "config", bare / "hooks") if path.exists())


def lines(parts: Sequence[str]) -> str:
    """Joins names for git's `-z --stdin` options."""
    return "".join(f"{part}\0" for part in parts)
