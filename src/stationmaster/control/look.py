"""The commands that only look: overview, tasks, repositories."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stationmaster.control import views
from stationmaster.control.commands import Answer, Input, Nothing, Site, Text, command
from stationmaster.control.grants import Read

_API = "/api/gitea-workflow"

Filter = Text | None
Cursor = Annotated[Filter, msgspec.Meta(description="`nextCursor` of the page before")]
Limit = Annotated[int, msgspec.Meta(ge=1, le=200, description="Rows a page")]


class Tasks(Input, frozen=True, kw_only=True):
    """Which tasks to list."""

    repo_key: Annotated[Filter, msgspec.Meta(description="Only tasks of this repository")] = None
    resource_key: Annotated[Filter, msgspec.Meta(description="Only tasks of this issue or pull request")] = None
    state: Annotated[Filter, msgspec.Meta(description="Only tasks in this state")] = None
    cursor: Cursor = None
    limit: Limit = 50


class Task(Input, frozen=True, kw_only=True):
    """A task by its id."""

    task_id: Annotated[Text, msgspec.Meta(description="The task's id")]


class Repositories(Input, frozen=True, kw_only=True):
    """Which repositories to list."""

    cursor: Cursor = None
    limit: Limit = 50


@command("overview", "GET", f"{_API}/overview", cli="overview")
async def overview(site: Site, grant: Read, given: Nothing) -> Answer:
    """Shows whether work is taken up, who works on what, and how many tasks are where."""
    _ = grant, given
    return Answer(await site.port.read(views.overview))


@command("task.list", "GET", f"{_API}/tasks", cli="task list")
async def tasks(site: Site, grant: Read, given: Tasks) -> Answer:
    """Lists tasks, newest first."""
    _ = grant
    wanted = views.Wanted(given.repo_key, given.resource_key, given.state, given.cursor, given.limit)
    found, following = await site.port.read(views.tasks, wanted)
    return Answer({"tasks": found, "nextCursor": following})


@command("task.show", "GET", f"{_API}/tasks/{{taskId}}", cli="task show")
async def task(site: Site, grant: Read, given: Task) -> Answer:
    """Shows a task with its turns, comments, branches and error."""
    _ = grant
    return Answer(await site.port.read(views.task, given.task_id))


@command("repo.list", "GET", f"{_API}/repos", cli="repo list")
async def repositories(site: Site, grant: Read, given: Repositories) -> Answer:
    """Lists the repositories that Stationmaster knows."""
    _ = grant
    found, following = await site.port.read(views.repositories, given.cursor, given.limit, site.workspaces)
    return Answer({"repositories": found, "nextCursor": following})
