"""Writes down what a story with kills came to: one JSON line for each rig, for `python -m tools.recovered`.

Everything is read afterwards, from the ledger's history and from the forge itself; the story does not know of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stationmaster.clock import MICROS

if TYPE_CHECKING:
    from tests.journeys.rig import Rig

Json = dict[str, Any]

_RESTING = (
    "waiting_user",
    "blocked_workspace",
    "succeeded",
    "succeeded_with_rest_fallback",
    "failed",
    "failed_reply",
    "cancelled",
    "aborted",
)
# Each move of each task, with its time.
_MOVES = """
SELECT j.entity, j.to_state, c.at FROM journal j JOIN command c ON c.seq = j.command
WHERE j.machine = 'gitea_task' ORDER BY j.seq
"""


class Recorder:
    """Appends to one file; several processes may."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def take(self, rig: Rig) -> None:
        """Writes the line of a rig whose story is over and that was killed; others say nothing about recovery."""
        if not rig.deaths:
            return
        moves = _moves(rig)
        line = {
            "story": os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0].rpartition("/")[2],
            "kills": len(rig.deaths),
            "tasks": len({task for task, _, _ in moves}),
            **_deliveries(rig, {task for task, _, _ in moves}),
            "duplicateReplies": _duplicates(rig, {task for task, _, _ in moves}),
            "stuck": len([state for state in _states(moves, None).values() if state not in _RESTING]),
            "recoveries": [_recovery(rig, moves, death) for death in rig.deaths],
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _moves(rig: Rig) -> list[tuple[str, str, float]]:
    database = rig.product.home / "stationmaster.db"
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as ledger:
        return [(task, state, at / MICROS) for task, state, at in ledger.execute(_MOVES)]


def _states(moves: list[tuple[str, str, float]], until: float | None) -> dict[str, str]:
    return {task: state for task, state, at in moves if until is None or at <= until}


def _deliveries(rig: Rig, tasks: set[str]) -> Json:
    """Counts what was answered 2xx, what of that the ledger does not know, and what nobody answered."""
    answered = lost = unanswered = 0
    for row in rig.admin.deliveries():
        if not row["succeeded"]:
            unanswered += 1
            continue
        answered += 1
        named = json.loads(row["response"]["body"]).get("taskId")
        lost += int(named is not None and named not in tasks)
    return {"answered": answered, "lost": lost, "unanswered": unanswered}


def _duplicates(rig: Rig, tasks: set[str]) -> int:
    return sum(max(len(said) - 1, 0) for task in tasks for said in (rig.answers(task), rig.receipts(task)))


def _recovery(rig: Rig, moves: list[tuple[str, str, float]], death: float) -> Json:
    """Tells how long after the next start deliveries were taken, left work went on, and all of it rested."""
    start = next((start for start in rig.starts if start[0] > death), None)
    if start is None:
        return {}
    began, ready = start
    left = [task for task, state in _states(moves, death).items() if state not in _RESTING]
    ends = next((later for later in rig.deaths if later > began), float("inf"))
    after = [move for move in moves if began < move[2] <= ends]
    first = [next((at for task, _, at in after if task == wanted), None) for wanted in left]
    rest = [next((at for task, state, at in after if task == wanted and state in _RESTING), None) for wanted in left]
    return {
        "readyS": round(ready - began, 3),
        "left": len(left),
        "wentOnS": _last(first, began),
        "restedS": _last(rest, began),
    }


def _last(times: list[float | None], began: float) -> float | None:
    """Returns when the last of them came; None when there is none or one never came."""
    known = [at for at in times if at is not None]
    return round(max(known) - began, 3) if known and len(known) == len(times) else None
