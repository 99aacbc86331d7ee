"""Puts everything that is counted and seen into the words of Prometheus; made anew for each scrape, nothing is global.

A scrape reads one snapshot of the ledger at most once a second, however many ask.
"""

from __future__ import annotations

import asyncio
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from stationmaster.command import LedgerPort
from stationmaster.ledger.pulse import Pulse
from stationmaster.measure import Taken
from stationmaster.ops.metrics import look
from stationmaster.ops.metrics.families import FAMILIES, Family
from stationmaster.ops.metrics.figures import Figures, Spreads
from stationmaster.ops.metrics.follow import Follower

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_KEPT_S = 1.0
_WINDOWS = 20

Value = float | Taken
Samples = dict[tuple[str, ...], Value]


@dataclass(frozen=True, slots=True)
class LoopState:
    """How one background duty does; `age_s` is the time since it last ended a round well."""

    ticks: int
    done: int
    failures: int
    age_s: float


@dataclass(frozen=True, slots=True)
class ForgeState:
    """How the requests to one forge came out and what they took."""

    asked: Mapping[str, float]
    seconds: Taken


@dataclass(frozen=True, slots=True)
class Working:
    """What the duties of this process show at one moment; empty where there is no forge."""

    live_runs: int = 0
    max_runs: int = 0
    refused: bool = False
    loops: Mapping[str, LoopState] = field(default_factory=dict)
    forges: Mapping[str, ForgeState] = field(default_factory=dict)


class Exposition:
    """The whole page of metrics of one process."""

    def __init__(
        self,
        port: LedgerPort,
        figures: Figures,
        follower: Follower,
        pulse: Pulse,
        *,
        working: Callable[[], Working] = Working,
        database: Path | None = None,
        places: Mapping[str, Path] | None = None,
    ) -> None:
        """Takes `database` when it is a file of ours, and `places` whose disks are to be watched."""
        self._port = port
        self._figures = figures
        self._follower = follower
        self._pulse = pulse
        self._working = working
        self._database = database
        self._places = places or {}
        self._began = time.monotonic()
        self._alone = asyncio.Lock()
        self._page = b""
        self._until = 0.0

    async def page(self) -> bytes:
        """Returns the page; raises Unavailable when the ledger cannot be read."""
        async with self._alone:
            if time.monotonic() >= self._until:
                await self._follower.catch_up(_WINDOWS)
                seen = await self._port.read(look.now)
                self._page = _written({**self._of_ledger(seen), **self._of_history(), **self._of_process()})
                self._until = time.monotonic() + _KEPT_S
            return self._page

    def _of_ledger(self, seen: look.Seen) -> dict[str, Samples]:
        return {
            "tasks": _by_label(seen.tasks),
            "queue_age_seconds": _one(seen.queue_age_s),
            "held_tasks": _by_label(seen.held),
            "paused": _one(seen.paused),
            "open_intents": _one(seen.intents),
            "open_intent_age_seconds": _one(seen.intent_age_s),
            "open_comments": _one(seen.comments),
            "open_comment_age_seconds": _one(seen.comment_age_s),
            "repository_leases": _one(seen.leases),
            "reading_age_seconds": _by_label(seen.reading_age_s),
            "unread_repositories": _by_label(seen.unread),
            "open_looks": _by_label(seen.looks),
            "database_bytes": _one(seen.database_bytes),
        }

    def _of_history(self) -> dict[str, Samples]:
        figures = self._figures
        return {
            "task_moves": dict(figures.moves.taken()),
            "claim_wait_seconds": _one(figures.claim_wait_s.taken()),
            "preparation_seconds": _one(figures.preparation_s.taken()),
            "turn_seconds": _spread(figures.turn_s),
            "verification_seconds": _one(figures.verification_s.taken()),
            "receipt_seconds": _one(figures.receipt_s.taken()),
            "answer_seconds": _one(figures.answer_s.taken()),
            "comments": dict(figures.comments.taken()),
            "outcomes": dict(figures.outcomes.taken()),
            "unknown_outcomes": _one(figures.unknown_outcomes),
            "replies_missing": _one(figures.replies_missing),
            "duplicate_answers": _one(figures.duplicate_answers),
            "events": dict(figures.events.taken()),
            "refusals": dict(figures.refusals.taken()),
            "alerts": dict(figures.alerts.taken()),
            "limits_reached": dict(figures.limits.taken()),
            "gaps_closed": dict(figures.gaps.taken()),
            "gap_taken": {(): 0, **figures.gap_taken.taken()},
            "recovered": dict(figures.recovered.taken()),
            "history_behind": _one(self._follower.behind),
        }

    def _of_process(self) -> dict[str, Samples]:
        figures, pulse, working = self._figures, self._pulse, self._working()
        loops, forges = working.loops, working.forges
        disks = {name: shutil.disk_usage(_existing(path)) for name, path in self._places.items()}
        return {
            "deliveries": dict(figures.deliveries.taken()),
            "deliveries_failed": _one(figures.deliveries_failed),
            "http_responses": dict(figures.responses.taken()),
            "http_seconds": _spread(figures.response_s),
            "forge_requests": {
                (name, outcome): count for name, forge in forges.items() for outcome, count in forge.asked.items()
            },
            "forge_seconds": {(name,): forge.seconds for name, forge in forges.items()},
            "commit_seconds": _one(pulse.commit_s.taken()),
            "commit_jobs": _one(pulse.group.taken()),
            "commits_failed": _one(pulse.failed),
            "ledger_writable": _one(pulse.writable),
            "loop_ticks": {(name,): loop.ticks for name, loop in loops.items()},
            "loop_done": {(name,): loop.done for name, loop in loops.items()},
            "loop_failures": {(name,): loop.failures for name, loop in loops.items()},
            "loop_age_seconds": {(name,): loop.age_s for name, loop in loops.items()},
            "live_runs": _one(working.live_runs),
            "max_runs": _one(working.max_runs),
            "runs_refused": _one(working.refused),
            "log_bytes": {}
            if self._database is None
            else _one(_size(self._database.with_name(f"{self._database.name}-wal"))),
            "disk_free_bytes": {(name,): disk.free for name, disk in disks.items()},
            "disk_bytes": {(name,): disk.total for name, disk in disks.items()},
            "uptime_seconds": _one(time.monotonic() - self._began),
            "build_info": {(metadata.version("stationmaster"), platform.python_version()): 1},
        }


def _written(samples: Mapping[str, Samples]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(samples))
    # Memory, processor time, open files and start of this process, under the names that every dashboard knows.
    ProcessCollector(registry=registry)
    return bytes(generate_latest(registry))


class _Once(Collector):
    """Gives the registry of one scrape its families."""

    def __init__(self, samples: Mapping[str, Samples]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        """Yields every family, those without a sample too, so that a query finds its name."""
        for family in FAMILIES:
            yield _metric(family, self._samples[family.name.removeprefix("stationmaster_")])


def _metric(family: Family, samples: Samples) -> Metric:
    made: Any
    if family.kind == "histogram":
        made = HistogramMetricFamily(family.name, family.about, labels=family.labels)
        for labels, value in samples.items():
            if isinstance(value, Taken):
                made.add_metric(labels, _buckets(value), value.total)
        return made  # type: ignore[no-any-return]  # one of three classes without a common way to add
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    made = kind(family.name, family.about, labels=family.labels)
    for labels, value in samples.items():
        made.add_metric(labels, value)
    return made  # type: ignore[no-any-return]  # likewise


def _buckets(taken: Taken) -> list[tuple[str, float]]:
    seen, rows = 0, []
    for bound, count in zip((*taken.bounds, float("inf")), taken.counts, strict=True):
        seen += count
        rows.append(("+Inf" if bound == float("inf") else repr(bound), float(seen)))
    return rows


def _one(value: Value) -> Samples:
    return {(): value}


def _by_label(values: Mapping[str, float]) -> Samples:
    return {(name,): value for name, value in values.items()}


def _spread(spreads: Spreads) -> Samples:
    return {(name,): spread.taken() for name, spread in list(spreads.by.items())}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _existing(path: Path) -> Path:
    """Returns the path or its nearest parent that exists: a folder may be made later, and its disk is there."""
    return next((each for each in _upwards(path) if each.exists()), Path("/"))


def _upwards(path: Path) -> Iterable[Path]:
    return (path, *path.parents)
