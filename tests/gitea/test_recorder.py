"""A disk that is full while a run's events stream in: a clear refusal, nothing lost, and on it goes afterwards."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stationmaster.agents.events import AgentMessage
from stationmaster.errors import Unavailable
from stationmaster.gitea.recorder import Recorder
from stationmaster.jobs import actions as jobs
from tests.gitea.life import mention
from tests.gitea.world import World


@contextmanager
def _no_space_beyond(size: int) -> Iterator[None]:
    """Lets no file of this process grow beyond `size`: to the database the same as a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _largest(folder: Path) -> int:
    return max(path.stat().st_size for path in folder.glob("ledger.db*"))


async def test_bug_9_a_full_disk_stops_a_stream_of_events_and_loses_none(world: World, tmp_path: Path) -> None:
    # bug 9; K13
    hold = await world.claim(await mention(world, "please fix it"))
    run_id = await world.turn(hold)
    recorder = Recorder(world.port, run_id)
    before = await world.task(hold.task.id)
    added = 0

    async def stream() -> None:
        nonlocal added
        while added < 5_000:
            added += 1
            await recorder.add(AgentMessage(seq=added, item_id="item", text=f"{added} " * 100))

    with _no_space_beyond(_largest(tmp_path) + 65_536):
        with pytest.raises(Unavailable, match="could not keep the write") as refused:
            await stream()
        assert refused.value.code == "store_unavailable"
        with pytest.raises(Unavailable):
            await world.advance(hold, "verify")
        assert await world.task(hold.task.id) == before  # looking goes on, and nothing is half done
        with pytest.raises(Unavailable):
            await recorder.close()
    await recorder.close()
    kept = [event.seq for event in await world.port.read(jobs.events, run_id, limit=5_000)]
    assert kept == list(range(1, added + 1))
    await world.end_turn(hold.task, run_id, "Fixed.")
    assert (await world.advance(hold, "verify")).state == "verifying_reply"
    assert world.ledger.verify() == []
