"""A ledger with the slices of a task, deliveries made from the recorded ones, and the verbs in few words; no forge."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import psycopg
import pytest

from stationmaster import canonical
from stationmaster.clock import Clock, ManualClock
from stationmaster.command import Cmd
from stationmaster.gitea import actions, claiming, normalise, signature, store, webhook
from stationmaster.gitea.machine import CONTROL, REPOSITORY
from stationmaster.gitea.model import LEASE_KIND, Comment, Purpose, Repository, Session, Task
from stationmaster.gitea.normalise import Outcome, Rules
from stationmaster.gitea.settings import GiteaSettings, Station
from stationmaster.inbox import actions as inbox
from stationmaster.jobs import actions as jobs
from stationmaster.ledger import history
from stationmaster.ledger import lease as leases
from stationmaster.ledger.history import Entry
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.ledger import Ledger, PostgresSettings, Tx
from stationmaster.redact import Secret
from tests.conftest import PostgresServer
from tests.gitea.samples import ALL, payload

R = TypeVar("R")

SLICES = (inbox.SLICE, jobs.SLICE, store.SLICE)
SECRET = "s3cr3t-for-samples"
ISSUE, PULL = "issue_comment_created_issue", "pull_comment_created"
RULES = Rules(frozenset({"gitea.example.com:443"}), "codebot", 42)
SETTINGS = GiteaSettings(
    base_url="https://gitea.example.com",
    host_ref="gitea",
    token=Secret("env:TOKEN", lambda: "token-of-the-bot"),
    webhook_secrets=(Secret("env:HOOK", lambda: SECRET),),
    bot_login="codebot",
)
HOME = Station("home", "first", max_runs=50, runs=Path("/nowhere"))

Place = Literal["sqlite", "postgres"]
Database = Path | PostgresSettings


def database(request: pytest.FixtureRequest, place: Place) -> Database:
    """Names an empty database of its own; for a fixture."""
    if place == "sqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        return folder / "ledger.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.settings()


def told(
    name: str = ISSUE,
    *,
    number: int | None = None,
    comment_id: int | None = None,
    body: str | None = None,
    who: tuple[int, str] | None = None,
    repo: tuple[int, str, str] | None = None,
    may: str | None = None,
) -> dict[str, Any]:
    """Returns a recorded payload with another comment, author, issue, repository or right of its sender."""
    data = payload(name)
    if number is not None:
        data["issue"]["number"] = number
        if data.get("pull_request"):
            data["pull_request"]["number"] = number
    if comment_id is not None:
        data["comment"]["id"] = comment_id
    if body is not None:
        data["comment"]["body"] = body
    if who is not None:
        for person in (data["sender"], data["comment"]["user"]):
            person.update(id=who[0], login=who[1], username=who[1])
    if repo is not None:
        native_id, owner, title = repo
        data["repository"].update(id=native_id, name=title, full_name=f"{owner}/{title}")
        data["repository"]["clone_url"] = f"https://gitea.example.com/{owner}/{title}.git"
        data["repository"]["owner"].update(login=owner, username=owner)
    if may is not None:
        ranks = ["pull", "push", "admin"]
        have = ["none", "read", "write", "admin"].index(may)
        data["repository"]["permissions"] = {right: at < have for at, right in enumerate(ranks)}
    return data


def signed(
    data: Mapping[str, Any] | bytes,
    *,
    delivery: str | None,
    event: str = "issue_comment",
    kind: str | None = None,
    secret: str = SECRET,
) -> tuple[dict[str, str], bytes]:
    """Returns headers and body of a delivery as the forge sends it."""
    raw = data if isinstance(data, bytes) else json.dumps(data, ensure_ascii=False).encode()
    headers = {
        "Content-Type": "application/json",
        "X-Gitea-Event": event,
        "X-Gitea-Event-Type": kind or event,
        "X-Gitea-Signature": signature.sign(secret.encode(), raw),
    }
    return (headers | {"X-Gitea-Delivery": delivery} if delivery is not None else headers), raw


def _connect(where: Database) -> Any:
    if isinstance(where, PostgresSettings):
        return psycopg.connect(where.dsn, autocommit=True, options=f"-c search_path={where.schema}")
    return sqlite3.connect(where, isolation_level=None)


@dataclass
class Rig:
    """One open ledger and what a test asks of it."""

    ledger: Ledger
    database: Database
    clock: ManualClock
    settings: GiteaSettings = SETTINGS
    _beside: Any = None
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def on(cls, where: Database, clock: ManualClock, *, with_clock: Clock | None = None) -> Rig:
        """Opens the ledger."""
        return cls(Ledger.open(where, SLICES, clock=with_clock or clock), where, clock)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Reads the database beside the ledger."""
        if self._beside is None:
            self._beside = _connect(self.database)
        return list(self._beside.execute(sql).fetchall())

    def close(self) -> None:
        """Closes the ledger and what reads beside it."""
        if self._beside is not None:
            self._beside.close()
        self.ledger.close()

    def count(self, table: str) -> int:
        """Counts the rows of a table."""
        return int(self.rows(f"SELECT count(*) FROM {table}")[0][0])

    # Deliveries ------------------------------------------------------------------------------------------------------

    def said(self, data: Mapping[str, Any], delivery: str | None = None) -> tuple[Outcome, str]:
        """Returns what a delivery says, and the hash of its bytes."""
        headers, raw = signed(data, delivery=delivery or f"d{next(self._numbers)}")
        return normalise.normalise(headers, raw, RULES), canonical.sha256(raw)

    def take(self, data: Mapping[str, Any], delivery: str | None = None) -> webhook.Reply:
        """Takes a delivery past the door's asynchronous half."""
        said, digest = self.said(data, delivery)
        return self.do(webhook.take, said, digest, self.settings, name="webhook.take")

    def ask(self, number: int = 12, *, delivery: str | None = None, **more: Any) -> str:
        """Lets somebody ask something in a new comment; returns the task's id."""
        comment_id = 100_000 + next(self._numbers)
        reply = self.take(told(number=number, comment_id=comment_id, **more), delivery)
        assert reply.status == 202, reply
        assert reply.task_id is not None
        return reply.task_id

    # Verbs -----------------------------------------------------------------------------------------------------------

    def do(self, fn: Callable[..., R], /, *args: Any, name: str = "test", **kwargs: Any) -> R:
        """Runs a body as a command."""
        return self.ledger.do(Cmd(name, "system", "test"), fn, *args, **kwargs)

    def task(self, task_id: str) -> Task:
        """Returns a task as it is."""
        return self.ledger.read(store.task, task_id)

    def state(self, task_id: str) -> str:
        """Returns where a task stands."""
        return self.task(task_id).state

    def repository(self, task_id: str) -> Repository:
        """Returns a task's repository."""
        return self.ledger.read(store.repository, self.task(task_id).repository_id)

    def session(self, task_id: str) -> Session:
        """Returns a task's session."""
        return self.ledger.read(store.session, self.task(task_id).session_id)

    def comments(self, task_id: str) -> list[Comment]:
        """Returns a task's comments."""
        return self.ledger.read(store.comments, task_id)

    def claim(self, task_id: str, station: Station = HOME) -> tuple[Task, Lease] | None:
        """Claims whatever is first in the repository of a task."""
        repository_id = self.task(task_id).repository_id
        return self.do(claiming.claim, repository_id, station, self.settings, name="task.claim")

    def claimed(self, task_id: str, station: Station = HOME) -> Lease:
        """Claims this very task."""
        got = self.claim(task_id, station)
        assert got is not None
        assert got[0].id == task_id
        return got[1]

    def running(self, task_id: str) -> Lease:
        """Claims this very task and starts it."""
        lease = self.claimed(task_id)
        self.advance(task_id, "start", lease)
        return lease

    def advance(self, task_id: str, verb: str, lease: Lease, **cols: Any) -> Task:
        """Moves a task and keeps the lease."""
        return self.do(actions.advance, task_id, verb, lease, self.settings, **cols)

    def leave(self, task_id: str, verb: str, lease: Lease, **cols: Any) -> Task:
        """Moves a task and gives the lease back."""
        return self.do(actions.leave, task_id, verb, lease, self.settings, **cols)

    def give_up(self, task_id: str, code: str, lease: Lease, *, retryable: bool = True) -> Task:
        """Spends the retry, or fails the task."""
        return self.do(actions.give_up_or_retry, task_id, code, lease, self.settings, retryable=retryable)

    def postpone(self, task_id: str, purpose: Purpose, lease: Lease, *, delay_s: float = 0, **cols: Any) -> Task:
        """Puts a task back for another look."""
        return self.do(actions.postpone, task_id, purpose, lease, self.settings, delay_s=delay_s, **cols)

    def step(self, task_id: str, verb: str, **cols: Any) -> Task:
        """Moves a task that nobody works on."""

        def body(tx: Tx) -> Task:
            return actions.step(tx, store.task(tx, task_id), verb, self.settings, **cols)

        return self.do(body)

    def waiting(self, number: int = 12, **more: Any) -> str:
        """Brings a new task to where it waits for its user."""
        task_id = self.ask(number, **more)
        self.leave(task_id, "wait", self.running(task_id))
        return task_id

    def switch(self, repository_id: str, verb: str) -> None:
        """Disables, enables, blocks or unblocks a repository."""

        def body(tx: Tx) -> None:
            repository = store.repository(tx, repository_id)
            tx.move(REPOSITORY, repository.id, verb, rev=repository.rev, updated_at=tx.now)

        self.do(body)

    def pause(self, verb: str = "pause") -> None:
        """Pauses or resumes everything."""

        def body(tx: Tx) -> None:
            row = store.control(tx)
            if row is None:
                tx.born(CONTROL, "default", "install", updated_by="admin:test", updated_at=tx.now)
                row = store.control(tx)
            assert row is not None
            tx.move(CONTROL, "default", verb, rev=row.rev, updated_by="admin:test", updated_at=tx.now)

        self.do(body)

    # History ---------------------------------------------------------------------------------------------------------

    def events(self, action: str) -> list[Entry]:
        """Returns the events of one action."""
        return self.ledger.read(history.by_action, action)

    def moves(self, task_id: str) -> list[tuple[str | None, str, str | None]]:
        """Returns what the database wrote about a task's moves."""
        found = self.ledger.read(history.by_entity, "gitea_task", task_id)
        return [(entry.from_state, entry.name, entry.to_state) for entry in found]

    def holder(self, task_id: str) -> Lease | None:
        """Returns who holds the repository of a task."""
        return self.ledger.read(leases.current, LEASE_KIND, self.task(task_id).repository_id)

    def due(self, station: Station = HOME) -> list[str]:
        """Returns the repositories in which this worker may find something."""
        return list(self.ledger.read(store.due_repositories, "default", station.worker_id, 1000))


def elsewhere(name: str, incarnation: str = "first") -> Station:
    """Returns another worker."""
    return replace(HOME, worker_id=name, incarnation=incarnation)


__all__ = ["ALL", "HOME", "ISSUE", "PULL", "RULES", "SECRET", "SETTINGS", "SLICES", "Rig", "database", "signed", "told"]
