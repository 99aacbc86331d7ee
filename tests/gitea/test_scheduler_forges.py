"""Two forges in one ledger: nobody handles what belongs to the other's, and nobody takes all places."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import pytest

from stationmaster.command import Cmd
from stationmaster.errors import Invalid, Unavailable
from stationmaster.gitea import actions, asked, claiming, codes, normalise, operate, store, texts, webhook
from stationmaster.gitea.client import Forge
from stationmaster.gitea.gear import Gear
from stationmaster.gitea.model import Task
from stationmaster.gitea.payload import Permissions
from stationmaster.gitea.receipts import Relay
from stationmaster.gitea.recovery import Recovery
from stationmaster.gitea.scheduler import Scheduler
from stationmaster.gitea.unblock import Unblocker
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from tests.gitea.world import WORKER, World

LINK = "link"
_MAY = Permissions(admin=False, push=True, pull=True)
_numbers = itertools.count(500)


@pytest.fixture
async def other(world: World) -> AsyncIterator[Gear]:
    """The same worker's gear for another forge, which nobody can reach."""
    settings = replace(world.gear.settings, instance_id=LINK, base_url="http://127.0.0.1:9")
    forge = Forge(settings.base_url, settings.token, timeout_s=0.5)
    yield replace(world.gear, settings=settings, forge=forge)
    await forge.close()


async def asked_in(world: World, gear: Gear, name: str, native_id: int) -> Task:
    """Lets somebody ask in some repository of a forge."""
    said = world.normalised(next(_numbers), 1, "issue", "please fix it", _MAY, "alice")
    url = f"{gear.settings.base_url}/acme/{name}.git"
    repo = normalise.Repo(native_id, "acme", name, url, "main", private=False)
    said = msgspec.structs.replace(said, instance_id=gear.settings.instance_id, repo=repo)
    cmd = Cmd("webhook.take", "gitea:user:alice", f"delivery:{said.delivery_id}")
    answer = await world.port.do(cmd, webhook.take, said, "hash", gear.settings)
    assert answer.status == 202, answer
    return await world.task(answer.body["taskId"])


async def claimed(world: World, gear: Gear, task: Task) -> Lease:
    """Claims a task as the worker of its forge does, and returns its lease."""
    cmd = actions.command("task.claim", task, f"worker:{WORKER}")
    got = await world.port.do(cmd, claiming.claim, task.repository_id, gear.station, gear.settings)
    assert got is not None
    return got[1]


async def test_the_same_names_and_numbers_at_two_forges_are_two_things(world: World, other: Gear) -> None:
    # GW-R-011, GW-R-012, GW-R-013
    here = await asked_in(world, world.gear, "widgets", 7)
    there = await asked_in(world, other, "widgets", 7)
    assert (here.resource_key, there.resource_key) == ("default:acme/widgets:issue:1", "link:acme/widgets:issue:1")
    assert here.repository_id != there.repository_id
    found = await world.port.read(store.repository_by_key, "link:acme/widgets")
    assert found is not None
    assert found.id == there.repository_id
    assert await world.port.read(store.open_by_forge) == {"default": 1, LINK: 1}


async def test_the_loops_of_one_forge_never_touch_what_is_the_others(world: World, other: Gear) -> None:
    # GW-R-183, GW-R-138: a run that died and a receipt that nobody posted, both at a forge that only `other` knows.
    task = await asked_in(world, other, "gadgets", 8)
    await claimed(world, other, task)
    await world.port.hot(leases.register_worker, WORKER, "second")
    born_again = replace(world.gear, station=replace(world.gear.station, incarnation="second"))
    assert await Recovery(born_again).tick(0) == 0
    assert (await world.task(task.id)).state == "preparing"
    elsewhere = replace(other, station=born_again.station)
    assert await Recovery(elsewhere).tick(0) == 1
    moved = await world.task(task.id)
    assert moved.state in {"retry_wait", "failed"}


async def test_comments_are_relayed_to_their_own_forge(world: World, other: Gear) -> None:
    task = await asked_in(world, other, "gadgets", 8)
    key = actions.status_key(task.id, "running")
    await world.do("receipt.intend", task, actions.intend_comment, task, key, "status", texts.start_receipt(key))
    world.clock.advance(60)
    ours, theirs = Relay(world.gear), Relay(other)
    assert await ours.tick(0) == 0
    assert world.said() == []
    assert (await world.comment(key)).state == "pending"
    # Its own relay holds a duty of its own and tries; the forge is away, so it stays to be posted.
    await theirs.tick(0)
    assert (await world.comment(key)).state == "pending"
    assert await world.port.read(leases.current, "duty", "relay:default") is not None
    assert await world.port.read(leases.current, "duty", f"relay:{LINK}") is not None


async def test_a_worktree_is_looked_at_by_its_own_forges_desk(world: World, other: Gear) -> None:
    task = await asked_in(world, other, "gadgets", 8)
    lease = await claimed(world, other, task)
    await world.do("task.block", task, actions.leave, task.id, "block", lease, other.settings,
                   error_code=codes.WORKSPACE_DIRTY)  # fmt: skip
    wish = operate.Wish("unblock", task.id, "admin:op", "mended")
    forges = (world.gear.settings, other.settings)
    await world.port.do(operate.command(wish, "r1"), operate.body(*forges), wish)
    assert await Unblocker(world.gear).tick(0) == 0
    assert await Unblocker(other).tick(0) == 1


async def test_a_task_whose_forge_is_not_configured_can_only_be_ended(world: World, other: Gear) -> None:
    task = await asked_in(world, other, "gadgets", 8)
    retry = operate.Wish("retry", task.id, "admin:op", "again")
    with pytest.raises(Unavailable, match="The forge link of this task is not configured"):
        await world.port.do(operate.command(retry, "r1"), operate.body(world.gear.settings), retry)
    cancel = operate.Wish("cancel", task.id, "admin:op", "it is gone")
    await world.port.do(operate.command(cancel, "r2"), operate.body(world.gear.settings), cancel)
    assert (await world.task(task.id)).state == "cancelled"


@pytest.mark.parametrize(
    ("repo", "forge", "subject"),
    [
        ("link:acme/widgets", "", LINK),
        ("default:acme/widgets", "", "default"),
        ("acme/widgets", "", "default"),
        ("acme/widgets", LINK, LINK),
        ("", LINK, LINK),
    ],
)
async def test_a_wish_to_read_goes_to_the_forge_it_names(
    world: World, other: Gear, repo: str, forge: str, subject: str
) -> None:
    wish = asked.Wish(repo, "admin:op", "why", forge)
    forges = (world.gear.settings, other.settings)
    await world.port.do(asked.command(wish, "r1"), asked.body(*forges), wish)
    assert len(await world.port.read(asked.waiting, subject)) == 1
    assert await world.port.read(asked.waiting, LINK if subject == "default" else "default") == []


@pytest.mark.parametrize(
    ("repo", "forge", "words"),
    [("", "", "There are several forges"), ("", "odd", "no forge odd"), ("link:a/b", "default", "not the key")],
)
async def test_a_wish_that_names_no_forge_or_a_wrong_one_is_refused(
    world: World, other: Gear, repo: str, forge: str, words: str
) -> None:
    wish = asked.Wish(repo, "admin:op", "why", forge)
    with pytest.raises(Invalid, match=words):
        await world.port.do(asked.command(wish, "r1"), asked.body(world.gear.settings, other.settings), wish)


async def test_a_forge_whose_runs_hang_leaves_a_place_for_each_other_forge(world: World, other: Gear) -> None:
    # Every request to the first forge waits; it has more to do than there are places.
    world.fault("delay", count=None, match={"path": "."}, seconds=2.0, when="before")
    for at in range(6):
        await asked_in(world, world.gear, f"many{at}", 100 + at)
    scheduler = Scheduler(world.gear, other)
    try:
        assert world.gear.station.max_runs == 4
        assert await scheduler.tick(0) == 3
        await asked_in(world, other, "gadgets", 8)
        await asked_in(world, other, "gizmos", 9)
        assert await scheduler.tick(0) == 1
        assert await scheduler.tick(0) == 0
        working = [await world.task(task_id) for task_id in scheduler.task_ids]
        assert sorted(task.resource_key.partition(":")[0] for task in working) == ["default"] * 3 + [LINK]
    finally:
        await scheduler.close()


async def test_alone_a_forge_has_every_place_and_with_one_place_they_take_turns(world: World, other: Gear) -> None:
    for at in range(3):
        await asked_in(world, world.gear, f"many{at}", 100 + at)
    await asked_in(world, other, "gadgets", 8)
    station = replace(world.gear.station, max_runs=1)
    world.fault("delay", count=None, match={"path": "."}, seconds=0.2, when="before")
    first, second = replace(world.gear, station=station), replace(other, station=station)
    alone = Scheduler(replace(world.gear, station=replace(station, max_runs=2)))
    assert await alone.tick(0) == 2
    await alone.close()
    both = Scheduler(first, second)
    served = []
    for _ in range(2):
        assert await both.tick(0) == 1
        [task_id] = both.task_ids
        served.append((await world.task(task_id)).resource_key.partition(":")[0])
        for work, signals in list(both._runs.values()):
            signals.stop.set()
            await work
    await both.close()
    assert served == ["default", LINK]


async def test_nothing_is_claimed_for_a_forge_before_its_first_look(world: World, other: Gear) -> None:
    # GW-R-113
    await asked_in(world, world.gear, "many", 100)
    await asked_in(world, other, "gadgets", 8)
    scheduler = Scheduler(world.gear, other, unfit=lambda forge: forge == "default")
    try:
        assert await scheduler.tick(0) == 1
        [task_id] = scheduler.task_ids
        assert (await world.task(task_id)).resource_key.startswith(LINK)
    finally:
        await scheduler.close()
