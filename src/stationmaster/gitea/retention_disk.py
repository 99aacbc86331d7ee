"""Lets go of what runs left on this disk: folders, scratch that outlived its run, conversations that are over.

Only what the ledger knows to be over and past its days goes. A conversation that may still be resumed stays, and so
does a folder that nobody knows.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog

from stationmaster.clock import MICROS
from stationmaster.command import Cmd, LedgerPort
from stationmaster.jobs import actions as jobs
from stationmaster.ledger.tx import Reader, Tx

_log = structlog.get_logger("stationmaster.gitea")

_DAY = 86_400 * MICROS
# What one step looks at: a folder of many small files takes a while to go.
_MOST = 25
_SCRATCH = ("host", "work")
_ROLLOUT = re.compile(r"rollout-.*-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\.jsonl(\.zst)?")


class Days(Protocol):
    """For how many days files are kept."""

    @property
    def file_days(self) -> float:
        """Of runs."""
        ...

    @property
    def thread_days(self) -> float:
        """Of conversations."""
        ...


@dataclass(frozen=True, slots=True)
class _Old:
    """Something to be let go, and what it is counted as."""

    what: str
    path: Path

    def size(self) -> int:
        """Returns its bytes, links not followed."""
        if not self.path.is_dir() or self.path.is_symlink():
            return self.path.lstat().st_size
        return sum(each.lstat().st_size for each in self.path.rglob("*") if each.is_file() and not each.is_symlink())


@dataclass(slots=True)
class Disk:
    """The folders of one worker; where the walk through them stands is only in memory."""

    port: LedgerPort
    runs: Path
    codex_homes: Path
    scratch: Path
    task_is_over: Callable[[Reader, str], bool]
    living_threads: Callable[[Reader, str, int], frozenset[str]]
    _after: str = ""
    # What could not be removed is not tried again by this process.
    _stuck: set[Path] = field(default_factory=set)

    async def due(self, keep: Days) -> dict[str, int]:
        """Counts what would be let go now, and its bytes."""
        found: Counter[str] = Counter({"files": 0, "fileBytes": 0})
        for name in _names(self.runs):
            await self._count(found, await self._of_run(name, keep))
        await self._count(found, await self._of_threads(keep))
        return dict(found)

    async def step(self, keep: Days) -> Counter[str]:
        """Lets go of some; returns what, empty when a walk through everything found nothing more."""
        names = [name for name in _names(self.runs) if name > self._after][:_MOST]
        self._after = names[-1] if len(names) == _MOST else ""
        old = [each for name in names for each in await self._of_run(name, keep)]
        if not self._after:
            old += (await self._of_threads(keep))[:_MOST]
        old = [each for each in old if each.path not in self._stuck]
        done: Counter[str] = Counter()
        if old:
            told = [str(each.path) for each in old]
            await self.port.do(Cmd("retention.files", "system", "tick:retention"), _tell, told)
            for each in old:
                if await self.port.off(_remove, each.path):
                    done["files"] += 1
                else:
                    self._stuck.add(each.path)
                    _log.warning("retention.stuck", path=str(each.path))
        elif self._after:
            done["looked"] = 1
        return done

    async def _count(self, found: Counter[str], old: list[_Old]) -> None:
        for each in old:
            found["files"] += 1
            found["fileBytes"] += await self.port.off(each.size)

    async def _of_run(self, name: str, keep: Days) -> list[_Old]:
        folder = self.runs / name
        age = await self.port.read(self._ended_ago, name)
        if age is None:
            return []
        if age > keep.file_days * _DAY:
            return [_Old("run", folder)]
        return [_Old("scratch", folder / each) for each in _SCRATCH if age > _DAY and (folder / each).is_dir()]

    def _ended_ago(self, reader: Reader, run_id: str) -> int | None:
        run = jobs.find(reader, run_id)
        if run is None or run.ended_at is None or not self.task_is_over(reader, run.subject):
            return None
        return reader.now - run.ended_at

    async def _of_threads(self, keep: Days) -> list[_Old]:
        now = await self.port.read(_now)
        before = now - int(keep.thread_days * _DAY)
        found = [_Old("scratch", path) for path in _entries(self.scratch) if _changed(path) < now - _DAY]
        for home in _entries(self.codex_homes):
            old = await self.port.off(_rollouts, home, before)
            if old:
                living = await self.port.read(self.living_threads, home.name, before)
                found += [_Old("thread", path) for path, thread in old if thread not in living]
        return found


def _now(reader: Reader) -> int:
    return reader.now


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in _entries(folder) if path.is_dir() and not path.is_symlink())


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def _changed(path: Path) -> int:
    return path.lstat().st_mtime_ns // 1000


def _rollouts(home: Path, before: int) -> list[tuple[Path, str]]:
    return [(path, named[1]) for path, named in _named(home) if _changed(path) < before]


def _named(home: Path) -> Iterator[tuple[Path, re.Match[str]]]:
    for name in ("sessions", "archived_sessions"):
        for path in sorted((home / name).rglob("rollout-*")):
            named = _ROLLOUT.fullmatch(path.name)
            if named is not None and path.is_file() and not path.is_symlink():
                yield path, named


def _remove(path: Path) -> bool:
    """Removes a file or folder, never through a link; returns whether it is gone."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError:
        return not os.path.lexists(path)
    return True


def _tell(tx: Tx, paths: list[str]) -> None:
    tx.event("retention.files", paths=paths)
