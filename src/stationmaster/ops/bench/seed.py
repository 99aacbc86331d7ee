"""Fills a ledger with repositories, leases and queued tasks: by commands over chunks, for guards are never off (K2)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from stationmaster.command import Cmd
from stationmaster.gitea import store
from stationmaster.gitea.machine import REPOSITORY, SESSION, TASK
from stationmaster.gitea.model import LEASE_KIND
from stationmaster.ledger import lease as leases
from stationmaster.ledger.ledger import Ledger
from stationmaster.ledger.tx import Tx

WORKER = "worker_bench"
INCARNATION = "inc_bench"
_OTHER = "worker_elsewhere"
_LONG_S = 86_400.0
# What one command may write is bounded (K1): 90 tasks are 9 sessions, 90 births and 90 moves.
_TASKS_A_SESSION, _TASKS_A_COMMAND = 10, 90
_REPOSITORIES_A_COMMAND = 50
_LEASES_A_COMMAND = 20
# Enough for a full group commit behind the one that is being written.
_IN_FLIGHT = 512


@dataclass(frozen=True, slots=True)
class Shape:
    """How tasks lie: the first repository holds half of them, the others share the rest evenly."""

    tasks: int
    repositories: int = 1_000
    leased: int = 100

    def share(self, repository: int) -> int:
        """Returns how many tasks a repository holds."""
        if repository == 0:
            return self.tasks // 2
        rest, others = self.tasks - self.tasks // 2, self.repositories - 1
        return rest // others + (repository <= rest % others)

    def free(self) -> list[str]:
        """Returns the repositories that hold tasks and nobody holds."""
        return [name(number) for number in range(self.leased, self.repositories) if self.share(number)]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some tasks of one repository, by their numbers."""

    repository: int
    first: int
    tasks: int


def name(repository: int) -> str:
    """Returns the id of a repository."""
    return f"repo_{repository:032d}"


def fill(ledger: Ledger, shape: Shape) -> float:
    """Fills an empty ledger; returns the seconds it took."""
    began = time.monotonic()
    ledger.hot(leases.register_worker, WORKER, INCARNATION)
    ledger.hot(leases.register_worker, _OTHER, INCARNATION)
    waiting: deque[Future[Any]] = deque()
    for first in range(0, shape.repositories, _REPOSITORIES_A_COMMAND):
        last = min(first + _REPOSITORIES_A_COMMAND, shape.repositories)
        ledger.do(Cmd("bench.repositories", "system", "bench"), _repositories, first, last, shape.leased)
    for chunk in _chunks(shape):
        waiting.append(ledger.submit(Cmd("bench.tasks", "system", "bench"), _tasks, chunk))
        if len(waiting) > _IN_FLIGHT:
            waiting.popleft().result()
    for future in waiting:
        future.result()
    for first in range(0, shape.leased, _LEASES_A_COMMAND):
        last = min(first + _LEASES_A_COMMAND, shape.leased)
        ledger.do(Cmd("bench.leases", "system", "bench"), _leases, first, last)
    return time.monotonic() - began


def _chunks(shape: Shape) -> Iterator[Chunk]:
    number = 0
    for repository in range(shape.repositories):
        left = shape.share(repository)
        while left:
            tasks = min(left, _TASKS_A_COMMAND)
            yield Chunk(repository, number, tasks)
            number, left = number + tasks, left - tasks


def _repositories(tx: Tx, first: int, last: int, leased: int) -> None:
    for number in range(first, last):
        tx.born(
            REPOSITORY,
            name(number),
            "register",
            instance_id="default",
            native_id=number + 1,
            owner="acme",
            name=f"widgets-{number}",
            repo_key=f"default:acme/widgets-{number}",
            clone_url=f"https://gitea.example.com/acme/widgets-{number}.git",
            default_branch="main",
            home_worker=_OTHER if number < leased else WORKER,
            registered_at=tx.now,
            updated_at=tx.now,
        )


def _tasks(tx: Tx, chunk: Chunk) -> None:
    for number in range(chunk.first, chunk.first + chunk.tasks):
        if (number - chunk.first) % _TASKS_A_SESSION == 0:
            session = _session(tx, chunk.repository, number)
        task = f"gitea-task-{number:032x}"
        tx.born(
            TASK,
            task,
            "receive",
            delivery_key=f"default:bench-{number:012d}",
            delivery_id=f"bench-{number:012d}",
            repository_id=name(chunk.repository),
            session_id=session,
            resource_key=f"default:acme/widgets-{chunk.repository}:issue:{number + 1}",
            comment_id=number + 1,
            author="alice",
            author_id=7,
            sender_may="write",
            attempt=0,
            reply_attempt=0,
            unblock_attempt=0,
            created_at=tx.now,
            updated_at=tx.now,
        )
        tx.move(TASK, task, "enqueue", rev=0, updated_at=tx.now)
    store.ready(tx, name(chunk.repository), tx.now)


def _session(tx: Tx, repository: int, number: int) -> str:
    made = f"session_{number:032d}"
    tx.born(
        SESSION,
        made,
        "open",
        repository_id=name(repository),
        kind="issue",
        number=number + 1,
        created_at=tx.now,
        updated_at=tx.now,
    )
    return made


def _leases(tx: Tx, first: int, last: int) -> None:
    for number in range(first, last):
        leases.acquire(
            tx,
            kind=LEASE_KIND,
            key=name(number),
            owner=_OTHER,
            incarnation=INCARNATION,
            subject="bench",
            ttl_s=_LONG_S,
        )
