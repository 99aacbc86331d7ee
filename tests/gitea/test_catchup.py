"""What no delivery brought is found by reading the forge: once, whoever else knows of it, from where it was left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from stationmaster.clock import MICROS
from stationmaster.command import Cmd
from stationmaster.gitea import normalise, operate, registry, store, watch, webhook
from stationmaster.gitea.catchup import Catchup
from stationmaster.gitea.gear import Gear
from stationmaster.gitea.machine import REPOSITORY
from stationmaster.gitea.model import Task
from stationmaster.gitea.settings import CatchupSettings
from stationmaster.ledger import history
from stationmaster.ledger import lease as leases
from stationmaster.ledger.tx import Reader, Tx
from tests.gitea.world import ASKER, BOT, REPO, World
from tests.support import eventually_async

AT_ONCE = CatchupSettings(every_s=600, overlap_s=60, first_look_back_s=3600, settle_s=0)
HOUR = 3600


def gear_of(world: World, **given: Any) -> Gear:
    settings = replace(world.gear.settings, catchup=replace(AT_ONCE, **given))
    return replace(world.gear, settings=settings)


def started(world: World, **given: Any) -> Catchup:
    """A process of the product that has just started, as far as it reads the forge."""
    return Catchup(gear_of(world, **given))


async def read(world: World, catchup: Catchup, *, after_s: float = 0) -> None:
    """Lets everything be read that is due `after_s` from now; a pause after a failure is waited for."""
    now = world.clock.now() + int(after_s * MICROS)
    while await catchup.tick(now):
        pass


async def tasks(world: World) -> list[Task]:
    def every(reader: Reader) -> list[Task]:
        found = [
            store.latest_task(reader, session.id)
            for repository in store.repositories(reader)
            for kind in ("issue", "pull_request")
            for number in range(1, 9)
            if (session := store.session_of(reader, repository.id, kind, number)) is not None
        ]
        return [task for task in found if task is not None]

    return sorted(await world.port.read(every), key=lambda task: task.created_at)


async def events(world: World, name: str) -> list[dict[str, Any]]:
    return [entry.data or {} for entry in await world.port.read(history.by_action, name)]


def aged(world: World, table: str, row_id: int, seconds: float) -> None:
    """Lets something have been written that long ago."""
    row = world.standin.store.get(table, row_id)
    at = int(row["created"] - seconds)
    world.standin.store.update(table, row_id, created=at, **({"updated": at} if "updated" in row else {}))


def pull(world: World, body: str = "") -> int:
    world.admin.commit(REPO, ASKER, {"new.txt": "new\n"}, branch="feature")
    return world.admin.pull(REPO, ASKER, head="feature", title="A feature", body=body)


def bots_requests(world: World, part: str) -> list[str]:
    return [row["path"] for row in world.admin.requests() if row["login"] == BOT and part in row["path"]]


# --- what is found ----------------------------------------------------------------------------------------------------


async def test_what_was_said_while_it_was_down_becomes_tasks_once(world: World) -> None:
    # GW-R-022, GW-R-054: a comment, a new issue's text, a review, one of them in a repository never seen before
    await read(world, started(world))
    number = pull(world)
    comment = world.admin.comment(REPO, world.issue, ASKER, f"@{BOT} please fix it")
    world.admin.repo("acme", "gadgets", {"README.md": "x"}, private=True, collaborators={ASKER: "admin", BOT: "write"})
    world.admin.issue("acme/gadgets", ASKER, "It is slow", f"@{BOT} make it fast")
    world.admin.review(REPO, number, ASKER, body=f"@{BOT} split this")

    again = started(world)
    await read(world, again)

    found = await tasks(world)
    assert {task.resource_key for task in found} == {
        "default:acme/widgets:issue:1",
        f"default:acme/widgets:pull_request:{number}",
        "default:acme/gadgets:issue:1",
    }
    assert [task.state for task in found] == ["queued"] * 3
    assert {task.delivery_id.rpartition(":")[0] for task in found} >= {f"read:comment:{comment}"}
    assert all(task.sender_may is None for task in found)
    gaps = await events(world, "catchup.gap")
    assert sum(gap["taken"] for gap in gaps) == 3
    assert all(gap["since"] <= gap["until"] and gap["reason"] == "start" for gap in gaps)
    assert [told["taken"] for told in await events(world, "catchup.done")] == [0, 3]

    await read(world, again, after_s=700)
    await read(world, started(world))
    assert len(await tasks(world)) == 3
    assert len(await events(world, "reading.accept")) == 3


async def test_a_remark_on_code_and_an_answer_to_one_are_found(world: World) -> None:
    await read(world, started(world))
    number = pull(world)
    line = {"path": "new.txt", "line": 1, "body": f"@{BOT} rename this"}
    world.admin.review(REPO, number, ASKER, lines=[line])
    first = next(row["id"] for row in world.admin.comments(REPO, number) if row["kind"] == "code")
    reply = world.admin.answer_line(first, ASKER, f"@{BOT} and this")
    await read(world, started(world))
    assert {entry["origin"] for entry in await events(world, "reading.accept")} == {"code_comment"}
    assert {task.comment_id for task in await tasks(world)} <= {first, reply}


async def test_what_would_start_nothing_as_a_delivery_starts_nothing(world: World) -> None:
    # GW-R-054, GW-R-055, GW-R-056, GW-R-057, GW-R-058
    await read(world, started(world))
    world.admin.comment(REPO, world.issue, BOT, f"@{BOT} I talk to myself")
    for body in ("> @codebot quoted\n\nI agree.", "```\n@codebot code\n```", "@codebot", "@codebot-x something else"):
        world.admin.comment(REPO, world.issue, ASKER, body)
    await read(world, started(world))
    assert await tasks(world) == []
    assert [gap["found"] for gap in await events(world, "catchup.gap")][-1] == 5


async def test_what_a_delivery_brought_is_known_and_the_other_way_round(world: World) -> None:
    # GW-R-022
    await read(world, started(world))
    task = await world.mention("please fix it")
    await read(world, started(world))
    assert [each.id for each in await tasks(world)] == [task.id]

    other = world.admin.issue(REPO, ASKER, "Another")
    comment = world.admin.comment(REPO, other, ASKER, f"@{BOT} please fix it too")
    await read(world, started(world))
    assert len(await tasks(world)) == 2
    said = world.normalised(comment, other, "issue", "please fix it too", None, ASKER)
    late = await world.port.do(Cmd("webhook.take", "system", "test"), webhook.take, said, "hash", world.gear.settings)
    assert (late.status, late.body["status"]) == (200, "duplicate")


async def test_a_mention_that_an_edit_brought_is_found_and_its_first_wording_comes_too_late(world: World) -> None:
    await read(world, started(world))
    comment = world.admin.comment(REPO, world.issue, ASKER, "nothing yet")
    aged(world, "comment", comment, 600)
    await read(world, started(world))
    world.admin.edit_comment(comment, ASKER, f"@{BOT} now I ask")
    await read(world, started(world))
    [task] = await tasks(world)
    version = int(task.delivery_id.rpartition(":")[2])
    assert version > 0
    said = world.normalised(comment, world.issue, "issue", "now I ask", None, ASKER)
    late = await world.port.do(Cmd("webhook.take", "system", "test"), webhook.take, said, "hash", world.gear.settings)
    assert late.body["status"] == "duplicate"
    world.admin.edit_comment(comment, ASKER, f"@{BOT} now I ask more")
    await read(world, started(world))
    assert len(await tasks(world)) == 1


async def test_what_is_older_than_the_watch_starts_nothing_whoever_touches_it(world: World) -> None:
    old = world.admin.comment(REPO, world.issue, ASKER, f"@{BOT} long ago")
    aged(world, "comment", old, 2 * HOUR)
    young = world.admin.comment(REPO, world.issue, ASKER, f"@{BOT} just before")
    aged(world, "comment", young, HOUR / 2)
    await read(world, started(world))
    assert [task.comment_id for task in await tasks(world)] == [young]
    world.admin.edit_comment(old, ASKER, f"@{BOT} long ago, reworded")
    await read(world, started(world))
    assert len(await events(world, "reading.accept")) == 1


async def test_what_is_very_young_is_left_to_its_delivery_and_read_soon_after(world: World) -> None:
    catchup = started(world, settle_s=30.0)
    comment = world.admin.comment(REPO, world.issue, ASKER, f"@{BOT} please fix it")
    await read(world, catchup)
    assert await tasks(world) == []
    aged(world, "comment", comment, 31)
    await read(world, catchup, after_s=20)
    assert await tasks(world) == []
    await read(world, catchup, after_s=32)
    assert len(await tasks(world)) == 1


async def test_what_was_written_early_and_touched_late_is_met(world: World) -> None:
    store_of = world.standin.store
    aged(world, "issue", store_of.many("SELECT id FROM issue")[0]["id"], 500)
    await read(world, started(world))
    early = world.admin.issue(REPO, ASKER, "Early", f"@{BOT} please fix it")
    number = pull(world)
    world.admin.review(REPO, number, ASKER, body=f"@{BOT} split this")
    for table in ("issue", "review"):
        for row in store_of.many(f"SELECT * FROM {table} ORDER BY id DESC LIMIT 2"):
            store_of.update(table, row["id"], created=int(row["created"]) - 300)
    first = store_of.many("SELECT * FROM issue")[0]
    store_of.update("issue", first["id"], updated=first["created"] + 400)
    await read(world, started(world, settle_s=30.0))
    assert {task.resource_key.rpartition(":")[2] for task in await tasks(world)} == {str(early), str(number)}


async def test_a_paused_product_takes_and_a_disabled_repository_never_does(world: World) -> None:
    # GW-R-125
    await read(world, started(world))
    task = await world.mention("the first")
    wish = operate.Wish("pause", "", "admin:test", "test")
    await world.port.do(operate.command(wish, "r1"), operate.body(world.gear.settings), wish)
    other = world.admin.issue(REPO, ASKER, "Another", f"@{BOT} while paused")
    await read(world, started(world))
    assert len(await tasks(world)) == 2

    await switch(world, task.repository_id, "disable")
    comment = world.admin.comment(REPO, other, ASKER, f"@{BOT} while disabled")
    await read(world, started(world))
    aged(world, "comment", comment, 120)
    later = world.admin.comment(REPO, other, ASKER, "nothing")
    await read(world, started(world))
    await switch(world, task.repository_id, "enable")
    assert later
    await read(world, started(world))
    assert len(await events(world, "reading.accept")) == 1


async def switch(world: World, repository_id: str, verb: str) -> None:
    def body(tx: Tx) -> None:
        found = store.repository(tx, repository_id)
        tx.move(REPOSITORY, found.id, verb, rev=found.rev, updated_at=tx.now)

    await world.port.do(Cmd("test", "system", "test"), body)


async def test_what_was_closed_while_it_was_down_stops_what_was_asked_before(world: World) -> None:
    await read(world, started(world))
    task = await world.mention("please fix it")
    other = world.admin.issue(REPO, ASKER, "Another")
    comment = world.admin.comment(REPO, other, ASKER, f"@{BOT} please fix it")
    aged(world, "comment", comment, 5)
    for number in (world.issue, other):
        world.admin.edit_issue(REPO, number, ASKER, state="closed")
    closed_at = int(world.clock.now() // MICROS) + 5
    world.standin.store.run("UPDATE issue SET closed=?, updated=?", closed_at, closed_at)
    await read(world, started(world))
    assert [each.state for each in await tasks(world)] == ["cancelled", "cancelled"]
    assert (await world.task(task.id)).error_code == "resource_closed"


async def test_our_clock_may_be_days_off(world: World) -> None:
    world.clock.advance(3 * 24 * HOUR)
    await read(world, started(world))
    world.admin.comment(REPO, world.issue, ASKER, f"@{BOT} please fix it")
    await read(world, started(world))
    assert len(await tasks(world)) == 1


# --- what goes wrong --------------------------------------------------------------------------------------------------


def many_comments(world: World, count: int, *, every_s: int) -> None:
    """Lets people have talked for a while; the first and the last words are to the bot."""
    db, at = world.standin.store, int(world.clock.now() // MICROS) - count * every_s - 5
    issue = db.one("SELECT * FROM issue WHERE number=? AND repo_id=?", world.issue, world.repo["id"])
    other = world.admin.issue(REPO, ASKER, "Another")
    last = db.one("SELECT * FROM issue WHERE number=? AND repo_id=?", other, world.repo["id"])
    assert issue is not None
    assert last is not None
    with db.tx():
        for each in range(count):
            body, place = "talk", issue
            if each in {0, count - 1}:
                body, place = f"@{BOT} number {each}", issue if each == 0 else last
            when = at + each * every_s
            db.insert(
                "comment", issue_id=place["id"], kind="comment", poster_id=world.asker_id, body=body, created=when,
                updated=when,
            )  # fmt: skip


async def test_a_long_absence_is_read_in_pieces(world: World) -> None:
    many_comments(world, 1_300, every_s=2)
    await read(world, started(world))
    assert len(await tasks(world)) == 2
    pages = bots_requests(world, "/issues/comments?")
    assert 26 <= len(pages) <= 50
    assert len([gap for gap in await events(world, "catchup.gap") if gap["part"] == "comments"]) >= 3


async def test_an_error_on_a_later_page_loses_nothing(world: World) -> None:
    many_comments(world, 130, every_s=1)
    world.fault("answer", status=500, match={"path": r"/issues/comments\?.*page=3"}, count=1)
    catchup = started(world)
    await read(world, catchup)
    assert len(await tasks(world)) == 1
    await read(world, catchup, after_s=3)
    assert len(await tasks(world)) == 2


async def test_a_comment_removed_between_two_pages_hides_none(world: World) -> None:
    many_comments(world, 130, every_s=1)
    first = world.admin.comments(REPO, world.issue)[1]["id"]

    def meddle() -> None:
        world.standin.store.run("DELETE FROM comment WHERE id=?", first)

    catchup = started(world)
    await meddled(world, catchup, "page=2", meddle)
    assert len(await tasks(world)) == 2


async def asked_for(world: World, part: str) -> bool:
    return bool(bots_requests(world, part))


async def meddled(world: World, catchup: Catchup, part: str, meddle: Callable[[], None]) -> None:
    """Lets something happen at the forge just before the bot asks for a page that it has not seen yet."""
    world.fault("delay", seconds=0.3, match={"path": f"/issues/comments.*{part}"}, count=1, when="before")
    going = asyncio.create_task(read(world, catchup))
    await eventually_async(partial(asked_for, world, part))
    meddle()
    await going


async def test_one_repository_that_fails_keeps_no_other_from_being_read(world: World) -> None:
    world.admin.repo("acme", "gadgets", {"README.md": "x"}, collaborators={ASKER: "admin", BOT: "write"})
    world.admin.issue("acme/gadgets", ASKER, "It is slow", f"@{BOT} make it fast")
    world.admin.comment(REPO, world.issue, ASKER, f"@{BOT} please fix it")
    world.fault("answer", status=500, match={"path": "acme/widgets/issues"}, count=None)
    catchup = started(world)
    for after_s in (0, 3, 8, 20):
        await read(world, catchup, after_s=after_s)
    assert [task.resource_key for task in await tasks(world)] == ["default:acme/gadgets:issue:1"]
    watched = await world.port.read(watch.of, "default", world.repo["id"])
    assert watched is not None
    assert watched.error_code == "forge_error"
    world.admin.clear_faults()
    await read(world, catchup, after_s=120)
    assert len(await tasks(world)) == 2


async def test_a_forge_that_is_away_is_asked_rarely_and_read_when_it_is_back(world: World) -> None:
    await read(world, started(world))
    catchup = started(world)
    world.fault("drop_before", match={"path": "/api/v1/"}, count=None)
    world.admin.comment(REPO, world.issue, ASKER, f"@{BOT} please fix it")
    before = len(bots_requests(world, "/api/"))
    for after_s in range(60):
        await read(world, catchup, after_s=after_s)
    assert len(bots_requests(world, "/api/")) - before <= 6
    world.admin.clear_faults()
    await read(world, catchup, after_s=400)
    assert len(await tasks(world)) == 1


async def test_an_outage_that_others_met_is_read_after_it(world: World) -> None:
    catchup = started(world)
    await read(world, catchup)
    await read(world, catchup, after_s=2)
    world.admin.comment(REPO, world.issue, ASKER, f"@{BOT} please fix it")
    world.fault("answer", status=503, match={"path": "/api/v1/version"}, count=1)
    with pytest.raises(Exception, match="503"):
        await world.gear.forge.get_version()
    await read(world, catchup, after_s=3)
    assert await tasks(world) == []
    await world.gear.forge.get_version()
    await read(world, catchup, after_s=4)
    assert len(await tasks(world)) == 1
    assert [gap["reason"] for gap in await events(world, "catchup.gap") if gap["taken"]] == ["outage"]


async def test_repositories_come_go_and_change_their_names(world: World) -> None:
    other = world.admin.repo("acme", "gadgets", {"README.md": "x"}, private=True, collaborators={BOT: "write"})
    await read(world, started(world))
    world.admin.rename(REPO, name="things")
    world.admin.collaborator("acme/gadgets", BOT, "none")
    world.admin.comment("acme/things", world.issue, ASKER, f"@{BOT} please fix it")
    catchup = started(world)
    await read(world, catchup)
    [task] = await tasks(world)
    assert task.resource_key == "default:acme/things:issue:1"

    def register(tx: Tx) -> None:
        # Known from a delivery, and hidden from the bot since.
        said = world.normalised(1, 1, "issue", "x", None, ASKER)
        hidden = normalise.Repo(other["id"], "acme", "gadgets", other["clone_url"], "main", private=True)
        registry.registered(tx, msgspec.structs.replace(said, repo=hidden))

    await world.port.do(Cmd("test", "system", "test"), register)
    await read(world, catchup, after_s=700)
    watched = await world.port.read(watch.of, "default", other["id"])
    assert watched is not None
    assert watched.error_code == "forge_not_found"


async def test_only_one_process_reads_at_a_time(world: World) -> None:
    def taken(tx: Tx) -> leases.Lease | None:
        return leases.acquire(
            tx, kind="duty", key="gitea.catchup:default", owner="other", incarnation="i", subject="s", ttl_s=60
        )

    lease = await world.port.do(Cmd("test", "system", "test"), taken)
    assert lease is not None
    catchup = started(world)
    await read(world, catchup)
    assert bots_requests(world, "/user/repos") == []
    await world.port.do(Cmd("test", "system", "test"), leases.release, lease)
    await read(world, catchup)
    assert len(bots_requests(world, "/user/repos")) == 1
    assert await world.port.read(leases.current, "duty", "gitea.catchup:default") is None
