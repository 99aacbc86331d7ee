"""What a guarded command costs beside the same rows in bare SQL: one task moves, one event says so, with their ids.

Once alone (a commit each) and once as a group (a commit for all), with the same number of commits on both sides.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from stationmaster import canonical, clock
from stationmaster.command import Cmd
from stationmaster.errors import Bug
from stationmaster.gitea.machine import TASK
from stationmaster.ledger.ledger import Ledger
from stationmaster.ledger.tx import HotTx, Tx
from stationmaster.ops.bench import seed
from stationmaster.ops.bench.report import Report, machine, spread
from stationmaster.ops.bench.stores import Place, Plain, place

GROUP = 32
_AIM_RATIO = 1.6
_SHAPE = seed.Shape(1_000, repositories=100, leased=0)
_VERBS = {"queued": ("claim", "preparing"), "preparing": ("retry", "retry_wait"), "retry_wait": ("claim", "preparing")}


@dataclass(frozen=True, slots=True)
class Plan:
    """How many commands a round, and how many rounds."""

    commands: int
    rounds: int
    url: str | None = None


@dataclass(slots=True)
class Row:
    """A task as its only writer knows it."""

    id: str
    state: str = "queued"
    rev: int = 1

    def next(self) -> tuple[str, str, int]:
        """Takes the next step; returns its verb, where it leads and the rev before it."""
        rev, (verb, self.state) = self.rev, _VERBS[self.state]
        self.rev += 1
        return verb, self.state, rev


@dataclass(slots=True)
class Rows:
    """The tasks in turn, and how many moves were asked for."""

    turn: Iterator[Row] = field(
        default_factory=lambda: cycle([Row(f"gitea-task-{number:032x}") for number in range(_SHAPE.tasks)])
    )
    moves: int = 0

    def next(self) -> Row:
        """Returns the next task."""
        self.moves += 1
        return next(self.turn)


def run(plan: Plan, folder: Path, report: Report) -> None:
    """Measures and reports."""
    report.line("machine", **machine(folder), engine="sqlite" if plan.url is None else "postgres")
    with place(folder, "guarded", plan.url) as guarded, place(folder, "bare", plan.url) as bare:
        for here in (guarded, bare):
            with contextlib.closing(here.ledger()) as ledger:
                seed.fill(ledger, _SHAPE)
        with contextlib.closing(guarded.ledger()) as ledger, contextlib.closing(bare.plain()) as store:
            ours, theirs = _Guarded(ledger), _Bare(store)
            _compare(plan, ours, theirs, report)
        _prove(guarded, ours.rows.moves, report, "guarded")
        _prove(bare, theirs.rows.moves, report, "bare")


class _Guarded:
    """Commands of the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.rows = Rows()

    def alone(self, commands: int) -> float:
        """Does commands one after another; returns the seconds of one."""
        began = time.perf_counter()
        for _ in range(commands):
            self._submit().result()
        return (time.perf_counter() - began) / commands

    def group(self, commands: int) -> float:
        """Does commands in groups; returns the seconds of one. The writer is held until a group is complete."""
        spent = 0.0
        for _ in range(commands // GROUP):
            gate = threading.Event()
            held = self._ledger.submit_hot(_hold, gate)
            waiting = [self._submit() for _ in range(GROUP)]
            began = time.perf_counter()
            gate.set()
            held.result()
            for future in waiting:
                future.result()
            spent += time.perf_counter() - began
        return spent / (commands // GROUP * GROUP)

    def _submit(self) -> Any:
        row = self.rows.next()
        verb, _, rev = row.next()
        cmd = Cmd("bench.step", "system", "bench", refs={"task": row.id, "repo": "default:acme/widgets"})
        return self._ledger.submit(cmd, _step, row.id, verb, rev)


def _hold(_: HotTx, gate: threading.Event) -> None:
    gate.wait()


def _step(tx: Tx, task: str, verb: str, rev: int) -> None:
    tx.move(TASK, task, verb, rev=rev, updated_at=tx.now)
    tx.event("bench.step", refs={"task": task}, rev=rev)


class _Bare:
    """The same rows by hand."""

    def __init__(self, store: Plain) -> None:
        self._store = store
        self._seq = store.newest()
        self._clock = clock.SystemClock()
        self.rows = Rows()

    def alone(self, commands: int) -> float:
        """Does the writes of commands one after another; returns the seconds of one."""
        return self._timed(commands, 1)

    def group(self, commands: int) -> float:
        """Does them in groups of one transaction."""
        return self._timed(commands // GROUP * GROUP, GROUP)

    def _timed(self, commands: int, together: int) -> float:
        began = time.perf_counter()
        for _ in range(commands // together):
            self._store.begin()
            for _ in range(together):
                self._step()
            self._store.commit()
        return (time.perf_counter() - began) / commands

    def _step(self) -> None:
        row = self.rows.next()
        origin = row.state
        verb, state, rev = row.next()
        now, command, moved, event = self._clock.now(), self._seq + 1, self._seq + 2, self._seq + 3
        self._seq = event
        run = self._store.run
        run(
            "INSERT INTO command (seq, name, actor, cause, args_hash, at, sealed) VALUES (?, ?, ?, ?, ?, ?, 1)",
            (command, "bench.step", "system", "bench", canonical.sha256(f"{row.id}{rev}"), now),
        )
        refs = "INSERT INTO ref (kind, value, seq) VALUES (?, ?, ?)"
        run(refs, ("task", row.id, command))
        run(refs, ("repo", "default:acme/widgets", command))
        touched = run(
            "UPDATE gitea_task SET state = ?, verb = ?, command = ?, updated_at = ?, rev = rev + 1"
            " WHERE id = ? AND rev = ?",
            (state, verb, command, now, row.id, rev),
        )
        if touched not in {1, -1}:
            raise Bug(f"BUG: {row.id} is not at {rev}.")
        run(
            "INSERT INTO journal (seq, machine, entity, rev, from_state, verb, to_state, command)"
            " VALUES (?, 'gitea_task', ?, ?, ?, ?, ?, ?)",
            (moved, row.id, rev + 1, origin, verb, state, command),
        )
        run(
            "INSERT INTO event (seq, action, kind, data, at, command) VALUES (?, 'bench.step', 'observation', ?, ?, ?)",
            (event, canonical.dump({"rev": rev}), now, command),
        )
        run(refs, ("task", row.id, event))


def _compare(plan: Plan, ours: _Guarded, theirs: _Bare, report: Report) -> None:
    modes: list[tuple[str, Callable[[int], float], Callable[[int], float]]] = [
        ("alone, a commit each", ours.alone, theirs.alone)
    ]
    if plan.url is None:
        # On PostgreSQL every command is a transaction of its own.
        modes.append((f"{GROUP} together, one commit", ours.group, theirs.group))
    for words, guarded, bare in modes:
        guarded(GROUP)
        bare(GROUP)
        pairs = []
        for number in range(plan.rounds):
            report.note(f"{words}: round {number + 1} of {plan.rounds}")
            pairs.append((guarded(plan.commands) * 1000, bare(plan.commands) * 1000))
        report.line(
            "command",
            mode=words,
            guarded_ms=spread([pair[0] for pair in pairs]),
            bare_ms=spread([pair[1] for pair in pairs]),
            ratio=spread([pair[0] / pair[1] for pair in pairs]),
            commands=plan.commands,
            rounds=plan.rounds,
        )
        ratio = spread([pair[0] / pair[1] for pair in pairs]).median
        report.aim(f"times the bare rows, {words}", ratio, _AIM_RATIO, at_least=False)


def _prove(here: Place, moves: int, report: Report, side: str) -> None:
    """Holds what was asked for against the journal."""
    found = here.count("journal") - _SHAPE.repositories - 2 * _SHAPE.tasks - here.count("gitea_session")
    report.line("written", side=side, asked=moves, journal=found)
    if found != moves:
        raise Bug(f"BUG: {moves} moves, {found} rows of the journal.")
