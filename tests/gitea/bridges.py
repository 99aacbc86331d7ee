"""A gitea-mcp beside a world: a program that starts the stand-in, in the dialect or with the fault of a test."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import stationmaster
from stationmaster.gitea.gear import Gear
from tests.gitea.world import World

# What the program needs besides itself; a real one is a single file.
NEEDS = tuple(dict.fromkeys([Path(sys.base_prefix), Path(sys.prefix), Path(stationmaster.__file__).parents[1]]))


def program(folder: Path, *words: str) -> Path:
    """Writes a program that runs the stand-in with these words."""
    path = folder / "gitea-mcp"
    lead = f"#!/bin/sh\nPYTHONPATH={NEEDS[-1]} PYTHONDONTWRITEBYTECODE=1 exec {sys.executable} -m"
    path.write_text(f'{lead} stationmaster.standins.gitea_mcp {" ".join(words)} "$@"\n')
    path.chmod(0o755)
    return path


def official(world: World, folder: Path, *words: str, **settings: Any) -> Gear:
    """Gives a world the gear of official mode, whose bridge is run with these words."""
    folder.mkdir(exist_ok=True)
    given = {"reply_mode": "official", "mcp_command": str(program(folder, *words)), **settings}
    world.gear = replace(
        world.gear,
        settings=replace(world.gear.settings, **given),
        station=replace(world.gear.station, mounts=NEEDS),
    )
    return world.gear
