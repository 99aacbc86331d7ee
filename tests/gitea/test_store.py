"""The queries behind a claim and a delivery find their rows by the index that was made for them."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from stationmaster.clock import ManualClock
from stationmaster.gitea.store import Q
from stationmaster.ledger.ledger import Ledger
from stationmaster.ops.wiring import SLICES


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("ready_repositories", "gitea_ready_at"),
        ("candidate", "gitea_task_waiting"),
        ("candidate", "gitea_task_open"),
        ("active_tasks", "gitea_task_active"),
        ("all_active_tasks", "gitea_task_state"),
        ("open_comments", "gitea_comment_open"),
    ],
)
def test_a_query_finds_its_rows_by_index(tmp_path: Path, name: str, index: str) -> None:
    Ledger.open(tmp_path / "ledger.db", SLICES, clock=ManualClock()).close()
    query = getattr(Q, name)
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db")) as db:
        plan = db.execute(f"EXPLAIN QUERY PLAN {query.sqlite}", dict.fromkeys(query.params)).fetchall()
    assert any(index in step[3] for step in plan), plan
    assert not [step[3] for step in plan if step[3].startswith("SCAN t")]
