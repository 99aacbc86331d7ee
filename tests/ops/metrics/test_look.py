from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from stationmaster.clock import ManualClock
from stationmaster.gitea import codes, limits, store, watch
from stationmaster.gitea.limits import Reached
from stationmaster.ledger.ledger import Ledger
from stationmaster.ledger.tx import HotTx, Tx
from stationmaster.ops.metrics.follow import Q
from stationmaster.ops.wiring import SLICES
from tests.ops.metrics.conftest import Watched


async def test_open_tasks_are_counted_and_ended_ones_are_not(watched: Watched) -> None:
    rig = watched.rig
    rig.step(rig.ask(1), "cancel")
    rig.waiting(2)
    rig.ask(3)
    tasks = (await watched.page())["stationmaster_tasks"]
    assert {state[0]: n for state, n in tasks.items() if n} == {"queued": 1, "waiting_user": 1}
    assert ("cancelled",) not in tasks


async def test_the_queue_is_as_old_as_what_could_be_claimed(watched: Watched) -> None:
    rig = watched.rig
    assert (await watched.page())["stationmaster_queue_age_seconds"][()] == 0
    held, behind, free = rig.ask(1), rig.ask(1), rig.ask(2)

    def keep_back(tx: Tx) -> None:
        limits.keep_back(tx, store.task(tx, held), Reached(codes.RATE_REACHED, None))

    watched.passes(10)
    rig.do(keep_back)
    page = await watched.page()
    assert page["stationmaster_held_tasks"] == {(codes.RATE_REACHED,): 1}
    assert page["stationmaster_queue_age_seconds"][()] == 10
    # The second question of the first conversation waits for the first by rule.
    rig.step(free, "cancel")
    assert (await watched.page())["stationmaster_queue_age_seconds"][()] == 0
    rig.step(held, "cancel")
    assert (await watched.page())["stationmaster_queue_age_seconds"][()] == 10
    rig.switch(rig.repository(behind).id, "disable")
    assert (await watched.page())["stationmaster_queue_age_seconds"][()] == 0


async def test_a_retry_counts_from_when_it_is_due(watched: Watched) -> None:
    rig = watched.rig
    task_id = rig.ask(1)
    rig.postpone(task_id, "execution", rig.running(task_id), delay_s=30)
    watched.passes(20)
    assert (await watched.page())["stationmaster_queue_age_seconds"][()] == 0
    watched.passes(15)
    assert (await watched.page())["stationmaster_queue_age_seconds"][()] == 5


async def test_pause_leases_intents_and_comments_are_shown(watched: Watched) -> None:
    rig = watched.rig
    task_id = rig.ask(1)
    rig.claimed(task_id)

    def begin(tx: Tx) -> None:
        tx.intent("comment.post", subject="key")

    rig.do(begin)
    rig.pause()
    watched.passes(4)
    page = await watched.page()
    assert page["stationmaster_paused"][()] == 1
    assert page["stationmaster_repository_leases"][()] == 1
    assert page["stationmaster_open_intents"][()] == 1
    assert page["stationmaster_open_intent_age_seconds"][()] == 4
    assert page["stationmaster_open_comments"][()] == 0
    assert page["stationmaster_database_bytes"][()] > 10_000
    # Only SQLite has a log of its own.
    assert bool(page["stationmaster_log_bytes"]) == isinstance(rig.database, Path)


async def test_the_reading_of_each_forge_is_shown(watched: Watched) -> None:
    def read(hot: HotTx) -> None:
        watch.listed(hot, "default", 1)
        watch.round_done(hot, "default", found=0, taken=0, failed=1)
        watch.begin(hot, "default", [(1, "acme", "widgets"), (2, "acme", "gears")], 1)
        watch.looked(hot, "default", 1, codes.FORGE_TIMEOUT)
        watch.listed(hot, "second", 1)

    watched.rig.ledger.hot(read)
    watched.passes(90)
    page = await watched.page()
    # One that was never read through has no age: its absence is what an alert looks for.
    assert page["stationmaster_reading_age_seconds"] == {("default",): 90}
    assert page["stationmaster_unread_repositories"] == {("default",): 1, ("second",): 0}


@pytest.mark.parametrize("query", list(Q), ids=lambda query: query.name)
def test_no_query_of_a_scrape_reads_a_whole_table(tmp_path: Path, query: object) -> None:
    Ledger.open(tmp_path / "ledger.db", SLICES, clock=ManualClock()).close()
    connection = sqlite3.connect(tmp_path / "ledger.db")
    sql, params = query.sqlite, query.params  # type: ignore[attr-defined]
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", dict.fromkeys(params))]
    connection.close()
    # An index that holds open rows only, a table that is small by nature, or rows that a limit has cut already.
    fine = re.compile(
        r"SCAN (gitea_comment USING INDEX gitea_comment_open|gitea_hold USING INDEX gitea_hold_since|"
        r"open_intent|gitea_control|l USING INDEX \S+listing_1|(counted|held|h|o|u|k)|pragma_\w+ VIRTUAL TABLE .*)"
    )
    assert [step for step in plan if step.startswith("SCAN") and not fine.fullmatch(step)] == []
    if {"after", "below"} <= set(params):
        # By its number alone: by the machine it would read all of the past first.
        assert re.fullmatch(r"SEARCH [je] USING INTEGER PRIMARY KEY \(rowid>\? AND rowid<\?\)", plan[0])
