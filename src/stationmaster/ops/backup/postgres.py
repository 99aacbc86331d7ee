"""The programs of PostgreSQL that dump and load a ledger; no password ever stands in an argument."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from stationmaster import redact
from stationmaster.errors import Unavailable
from stationmaster.ledger.ledger import PostgresSettings

# Where a distribution keeps the programs of several versions side by side.
_VERSIONED = Path("/usr/lib/postgresql")
_VARIABLES = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "passfile": "PGPASSFILE",
    "dbname": "PGDATABASE",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "service": "PGSERVICE",
}
_LONGEST = 400


def dump(settings: PostgresSettings, env: Mapping[str, str], snapshot: str, file: Path, server: int) -> None:
    """Writes the schema of the ledger, as one snapshot shows it, to `file`."""
    program = _program("pg_dump", env, server)
    words = ["--format=custom", "--no-owner", "--no-privileges", f"--schema={settings.schema}"]
    _run([program, *words, f"--snapshot={snapshot}", "--no-password", f"--file={file}"], settings, env)


def load(settings: PostgresSettings, env: Mapping[str, str], file: Path, server: int) -> None:
    """Makes the schema of the ledger from a dump, all of it or nothing."""
    program = _program("pg_restore", env, server)
    database = str(conninfo_to_dict(settings.dsn).get("dbname") or "postgres")
    words = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", "--no-password"]
    _run([program, *words, f"--dbname={database}", str(file)], settings, env)


def check(env: Mapping[str, str], file: Path) -> None:
    """Reads a dump to its end without a server."""
    _run([_program("pg_restore", env, 0), "--file=/dev/null", str(file)], None, env)


def _program(name: str, env: Mapping[str, str], server: int) -> str:
    """Finds a program that is not older than the server."""
    here = shutil.which(name, path=env.get("PATH", ""))
    others = sorted(_VERSIONED.glob(f"*/bin/{name}"), key=lambda path: path.parts[-3].zfill(4), reverse=True)
    candidates = [*([here] if here else []), *map(str, others)]
    for program in candidates:
        said = subprocess.run([program, "--version"], check=False, capture_output=True, text=True, timeout=30)
        major = re.search(r"\b(\d+)", said.stdout)
        if said.returncode == 0 and major is not None and int(major[1]) >= server:
            return program
    missing = "is older than the server" if candidates else "was not found"
    raise Unavailable(
        f"The program {name} {missing}.",
        code="backup_program_missing",
        hint=f"Install the PostgreSQL client programs{f' of version {server}' if server else ''} on this machine.",
    )


def _run(argv: Sequence[str], settings: PostgresSettings | None, env: Mapping[str, str]) -> None:
    given = {} if settings is None else conninfo_to_dict(settings.dsn)
    words = {_VARIABLES[key]: str(value) for key, value in given.items() if key in _VARIABLES}
    plain = {name: env[name] for name in ("PATH", "HOME", "PGPASSFILE", "PGSERVICEFILE") if name in env}
    done = subprocess.run(
        argv, check=False, capture_output=True, text=True, errors="replace", env={**plain, "LC_ALL": "C", **words}
    )
    if done.returncode:
        last = redact.clean(" ".join(done.stderr.split()))[:_LONGEST]
        raise Unavailable(
            f"{Path(argv[0]).name} ended with status {done.returncode}: {last or 'it said nothing'}.",
            code="backup_failed",
            hint="Check the database and the space on disk.",
        )
