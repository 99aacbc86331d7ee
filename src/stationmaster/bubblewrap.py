"""The one builder of bubblewrap command lines: what a child may see, and nothing else.

It never passes an environment or a secret: the argument list is readable by every process on the machine, so the
environment goes through the caller's `Popen(env=...)`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stationmaster import command as commands

# A caller that is root outside is still an ordinary user inside: Codex's own sandbox refuses to nest under uid 0.
UID = 1000
GID = 1000

_SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Never /etc as a whole: the owner of the namespace may be root outside, and would read /etc/shadow and private keys.
_SYSTEM_FILES = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
_RESOLVER = Path("/etc/resolv.conf")
_PROBE_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Box:
    """What a child sees besides the system folders.

    Later groups lie over earlier ones: `read_only`, `read_write`, `read_only_over` (such as `.git` inside a writable
    worktree), `hidden`. Every path is absolute and must exist. `network` keeps the host's network. `nested` allows
    another sandbox to be built inside; without it every capability is dropped.
    """

    cwd: Path
    read_only: tuple[Path, ...] = ()
    read_write: tuple[Path, ...] = ()
    read_only_over: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    network: bool = False
    nested: bool = False


def argv(box: Box, command: Sequence[str], *, bwrap: str = "bwrap") -> list[str]:
    """Builds the argument list that runs `command` inside `box`.

    Starts nothing; it only looks at what kind of thing a path is. The child's whole PID namespace dies when its first
    process or the thread that started it dies.
    """
    words = [bwrap, "--unshare-user", "--uid", str(UID), "--gid", str(GID)]
    words += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    words += ["--die-with-parent", "--new-session"]
    if not box.network:
        words.append("--unshare-net")
    if not box.nested:
        words += ["--cap-drop", "ALL"]
    words += _system()
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - a new, empty one inside
    if box.network:
        words += _resolver()
    for path in box.read_only:
        words += ["--ro-bind", str(path), str(path)]
    for path in box.read_write:
        words += ["--bind", str(path), str(path)]
    for path in box.read_only_over:
        words += ["--ro-bind", str(path), str(path)]
    for path in box.hidden:
        words += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]
    return [*words, "--chdir", str(box.cwd), "--", *command]


def _system() -> list[str]:
    words: list[str] = []
    for name in _SYSTEM_FOLDERS:
        path = Path(name)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            words += ["--ro-bind", name, name]
    for name in _SYSTEM_FILES:
        if Path(name).exists():
            words += ["--ro-bind", name, name]
    return words


def _resolver() -> list[str]:
    # Often a link into /run: bubblewrap follows it on the host and binds the file it leads to under the usual name.
    return ["--ro-bind", str(_RESOLVER), str(_RESOLVER)] if _RESOLVER.exists() else []


def available(bwrap: str = "bwrap") -> str | None:
    """Tells why bubblewrap does not work on this machine, or None when it does: by running a command in it."""
    commands.assert_outside("bubblewrap")
    box = Box(cwd=Path("/usr"))
    try:
        done = subprocess.run(
            argv(box, ["true"], bwrap=bwrap),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
        )
    except FileNotFoundError:
        return f"{bwrap} is not installed"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{bwrap} could not be run: {type(error).__name__}"
    if done.returncode == 0:
        return None
    words = done.stderr.decode(errors="replace").strip().splitlines()
    return words[-1][:300] if words else f"{bwrap} ended with status {done.returncode}"
