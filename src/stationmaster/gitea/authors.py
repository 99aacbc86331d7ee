"""Who may ask, and who may write: the forge is asked, and the signed event only where it does not tell the bot."""

from __future__ import annotations

from stationmaster.command import Cmd
from stationmaster.errors import Denied, NotFound
from stationmaster.gitea import actions, codes
from stationmaster.gitea.gear import Gear
from stationmaster.gitea.model import Asker, Task
from stationmaster.gitea.settings import allows
from stationmaster.ledger.tx import Tx


async def check_author(gear: Gear, task: Task) -> None:
    """Returns when the author of the newest instruction may give it; else raises Denied with the reason's code.

    The forge is asked; only where it refuses the bot that answer does the signed event decide, which is audited.
    """
    asker = await gear.port.read(actions.asked_by, task)
    await check_asker(gear, task.repository_id, asker, actions.command("author.check", task, f"task:{task.id}"))


async def check_asker(gear: Gear, repository_id: str, asker: Asker, checked: Cmd) -> None:
    """Returns when somebody may ask in a repository; `checked` is the command that stores what decided instead."""
    settings = gear.settings
    if settings.allow == "list":
        if asker.login.lower() not in {login.lower() for login in settings.allow_list}:
            raise _not_allowed(asker)
        return
    try:
        may = await gear.at(repository_id, lambda repo: gear.forge.permission(repo, asker.login))
    except NotFound:
        # Nobody of that name, unless it is the repository that is gone.
        await gear.at(repository_id, gear.forge.get_repository)
        raise _not_allowed(asker) from None
    except Denied as error:
        if error.code != codes.FORGE_DENIED:
            raise
        await gear.port.do(checked, _from_payload, asker)
        if asker.may is None:
            raise Denied(
                f"The forge does not tell the bot what {asker.login} may do.",
                code=codes.AUTHOR_NOT_VERIFIABLE,
                hint="Give the bot administrator rights on the repository.",
            ) from error
        may = asker.may
    if not allows(settings.allow, may):
        raise _not_allowed(asker)


def _from_payload(tx: Tx, asker: Asker) -> None:
    tx.event("author.permission_from_payload", author=asker.login, author_id=asker.id, may=asker.may)


def _not_allowed(asker: Asker) -> Denied:
    return Denied(
        f"{asker.login} may not give tasks in this repository.",
        code=codes.AUTHOR_NOT_ALLOWED,
        hint="Change gitea.allow or the person's rights at the forge.",
    )


async def may_write(gear: Gear, repository_id: str, asker: Asker) -> bool:
    """Tells whether somebody may write in a repository; what nobody can tell counts as no."""
    try:
        may = await gear.at(repository_id, lambda repo: gear.forge.permission(repo, asker.login))
    except NotFound:
        return False
    except Denied as error:
        if error.code != codes.FORGE_DENIED:
            raise
        return asker.may is not None and allows("write", asker.may)
    return allows("write", may)
