"""Who may ask: the forge says, or else the signed event, or else nobody knows."""

from __future__ import annotations

import pytest

from stationmaster.errors import Denied, Unavailable
from stationmaster.gitea import authors, codes
from stationmaster.gitea.model import Asker
from stationmaster.gitea.payload import Permissions
from tests.gitea.workshop import with_settings
from tests.gitea.world import ASKER, BOT, REPO, World


async def test_the_forge_says_what_the_author_may(world: World) -> None:
    world.admin.collaborator(REPO, BOT, "admin")
    task = await world.mention()
    await authors.check_author(world.gear, task)
    world.admin.collaborator(REPO, ASKER, "read")
    with pytest.raises(Denied) as refused:
        await authors.check_author(world.gear, task)
    assert refused.value.code == codes.AUTHOR_NOT_ALLOWED
    await authors.check_author(with_settings(world, allow="read"), task)
    assert not await world.history(task, "author.permission_from_payload")


@pytest.mark.parametrize(("push", "code"), [(True, None), (False, codes.AUTHOR_NOT_ALLOWED)])
async def test_where_the_forge_refuses_the_signed_event_decides(world: World, push: bool, code: str | None) -> None:
    task = await world.mention(permissions=Permissions(pull=True, push=push))
    if code is None:
        await authors.check_author(world.gear, task)
    else:
        # The webhook keeps such a mention; only the work on it is refused.
        with pytest.raises(Denied) as refused:
            await authors.check_author(world.gear, task)
        assert refused.value.code == code
    (told,) = await world.history(task, "author.permission_from_payload")
    assert told.data == {"author": ASKER, "author_id": world.asker_id, "may": "write" if push else "read"}


async def test_an_event_that_says_nothing_leaves_the_author_unverifiable(world: World) -> None:
    with pytest.raises(Denied, match="administrator rights") as refused:
        await authors.check_author(world.gear, await world.mention())
    assert refused.value.code == codes.AUTHOR_NOT_VERIFIABLE


async def test_a_list_needs_no_forge(world: World) -> None:
    task = await world.mention()
    world.fault("drop_before", count=None)
    await authors.check_author(with_settings(world, allow="list", allow_list=("ALICE",)), task)
    with pytest.raises(Denied) as refused:
        await authors.check_author(with_settings(world, allow="list", allow_list=("bob",)), task)
    assert refused.value.code == codes.AUTHOR_NOT_ALLOWED


async def test_a_forge_that_does_not_answer_is_asked_again_later(world: World) -> None:
    task = await world.mention(permissions=Permissions(push=True))
    world.fault("drop_before", match={"path": "/permission"})
    with pytest.raises(Unavailable) as away:
        await authors.check_author(world.gear, task)
    assert codes.retryable(away.value.code)


async def test_nobody_of_that_name_may_ask(world: World) -> None:
    world.admin.collaborator(REPO, BOT, "admin")
    task = await world.mention()
    world.admin.rename_user(ASKER, "alicia")
    with pytest.raises(Denied) as refused:
        await authors.check_author(world.gear, task)
    assert refused.value.code == codes.AUTHOR_NOT_ALLOWED


@pytest.mark.parametrize(
    ("forge", "event", "may"),
    [("write", None, True), ("read", "write", False), ("", "write", True), ("", "read", False), ("", None, False)],
)
async def test_who_may_write_is_certain_or_nobody(world: World, forge: str, event: str | None, may: bool) -> None:
    if forge:
        world.admin.collaborator(REPO, BOT, "admin")
        world.admin.collaborator(REPO, ASKER, forge)
    task = await world.mention()
    asker = Asker(world.asker_id, ASKER, event)
    assert await authors.may_write(world.gear, task.repository_id, asker) is may


async def test_whoever_is_not_there_may_not_write(world: World) -> None:
    world.admin.collaborator(REPO, BOT, "admin")
    task = await world.mention()
    assert not await authors.may_write(world.gear, task.repository_id, Asker(999, "nobody-of-that-name", "admin"))
