"""The file of a backup: a tar whose last two members say what must be in it; only a whole one reads.

It is written under another name, flushed and renamed, so that whatever bears a backup's name was finished.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal, Self

import msgspec

from stationmaster import canonical, faults
from stationmaster.errors import Invalid, NotFound

MANIFEST = "manifest.json"
_SEAL = "manifest.sha256"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
_CHUNK = 1 << 20
_MOST_MANIFEST = 1 << 26

Hash = Annotated[str, msgspec.Meta(pattern="^sha256:[0-9a-f]{64}$")]


class Member(msgspec.Struct, frozen=True):
    """One file of a backup."""

    size: int
    hash: Hash


class Repository(msgspec.Struct, frozen=True):
    """One bare repository: its address at the forge, and the tips of its branches; without any it has no bundle."""

    url: str
    heads: dict[str, str]


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a backup says of itself."""

    kind: Literal["stationmaster-backup"] = "stationmaster-backup"
    form: Literal[1] = 1
    made_at: str
    product: str
    worker_id: str
    database: Literal["sqlite", "postgres"]
    schema: dict[str, int]
    counts: dict[str, int]
    last_seq: int
    repositories: dict[str, Repository]
    left_out: tuple[str, ...]
    files: dict[str, Member]


class Writer:
    """Writes one backup; without `seal` nothing is left of it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.files: dict[str, Member] = {}
        self._part = file.with_name(f"{file.name}.part")
        descriptor = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._raw = os.fdopen(descriptor, "wb")
        self._tar = tarfile.open(fileobj=self._raw, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - closed by exit

    def add(self, name: str, source: Path) -> None:
        """Adds a file that nobody writes any more."""
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            size = os.fstat(file.fileno()).st_size
            self._tar.addfile(_entry(name, size), file)
        self.files[name] = Member(size, f"sha256:{digest}")

    def seal(self, manifest: Manifest) -> None:
        """Ends the backup: from now on it has its name."""
        text = canonical.dump(manifest).encode()
        for name, data in ((MANIFEST, text), (_SEAL, canonical.sha256(text).encode())):
            self._tar.addfile(_entry(name, len(data)), _Bytes(data))
        self._tar.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        faults.point("backup.before_rename")
        # Never over another one that came meanwhile.
        os.link(self._part, self.file)
        self._part.unlink()
        _flush(self.file.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._raw.close()
        if kind is not None:
            self._part.unlink(missing_ok=True)


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size: int = -1) -> bytes:
        head, self._data = (self._data, b"") if size < 0 else (self._data[:size], self._data[size:])
        return head


def unpack(file: Path, folder: Path) -> Manifest:
    """Writes the files of a backup into the empty `folder` and returns what it says of itself.

    Raises Invalid `backup_damaged` unless exactly what its manifest lists is there, to the last byte.
    """
    found: dict[str, Member] = {}
    try:
        with tarfile.open(file, mode="r:") as tar:
            for entry in tar:
                found[entry.name] = _take(file, tar, entry, folder, found)
    except (tarfile.TarError, EOFError) as error:
        raise damaged(file, f"it cannot be read to its end ({error})") from None
    except FileNotFoundError:
        raise NotFound(f"There is no backup {file}.", code="not_found", hint="Check the name.") from None
    except OSError as error:
        raise damaged(file, f"it cannot be read ({error.strerror})") from None
    return _agreed(file, folder, found)


def damaged(file: Path, why: str) -> Invalid:
    """Words that a backup is not to be trusted."""
    return Invalid(
        f"The backup {file} is damaged: {why}.", code="backup_damaged", hint="Take another one; do not restore this."
    )


def _take(file: Path, tar: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path, found: dict[str, Member]) -> Member:
    if not entry.isreg() or not _NAME.fullmatch(entry.name) or entry.name in found:
        raise damaged(file, f"it holds {entry.name[:100]!r}, which no backup has")
    source = tar.extractfile(entry)
    if source is None:
        raise damaged(file, f"{entry.name} cannot be read")
    target = folder / entry.name
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            out.write(chunk)
            size += len(chunk)
    if size != entry.size:
        raise damaged(file, f"{entry.name} ends too early")
    return Member(size, f"sha256:{digest.hexdigest()}")


def _agreed(file: Path, folder: Path, found: dict[str, Member]) -> Manifest:
    if list(found)[-2:] != [MANIFEST, _SEAL] or found[MANIFEST].size > _MOST_MANIFEST:
        raise damaged(file, "its end is missing")
    text = (folder / MANIFEST).read_bytes()
    if (folder / _SEAL).read_text(errors="replace") != canonical.sha256(text):
        raise damaged(file, "its list of contents was changed")
    manifest = _read(file, text)
    held = {name: member for name, member in found.items() if name not in {MANIFEST, _SEAL}}
    for name in sorted(held.keys() | manifest.files.keys()):
        if held.get(name) != manifest.files.get(name):
            raise damaged(file, f"{name} is not what was put into it")
    return manifest


def _read(file: Path, text: bytes) -> Manifest:
    try:
        said: Any = canonical.load(text)
        form = said.get("form") if isinstance(said, dict) else None
        if isinstance(form, int) and form > 1:
            raise Invalid(
                f"The backup {file} has form {form}, which this program does not know.",
                code="backup_newer",
                hint="Use the newer program that made it.",
            )
        return msgspec.convert(said, Manifest)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise damaged(file, f"its list of contents cannot be read ({error})") from None


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    return entry


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
