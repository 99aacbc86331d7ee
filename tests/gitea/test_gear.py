"""A hold on a repository: kept alive while it works, noticed as soon as it is lost; the gear follows a rename."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from stationmaster.clock import ManualClock, SystemClock
from stationmaster.control.dispatch import Dispatch
from stationmaster.errors import Stale
from stationmaster.gitea import actions, codes, store
from stationmaster.gitea.client import RepoRef
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import Task
from stationmaster.ledger import history
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from tests.gitea.rig import HOME, Rig
from tests.gitea.world import REPO, World, gear_for
from tests.support import eventually_async


@dataclass
class Bench:
    """A claimed task on the real clock, under leases of fractions of a second."""

    rig: Rig
    port: Dispatch
    gear: Gear
    task: Task
    lease: Lease

    async def now_held(self) -> Lease | None:
        return await self.port.read(leases.current, self.lease.kind, self.lease.key)


@pytest.fixture
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    ttl_s, heartbeat_s = getattr(request, "param", (0.6, 0.15))
    clock = SystemClock()
    rig = Rig.on(tmp_path / "ledger.db", ManualClock(), with_clock=clock)
    rig.settings = replace(rig.settings, ttl_s=ttl_s, heartbeat_s=heartbeat_s)
    rig.ledger.hot(leases.register_worker, HOME.worker_id, HOME.incarnation)
    port = Dispatch(rig.ledger, threads=1)
    gear = gear_for(port, rig.settings, tmp_path / "home", HOME.worker_id)
    task_id = rig.ask()
    got = rig.claim(task_id)
    assert got is not None
    yield Bench(rig, port, gear, *got)
    await gear.forge.close()
    port.close()
    rig.close()


async def test_heartbeats_keep_a_short_lease_alive(bench: Bench) -> None:  # GW-R-118, GW-R-119
    async with Hold(bench.gear, bench.task, bench.lease) as hold:

        async def outlived() -> bool:
            await hold.check()
            return bench.rig.ledger.clock.now() > bench.lease.expires_at + 400_000

        assert await eventually_async(outlived)
        held = await bench.now_held()
        assert held is not None
        assert (held.lease_id, held.term) == (bench.lease.lease_id, bench.lease.term)
        assert not hold.lost.is_set()
    assert bench.rig.events("lease.renew_lost") == []


async def test_without_heartbeats_it_ends(bench: Bench) -> None:  # GW-R-118
    hold = Hold(bench.gear, bench.task, bench.lease)

    async def gone() -> bool:
        return await bench.now_held() is None

    assert await eventually_async(gone)
    with pytest.raises(Stale) as lost:
        await hold.check()
    assert lost.value.code == codes.LEASE_LOST
    assert hold.lost.is_set()


async def test_a_newer_start_of_the_worker_takes_the_hold_away(bench: Bench) -> None:  # GW-R-121, GW-R-183
    async with Hold(bench.gear, bench.task, bench.lease) as hold:
        await hold.check()
        await bench.port.hot(leases.register_worker, HOME.worker_id, "second")

        async def lost() -> bool:
            return hold.lost.is_set()

        assert await eventually_async(lost)
        with pytest.raises(Stale):
            await hold.check()

        async def told() -> bool:
            return [entry.data for entry in bench.rig.events("lease.renew_lost")] == [{"term": bench.lease.term}]

        assert await eventually_async(told)  # GW-R-230
    newer = replace(HOME, incarnation="second")
    taken = bench.rig.do(actions.take_lease, bench.task, newer, bench.rig.settings)
    assert taken is not None
    # The next holder's heartbeats are not ours.
    with pytest.raises(Stale):
        await hold.check()
    assert await bench.now_held() == taken


async def test_a_check_notices_at_once_what_the_next_heartbeat_would(bench: Bench) -> None:  # GW-R-121
    gear = replace(bench.gear, settings=replace(bench.gear.settings, ttl_s=60, heartbeat_s=20))
    async with Hold(gear, bench.task, bench.lease) as hold:
        bench.rig.do(leases.release, bench.lease)
        with pytest.raises(Stale):
            await hold.check()
        assert hold.lost.is_set()


@pytest.mark.parametrize("bench", [(2.4, 0.9)], indirect=True)
async def test_a_hold_that_cannot_be_renewed_is_lost_before_the_lease_ends(bench: Bench) -> None:
    # GW-R-121: whoever is next may begin when the lease ends, so what runs under it must stop earlier.
    async with Hold(bench.gear, bench.task, bench.lease) as hold:
        bench.rig.ledger.close()

        async def lost() -> bool:
            return hold.lost.is_set()

        assert await eventually_async(lost)
        assert bench.rig.ledger.clock.now() < bench.lease.expires_at


async def test_the_gear_follows_a_rename_once(world: World) -> None:
    task = await world.mention()
    asked: list[str] = []

    async def read(ref: RepoRef) -> str:
        asked.append(ref.path)
        return (await world.gear.forge.get_repository(ref)).name

    assert await world.gear.at(task.repository_id, read) == "widgets"
    world.admin.rename(REPO, name="gadgets")
    assert await world.gear.at(task.repository_id, read) == "gadgets"
    repository = await world.port.read(store.repository, task.repository_id)
    assert (repository.repo_key, repository.native_id) == ("default:acme/gadgets", world.repo["id"])
    assert repository.clone_url == f"{world.standin.url}/acme/gadgets.git"
    before = len(asked)
    assert await world.gear.at(task.repository_id, read) == "gadgets"
    assert len(asked) == before + 1
    (entry,) = await world.port.read(history.by_action, "repo.rename")
    assert entry.data == {"old": "default:acme/widgets", "new": "default:acme/gadgets"}


async def test_the_bot_is_asked_for_once(world: World) -> None:
    assert [await world.gear.bot_id() for _ in range(3)] == [world.bot_id] * 3
    assert len(world.admin.requests(path="/api/v1/user")) == 1


async def test_git_may_offer_the_token_to_this_forge_only(world: World) -> None:  # GW-R-127, GW-R-235
    credential = world.gear.credential
    assert (credential.url_prefix, credential.username) == (world.standin.url, "codebot")
    assert "Secret(" in repr(credential)
    assert credential.secret.reveal() not in repr(credential)
    assert world.gear.author.name == "codebot"
