"""The commands that change what is worked on: each one stored request, replayed to whoever repeats its id (GW-R-224).

None of them takes a model, a tool or a git command (GW-R-225), and none does anything outside the ledger: what needs an
effect is accepted with 202 and finished by the worker that can do it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from stationmaster import faults
from stationmaster.control.commands import Answer, Request, Site, Text, command
from stationmaster.control.grants import Operate
from stationmaster.gitea import asked, operate

_API = "/api/gitea-workflow"


class Task(Request, frozen=True, kw_only=True):
    """A change of a task."""

    task_id: Annotated[Text, msgspec.Meta(description="The task's id")]


class Repository(Request, frozen=True, kw_only=True):
    """A change of a repository."""

    repo_key: Annotated[Text, msgspec.Meta(description="The repository's key, such as `default:acme/widgets`")]


class Catchup(Request, frozen=True, kw_only=True):
    """What is to be read."""

    repo: Annotated[Text | None, msgspec.Meta(description="Only this repository, such as `default:acme/widgets`")] = (
        None
    )
    forge: Annotated[Text | None, msgspec.Meta(description="The forge's id; needed when there are several")] = None


@command("control.pause", "POST", f"{_API}/control/pause", cli="pause")
async def pause(site: Site, grant: Operate, given: Request) -> Answer:
    """Takes up no new work until `resume`; what runs goes on."""
    return await _ask(site, grant, "pause", "", given)


@command("control.resume", "POST", f"{_API}/control/resume", cli="resume")
async def resume(site: Site, grant: Operate, given: Request) -> Answer:
    """Takes up work again, in the order in which it came."""
    return await _ask(site, grant, "resume", "", given)


@command("repo.disable", "POST", f"{_API}/repos/{{repoKey}}/disable", cli="repo disable")
async def disable(site: Site, grant: Operate, given: Repository) -> Answer:
    """Refuses new mentions in a repository and leaves its queue where it is; what runs goes on."""
    return await _ask(site, grant, "disable", given.repo_key, given)


@command("repo.enable", "POST", f"{_API}/repos/{{repoKey}}/enable", cli="repo enable")
async def enable(site: Site, grant: Operate, given: Repository) -> Answer:
    """Takes up a repository again, a disabled one or one that a fault had blocked."""
    return await _ask(site, grant, "enable", given.repo_key, given)


@command("control.catchup", "POST", f"{_API}/catchup", cli="catchup", later=True)
async def catchup(site: Site, grant: Operate, given: Catchup) -> Answer:
    """Reads the forge now for mentions that no webhook brought."""
    wish = asked.Wish(given.repo or "", grant.principal.actor, given.reason, given.forge or "")
    answer = await site.port.do(asked.command(wish, given.request_id), asked.body(site.gitea, *site.others), wish)
    site.wake()
    return Answer(answer, 202 if answer.get("pending") else 200)


@command("task.cancel", "POST", f"{_API}/tasks/{{taskId}}/cancel", cli="task cancel")
async def cancel(site: Site, grant: Operate, given: Task) -> Answer:
    """Ends a task that is queued, waits for its user or is blocked."""
    return await _ask(site, grant, "cancel", given.task_id, given)


@command("task.abort", "POST", f"{_API}/tasks/{{taskId}}/abort", cli="task abort", later=True)
async def abort(site: Site, grant: Operate, given: Task) -> Answer:
    """Stops a task that is running; what it left is saved."""
    return await _ask(site, grant, "abort", given.task_id, given)


@command("task.unblock", "POST", f"{_API}/tasks/{{taskId}}/unblock", cli="task unblock", later=True)
async def unblock(site: Site, grant: Operate, given: Task) -> Answer:
    """Lets a blocked task be tried once more after its workspace was looked at again."""
    return await _ask(site, grant, "unblock", given.task_id, given)


@command("task.retry", "POST", f"{_API}/tasks/{{taskId}}/retry", cli="task retry")
async def retry(site: Site, grant: Operate, given: Task) -> Answer:
    """Does the last task of a thread once more, as a new task, after it has ended."""
    return await _ask(site, grant, "retry", given.task_id, given)


@command("hold.release", "POST", f"{_API}/tasks/{{taskId}}/release", cli="hold release")
async def release(site: Site, grant: Operate, given: Task) -> Answer:
    """Lets a task that a limit keeps back begin its next run all the same."""
    return await _ask(site, grant, "release", given.task_id, given)


async def _ask(site: Site, grant: Operate, verb: operate.Verb, target: str, given: Request) -> Answer:
    wish = operate.Wish(verb, target, grant.principal.actor, given.reason)
    answer = await site.port.do(operate.command(wish, given.request_id), operate.body(site.gitea, *site.others), wish)
    faults.point("operate.accepted")
    site.wake()
    return Answer(answer, 202 if answer.get("pending") else 200)
