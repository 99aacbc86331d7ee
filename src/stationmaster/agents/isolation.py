"""The walls around an agent: what of the machine a run may see.

The network stays the host's, for the model's provider; the agent's own sandbox cuts it off for commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stationmaster import bubblewrap

Isolation = Literal["required", "codex_only"]
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_PACKAGE_MARKER = "codex-package.json"


@dataclass(frozen=True, slots=True)
class Rooms:
    """The folders of one run, and single programs besides; every one exists before the agent starts."""

    binary: Path
    worktree: Path
    bare: Path
    provider_home: Path
    temp: Path
    mounts: tuple[Path, ...] = ()
    programs: tuple[Path, ...] = ()
    read_only: bool = False


def package_folder(binary: Path) -> Path:
    """Returns the folder that must be visible for `binary` to work: its whole package when it is a packaged one."""
    real = binary.resolve()
    above = real.parent.parent
    return above if (above / _PACKAGE_MARKER).is_file() else real.parent


def box(rooms: Rooms) -> bubblewrap.Box:
    """Builds the box of a run: its worktree, provider home and temp writable, binaries, mirror and mounts read-only.

    The worktree of a read-only run is not writable either.

    `<worktree>/.git` lies read-only over the worktree, so that no run can lead git, or the host, elsewhere.
    """
    git = rooms.worktree / ".git"
    fixed, free = ((rooms.worktree,), ()) if rooms.read_only else ((), (rooms.worktree,))
    return bubblewrap.Box(
        cwd=rooms.worktree,
        read_only=(package_folder(rooms.binary), *rooms.mounts, *rooms.programs, rooms.bare, *fixed),
        read_write=(*free, rooms.provider_home, rooms.temp),
        read_only_over=(git,) if git.exists() else (),
        network=True,
        nested=True,
    )


def wrap(mode: Isolation, rooms: Rooms, argv: Sequence[str], *, bwrap: str = "bwrap") -> list[str]:
    """Returns the argument list that runs the agent: inside the box, or bare where that was explicitly chosen."""
    return list(argv) if mode == "codex_only" else bubblewrap.argv(box(rooms), argv, bwrap=bwrap)


def search_path(mounts: Sequence[Path]) -> str:
    """Returns the PATH of a run: the system's folders, then the `bin` of each mounted toolchain."""
    extra = [str(mount / "bin") for mount in mounts if (mount / "bin").is_dir()]
    return ":".join([SYSTEM_PATH, *extra])
