"""What is read because an event or an operator wishes it."""

from __future__ import annotations

from stationmaster.command import Cmd
from stationmaster.gitea import asked, looks, normalise, operate, watch
from stationmaster.ledger import receipts
from stationmaster.ledger.tx import Tx
from tests.gitea.test_catchup import bots_requests, events, pull, read, started, tasks
from tests.gitea.world import ASKER, BOT, REPO, World

# --- wishes -----------------------------------------------------------------------------------------------------------


async def ask_to_look(world: World, number: int, repo_id: int | None = None) -> None:
    repo = normalise.Repo(repo_id or world.repo["id"], "acme", "widgets", "", "main", private=True)

    def body(tx: Tx) -> None:
        looks.ask(tx, instance_id="default", repo=repo, kind="pull_request", number=number, reason="review")

    await world.port.do(Cmd("test", "system", "test"), body)


async def test_a_wish_to_look_at_a_pull_request_finds_its_review(world: World) -> None:
    catchup = started(world, settle_s=30.0)
    await read(world, catchup)
    number = pull(world)
    world.admin.review(REPO, number, ASKER, body=f"@{BOT} split this")
    await ask_to_look(world, number)
    await ask_to_look(world, number)
    await read(world, catchup)
    [task] = await tasks(world)
    assert (task.resource_key, task.state) == (f"default:acme/widgets:pull_request:{number}", "queued")
    assert (task.base_ref, task.head_ref) == ("main", "feature")
    assert await world.port.read(looks.waiting, "default") == 0
    assert [len(told["looks"]) for told in await events(world, "look.done")] == [2]


async def test_a_wish_outlives_a_forge_that_is_away_and_ends_with_its_repository(world: World) -> None:
    catchup = started(world)
    await read(world, catchup)
    number = pull(world)
    world.fault("answer", status=500, match={"path": "/reviews"}, count=1)
    await ask_to_look(world, number)
    await ask_to_look(world, 1, repo_id=99_999)
    await read(world, catchup)
    assert await world.port.read(looks.waiting, "default") == 1
    assert len(await events(world, "look.done")) == 1
    world.clock.advance(6)
    await read(world, catchup)
    assert await world.port.read(looks.waiting, "default") == 0


async def test_an_operator_may_ask_for_a_reading_and_is_told_how_it_ended(world: World) -> None:
    # GW-R-224
    catchup = started(world)
    await read(world, catchup)
    await read(world, catchup, after_s=2)
    world.admin.comment(REPO, world.issue, ASKER, f"@{BOT} please fix it")

    async def ask(request_id: str, repo_key: str) -> None:
        wish = asked.Wish(repo_key, "admin:test", "test")
        answer = await world.port.do(asked.command(wish, request_id), asked.body(world.gear.settings), wish)
        assert answer["pending"]

    await ask("r1", "")
    await ask("r2", "default:acme/widgets")
    await ask("r3", "default:acme/nothing")
    await read(world, catchup, after_s=3)
    world.fault("answer", status=500, match={"path": "acme/widgets/issues"}, count=1)
    await ask("r4", "acme/widgets")
    await read(world, catchup, after_s=3)
    ended = [await world.port.read(receipts.receipt, operate.REQUEST, each) for each in ("r1", "r2", "r3", "r4")]
    assert [each.status for each in ended if each] == ["done", "done", "refused", "done"]
    assert [each.result["taken"] for each in ended[:2] if each] == [0, 1]
    assert ended[3] is not None
    assert ended[3].result["failed"] == 1


async def test_a_revoked_token_and_a_forge_that_wants_rest_stop_the_reading_and_lose_nothing(world: World) -> None:
    catchup = started(world)
    world.admin.comment(REPO, world.issue, ASKER, f"@{BOT} please fix it")
    world.fault("answer", status=429, match={"path": "/issues"}, count=1)
    world.fault("answer", status=401, match={"path": "/issues"}, count=1)
    await read(world, catchup)
    listing = await world.port.read(watch.listing, "default")
    assert listing is not None
    assert listing.error_code == "forge_rate_limited"
    await read(world, catchup, after_s=1)
    assert len(bots_requests(world, "/issues")) == 1
    await read(world, catchup, after_s=3)
    listing = await world.port.read(watch.listing, "default")
    assert listing is not None
    assert listing.error_code == "forge_auth"
    await read(world, catchup, after_s=8)
    assert len(await tasks(world)) == 1
    listing = await world.port.read(watch.listing, "default")
    assert listing is not None
    assert (listing.error_code, listing.taken) == (None, 1)
