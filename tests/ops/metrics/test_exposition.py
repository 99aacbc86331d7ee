from __future__ import annotations

import asyncio

import pytest

from stationmaster.errors import Unavailable
from stationmaster.measure import Spread
from stationmaster.ops.metrics.exposition import ForgeState, LoopState, Working
from stationmaster.ops.metrics.families import FAMILIES
from tests.ops.metrics.conftest import Watched, parsed

# What differs between the databases is tried in test_look and test_follow.
pytestmark = pytest.mark.parametrize("watched", ["sqlite"], indirect=True)


async def test_every_family_is_on_the_page_and_nothing_else(watched: Watched) -> None:
    page = await watched.page()
    shown = {name for name in page if name.startswith("stationmaster_")}
    named = {family.name for family in FAMILIES}
    parts = {f"{family.name}{end}" for family in FAMILIES for end in ("", "_total", "_bucket", "_count", "_sum")}
    assert named <= shown <= parts
    assert page["process_resident_memory_bytes"][()] > 0


async def test_what_is_watched_begins_at_zero(watched: Watched) -> None:
    # A rate over a series that appears with its first event would miss that event.
    page = await watched.page()
    for name in ("deliveries_failed", "unknown_outcomes", "replies_missing", "gap_taken", "duplicate_answers"):
        assert page[f"stationmaster_{name}_total"] == {(): 0}
    assert page["stationmaster_task_moves_total"]["succeeded_with_rest_fallback",] == 0
    assert page["stationmaster_alerts_total"]["reply_unknown",] == 0


async def test_deliveries_are_counted_by_what_they_came_to(watched: Watched) -> None:
    # GW-R-069
    count = watched.figures.delivery
    count("default", 202, {"deliveryId": "d", "taskId": "t", "state": "queued"})
    count("default", 202, {"deliveryId": "d", "state": "to_be_read"})
    count("default", 200, {"status": "ignored", "reason": "no_mention"})
    count("default", 200, {"deliveryId": "d", "taskId": "t", "state": "queued", "status": "duplicate"})
    count("second", 401, {"error": "invalid_signature"})
    count("second", 401, {"error": "no word\nof ours"})
    page = await watched.page()
    found = page["stationmaster_deliveries_total"]
    # The labels stand in the order of their names: forge, reason, status.
    assert found == {
        ("default", "queued", "accepted"): 1,
        ("default", "to_be_read", "accepted"): 1,
        ("default", "no_mention", "ignored"): 1,
        ("default", "", "duplicate"): 1,
        ("second", "invalid_signature", "rejected"): 1,
        ("second", "other", "rejected"): 1,
    }


async def test_a_webhook_answered_5xx_is_counted_for_itself(watched: Watched) -> None:
    # GW-R-069
    for door, status in (("webhook", 503), ("webhook", 202), ("api", 503), ("webhook", 500)):
        watched.figures.response(door, status, 0.02)
    page = await watched.page()
    assert page["stationmaster_deliveries_failed_total"][()] == 2
    assert page["stationmaster_http_responses_total"]["503", "webhook"] == 1
    assert page["stationmaster_http_seconds_count"]["webhook",] == 3
    assert page["stationmaster_http_seconds_bucket"]["webhook", "0.01"] == 0
    assert page["stationmaster_http_seconds_bucket"]["webhook", "0.025"] == 3
    assert page["stationmaster_http_seconds_bucket"]["webhook", "+Inf"] == 3


async def test_what_the_duties_do_is_shown(watched: Watched) -> None:
    spread = Spread((0.1, 1.0))
    spread.add(0.5)
    watched.shown._working = lambda: Working(
        live_runs=2,
        max_runs=4,
        refused=True,
        loops={"recovery": LoopState(ticks=9, done=3, failures=1, age_s=2.5)},
        forges={"default": ForgeState({"2xx": 7, "forge_timeout": 1}, spread.taken())},
    )
    page = await watched.page()
    one = {name: page[f"stationmaster_{name}"][()] for name in ("live_runs", "max_runs", "runs_refused")}
    assert one == {"live_runs": 2, "max_runs": 4, "runs_refused": 1}
    of_recovery = [
        page[f"stationmaster_loop_{name}"]["recovery",] for name in ("ticks_total", "done_total", "failures_total")
    ]
    assert of_recovery == [9, 3, 1]
    assert page["stationmaster_loop_age_seconds"]["recovery",] == 2.5
    assert page["stationmaster_forge_requests_total"] == {("default", "2xx"): 7, ("default", "forge_timeout"): 1}
    assert page["stationmaster_forge_seconds_sum"]["default",] == 0.5


async def test_the_ledger_and_its_disk_are_shown(watched: Watched) -> None:
    watched.rig.ask(1)
    page = await watched.page()
    assert page["stationmaster_ledger_writable"][()] == 1
    assert page["stationmaster_commit_seconds_count"][()] > 0
    assert page["stationmaster_commit_jobs_sum"][()] >= page["stationmaster_commit_jobs_count"][()]
    # The folder is made later; its disk is there.
    assert 0 < page["stationmaster_disk_free_bytes"]["home",] <= page["stationmaster_disk_bytes"]["home",]
    assert page["stationmaster_log_bytes"][()] > 0


async def test_many_scrapes_at_once_are_one_look_at_the_ledger(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    read = watched.port.read

    async def counted(*args: object, **kwargs: object) -> object:
        nonlocal looks
        looks += 1
        return await read(*args, **kwargs)  # type: ignore[arg-type]

    await watched.follower.begin()
    monkeypatch.setattr(watched.port, "read", counted)
    pages = await asyncio.gather(*(watched.shown.page() for _ in range(20)))
    assert len(set(pages)) == 1
    assert looks == 2
    assert parsed(pages[0])


async def test_a_page_without_a_ledger_is_no_page(watched: Watched) -> None:
    await watched.page()
    watched.shown._until = 0.0
    watched.rig.ledger.close()
    with pytest.raises(Unavailable):
        await watched.shown.page()
