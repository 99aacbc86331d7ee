"""What a measurement prints: one JSON object a line, or tables for people; medians with lowest and highest round."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import typer

from stationmaster import canonical

_SYNCS = 200
_NEEDED = ("msgspec", "starlette", "uvicorn", "uvloop", "httptools", "psycopg")


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several rounds with the lowest and the highest."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{_short(self.median)} ({_short(self.low)}-{_short(self.high)})"


def spread(values: Sequence[float]) -> Spread:
    """Returns median, lowest and highest of the rounds."""
    return Spread(*(round(value, 4) for value in (statistics.median(values), min(values), max(values))))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Returns the value that `share` of the sorted values do not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@dataclass(slots=True)
class Report:
    """The lines of one measurement, printed as they come (JSON) or as tables at the end."""

    bench: str
    as_json: bool
    _tables: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)

    def line(self, part: str, /, **values: Any) -> None:
        """Adds one line to the part it belongs to."""
        if self.as_json:
            typer.echo(canonical.dump({"bench": self.bench, "line": part, **values}))
        else:
            self._tables.setdefault(part, []).append(values)

    def aim(self, words: str, value: float, limit: float, *, at_least: bool) -> None:
        """Adds what was hoped for beside what was found."""
        met = value >= limit if at_least else value <= limit
        self.line("aim", aim=words, limit=limit, found=round(value, 2), met=met)

    def note(self, words: str) -> None:
        """Says on standard error what goes on meanwhile, to people only."""
        if not self.as_json:
            typer.echo(f"  … {words}", err=True)

    def end(self) -> None:
        """Prints the tables."""
        for part, rows in self._tables.items():
            typer.echo(f"\n{self.bench}: {part}")
            if len(rows) == 1:
                _print_pairs(rows[0])
            else:
                _print_table(rows)


def _print_pairs(row: Mapping[str, Any]) -> None:
    width = max(map(len, row))
    for name, value in row.items():
        typer.echo(f"  {name:<{width}}  {_short(value)}")


def _print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([_short(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(names))]
    for line in cells:
        typer.echo("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits say enough
    return str(value)


def machine(folder: Path) -> dict[str, Any]:
    """Describes where the figures were taken; `load` tells whether anybody else was at work."""
    return {
        "cpu": _first("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "kernel": platform.release(),
        "filesystem": _filesystem(folder),
        "fdatasync_ms": _fdatasync(folder),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "stationmaster": metadata.version("stationmaster"),
        **{name: metadata.version(name) for name in _NEEDED},
    }


def _first(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return "unknown"


def _filesystem(folder: Path) -> str:
    here = folder.resolve()
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if here.is_relative_to(place) and len(place) >= len(best[0]):
            best = (place, kind)
    return best[1]


def _fdatasync(folder: Path) -> float:
    """Returns the median time of one small durable write, the floor of every commit."""
    path = folder / "sync-probe"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    times = []
    try:
        for number in range(_SYNCS):
            began = time.perf_counter()
            os.pwrite(descriptor, b"x" * 4096, 4096 * number)
            os.fdatasync(descriptor)
            times.append((time.perf_counter() - began) * 1000)
    finally:
        os.close(descriptor)
        path.unlink()
    return round(statistics.median(times), 3)
