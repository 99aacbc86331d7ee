"""Whether a claim stays as quick with a thousand times the rows: the lease of a repository and the move of its task.

A thousand repositories, a tenth of them leased, one of these with half of all rows; the leased ones stand first in the
list of what is ready, as they would after a busy day.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from stationmaster.command import Cmd
from stationmaster.errors import Bug
from stationmaster.gitea import actions, claiming, store
from stationmaster.gitea.model import Task
from stationmaster.gitea.settings import GiteaSettings, Station
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.ledger import Ledger
from stationmaster.ledger.tx import Reader, Tx
from stationmaster.ops.bench import deliveries, seed
from stationmaster.ops.bench.report import Report, machine, percentile, spread
from stationmaster.ops.bench.stores import place

_AIM_RATIO = 1.5
_CLAIM = Cmd("task.claim", "system", "bench")
_FREE_SLOTS = 8
_BLOCK = 25


@dataclass(frozen=True, slots=True)
class Plan:
    """With how many rows, how many claims a round, how many rounds."""

    rows: tuple[int, ...]
    claims: int
    rounds: int
    url: str | None = None


@dataclass(slots=True)
class Field:
    """One ledger of one size, and what its claims took."""

    rows: int
    ledger: Ledger
    free: Iterator[str]
    station: Station
    settings: GiteaSettings
    finds: list[list[float]] = field(default_factory=list)
    claims: list[list[float]] = field(default_factory=list)
    claimed: int = 0

    def claim(self) -> None:
        """Looks for what is due, claims in the next free repository, and puts the task back unmeasured."""
        began = time.perf_counter()
        due = self.ledger.read(_due)
        found = time.perf_counter()
        got = self.ledger.do(_CLAIM, claiming.claim, next(self.free), self.station, self.settings)
        done = time.perf_counter()
        if got is None or len(due) != _FREE_SLOTS:
            raise Bug(f"BUG: nothing to claim among {self.rows} rows.")
        self.finds[-1].append((found - began) * 1000)
        self.claims[-1].append((done - found) * 1000)
        self.claimed += 1
        task, lease = got
        self.ledger.do(Cmd("bench.put_back", "system", "bench"), _put_back, task.id, lease, self.settings)


def run(plan: Plan, folder: Path, report: Report) -> None:
    """Measures and reports."""
    report.line("machine", **machine(folder), engine="sqlite" if plan.url is None else "postgres")
    with contextlib.ExitStack() as stack:
        fields = [stack.enter_context(_field(rows, folder, plan.url, report)) for rows in sorted(set(plan.rows))]
        # The first round warms up caches and statements and is not counted.
        for number in range(plan.rounds + 1):
            report.note(f"round {number} of {plan.rounds}" if number else "warm-up")
            for ground in fields:
                ground.finds.append([])
                ground.claims.append([])
            for first in range(0, plan.claims, _BLOCK):
                for ground in fields:
                    for _ in range(min(_BLOCK, plan.claims - first)):
                        ground.claim()
        for ground in fields:
            del ground.finds[0], ground.claims[0]
        _tell(fields, report)


@contextlib.contextmanager
def _field(rows: int, folder: Path, url: str | None, report: Report) -> Iterator[Field]:
    shape = seed.Shape(rows)
    station = Station(seed.WORKER, seed.INCARNATION, _FREE_SLOTS, folder)
    with place(folder, f"rows{rows}", url) as here, contextlib.closing(here.ledger()) as ledger:
        report.note(f"writing {rows} tasks, every one by a command")
        seconds = seed.fill(ledger, shape)
        here.settle()
        stored = here.count("gitea_task")
        report.line("rows", tasks=stored, repositories=shape.repositories, leased=shape.leased, seconds=seconds)
        if stored != rows:
            raise Bug(f"BUG: {stored} tasks instead of {rows}.")
        yield Field(rows, ledger, cycle(shape.free()), station, deliveries.settings())


def _due(reader: Reader) -> list[str]:
    return list(store.due_repositories(reader, "default", seed.WORKER, _FREE_SLOTS))


def _put_back(tx: Tx, task_id: str, lease: Lease, settings: GiteaSettings) -> Task:
    return actions.leave(tx, task_id, "retry", lease, settings, next_retry_at=tx.now)


def _tell(fields: list[Field], report: Report) -> None:
    for ground in fields:
        times = sorted(value for one in ground.claims for value in one)
        report.line(
            "claim",
            rows=ground.rows,
            claim_ms=_medians(ground.claims),
            p99_ms=percentile(times, 0.99),
            find_ms=_medians(ground.finds),
            claims=len(times),
        )
    base, most = fields[0], fields[-1]
    for ground in fields[1:]:
        claims = [_middle(more) / _middle(few) for more, few in zip(ground.claims, base.claims, strict=True)]
        finds = [_middle(more) / _middle(few) for more, few in zip(ground.finds, base.finds, strict=True)]
        report.line("ratio", rows=ground.rows, to_rows=base.rows, claim=spread(claims), find=spread(finds))
        if ground is most:
            words = f"times the {base.rows}-row time of a claim, at {ground.rows} rows"
            report.aim(words, spread(claims).median, _AIM_RATIO, at_least=False)


def _medians(rounds: list[list[float]]) -> object:
    return spread([_middle(one) for one in rounds])


def _middle(values: list[float]) -> float:
    return percentile(sorted(values), 0.5)
