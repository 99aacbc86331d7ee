"""Sums up what stories with kills came to: `python -m tools.recovered FILE` prints the table of docs/performance.md.

The file is written by `pytest tests/journeys --record FILE`. Exit status 1 when anything was lost, doubled or stuck.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TIMES = (("readyS", "restart to taking deliveries"), ("wentOnS", "restart to what was left going on"))
_LAST = ("restedS", "restart to all of it answered and at rest")


@dataclass(frozen=True, slots=True)
class Sum:
    """What all stories of a file came to; `times` by their name in the file, seconds, in order of size."""

    stories: int
    kills: int
    tasks: int
    answered: int
    lost: int
    duplicates: int
    stuck: int
    times: dict[str, list[float]]

    @property
    def clean(self) -> bool:
        """Tells that nothing was lost, doubled or stuck."""
        return not (self.lost or self.duplicates or self.stuck)


def summed(lines: list[dict[str, Any]]) -> Sum:
    """Adds the lines of a file up."""
    recoveries = [each for line in lines for each in line["recoveries"]]
    times = {
        name: sorted(each[name] for each in recoveries if each.get(name) is not None) for name, _ in (*_TIMES, _LAST)
    }
    return Sum(
        stories=len(lines),
        kills=sum(line["kills"] for line in lines),
        tasks=sum(line["tasks"] for line in lines),
        answered=sum(line["answered"] for line in lines),
        lost=sum(line["lost"] for line in lines),
        duplicates=sum(line["duplicateReplies"] for line in lines),
        stuck=sum(line["stuck"] for line in lines),
        times=times,
    )


def table(found: Sum) -> str:
    """Returns the figures as Markdown."""
    rows = [
        f"| stories, kills, tasks | {found.stories}, {found.kills}, {found.tasks} |",
        f"| deliveries answered 2xx, of them lost | {found.answered}, {found.lost} |",
        f"| replies and receipts posted twice | {found.duplicates} |",
        f"| tasks stuck | {found.stuck} |",
        *(f"| {words} | {_spread(found.times[name])} |" for name, words in (*_TIMES, _LAST)),
    ]
    return "\n".join(["| | |", "|---|---|", *rows])


def _spread(times: list[float]) -> str:
    if not times:
        return "nothing to time"
    middle, most = _at(times, 0.5), _at(times, 0.95)
    return f"median {middle:.2f} s, 95 % within {most:.2f} s, worst {times[-1]:.2f} s (n = {len(times)})"


def _at(times: list[float], share: float) -> float:
    return times[max(math.ceil(share * len(times)) - 1, 0)]


def main(arguments: list[str]) -> int:
    """Prints the table of one file; returns the exit status."""
    lines = [json.loads(line) for line in Path(arguments[0]).read_text(encoding="utf-8").splitlines()]
    found = summed(lines)
    sys.stdout.write(f"{table(found)}\n")
    return 0 if found.clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
