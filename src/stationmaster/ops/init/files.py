"""Writes the home: each secret into its own file, a commented configuration, a service unit. Twice is like once."""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from stationmaster.errors import Illegal
from stationmaster.ops.home import Home

_UNUSED = ".webhook-secret-unused"
_SECTION = re.compile(r"\[([\w.]+)\]")
_KEY = re.compile(r"(\w+) = ")
_HEAD = """# What is set stands without a # in front, everything else shows its default; `config show` prints all of it.

"""
_UNIT = """[Unit]
Description=Stationmaster
Documentation=file:{home}/stationmaster.toml
After=network-online.target
Wants=network-online.target

[Service]
ExecStart={program} --home {home} up
Restart=on-failure
RestartSec=5
TimeoutStopSec=60
# Agents and git are ended by the daemon itself, in order.
KillMode=mixed
UMask=0077
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def secret(home: Home, name: str, value: str = "") -> tuple[Path, bool]:
    """Keeps a secret in a file for its owner alone; without a value one is made up, unless one is there.

    Returns the file, and whether what is in it is new.
    """
    path = home.path / name
    known = path.read_text().strip() if path.is_file() else ""
    wanted = value or known or secrets.token_hex(32)
    if wanted != known:
        _replace(path, wanted + "\n")
    path.chmod(0o600)
    return path, wanted != known


def unused(home: Home, *, fresh: bool) -> bool:
    """Tells whether no webhook can have the secret yet; remembered until `used`, whatever breaks off in between."""
    mark = home.path / _UNUSED
    if fresh:
        mark.touch(mode=0o600)
    return mark.exists()


def used(home: Home) -> None:
    """Notes that the webhooks have the secret."""
    (home.path / _UNUSED).unlink(missing_ok=True)


def configuration(home: Home, chosen: Mapping[str, object], *, force: bool) -> bool:
    """Writes stationmaster.toml with what was chosen, and tells whether it changed.

    Raises Illegal when another one is there, unless `force` lets the old one be kept beside it.
    """
    text = _commented(chosen)
    path = home.config_file
    if path.exists():
        old = path.read_text()
        if old == text:
            return False
        if not force:
            raise Illegal(
                f"{path} is there and says something else.",
                code="already_exists",
                hint="Change it by hand, or use --force: the old one is kept beside it.",
            )
        _replace(path.with_suffix(".toml.bak"), old)
    _replace(path, text)
    return True


def _commented(chosen: Mapping[str, object]) -> str:
    """Returns the list of all settings with its comments, what was chosen set and the rest commented out."""
    left = dict(chosen)
    lines, section = [_HEAD], ""
    for line in resources.files("stationmaster.ops").joinpath("default.toml").read_text().splitlines(keepends=True):
        if found := _SECTION.match(line):
            section = found[1]
        key = _KEY.match(line)
        if key is None:
            lines.append(line)
            continue
        name = f"{section}.{key[1]}"
        lines.append(f"{key[1]} = {json.dumps(left.pop(name))}\n" if name in left else f"# {line}")
    assert not left, f"BUG: no such settings: {sorted(left)}"  # noqa: S101 - the caller knows them
    return "".join(lines)


def unit(home: Home) -> Path:
    """Writes the unit of systemd for this home and this program."""
    path = home.path / "stationmaster.service"
    program = Path(sys.executable).with_name("stationmaster")
    _replace(path, _UNIT.format(home=home.path, program=program))
    return path


def _replace(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
