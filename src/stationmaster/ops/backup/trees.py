"""Packs folders of many small files into one file and back; what is being written goes in as far as it is.

Only files, folders and symbolic links travel; sockets and pipes are left behind.
"""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from stationmaster.errors import Invalid

Wanted = Callable[[Path], bool]


def pack(root: Path, file: Path, wanted: Wanted) -> int:
    """Packs what lies below `root` and is wanted; `wanted` gets paths relative to `root`. Returns how many entries."""
    packed = 0
    with tarfile.open(file, mode="x:", format=tarfile.PAX_FORMAT) as tar:
        for path in _below(root, Path(), wanted):
            with contextlib.suppress(FileNotFoundError):
                packed += _add(tar, root / path, str(path))
    return packed


def unpack(file: Path, root: Path) -> None:
    """Puts a packed tree below `root`; nothing leaves it, whatever the file says."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with tarfile.open(file, mode="r:") as tar:
            # Links may point anywhere, as they did; nothing is ever written through one.
            tar.extractall(root, filter="tar")
    except (tarfile.TarError, OSError) as error:
        raise Invalid(f"{file.name} cannot be unpacked: {error}.", code="backup_damaged") from error


def check(file: Path) -> int:
    """Reads a packed tree to its end; returns how many entries it has, raises Invalid when it cannot be read."""
    try:
        with tarfile.open(file, mode="r:") as tar:
            return len(tar.getmembers())
    except (tarfile.TarError, OSError) as error:
        raise Invalid(f"{file.name} cannot be read: {error}.", code="backup_damaged") from error


def _below(root: Path, folder: Path, wanted: Wanted) -> Iterator[Path]:
    try:
        names = sorted(entry.name for entry in (root / folder).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        path = folder / name
        if not wanted(path):
            continue
        yield path
        if (root / path).is_dir() and not (root / path).is_symlink():
            yield from _below(root, path, wanted)


def _add(tar: tarfile.TarFile, path: Path, name: str) -> int:
    if path.is_symlink() or path.is_dir():
        tar.add(path, name, recursive=False)
        return 1
    if not path.is_file():
        return 0
    entry = tar.gettarinfo(path, name)
    # A second name of one file must not become a link to a file that is left out.
    entry.type, entry.linkname = tarfile.REGTYPE, ""
    with path.open("rb") as file:
        entry.size = path.stat().st_size
        tar.addfile(entry, file)
    return 1
