"""Open pages hear that something changed, and only those of somebody who is still logged in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stationmaster.control.console.live import _MOST_STREAMS
from stationmaster.gitea import actions
from stationmaster.jobs import actions as jobs
from stationmaster.jobs.model import RunEvent
from tests.control.conftest import Running
from tests.control.console.person import ROOT, Crowd, Person
from tests.gitea.rig import Rig


@asynccontextmanager
async def stream(person: Person, **query: str) -> AsyncIterator[AsyncIterator[str]]:
    async with person.client.stream("GET", f"{ROOT}/events", params=query, timeout=20) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield answer.aiter_lines()


async def event(lines: AsyncIterator[str]) -> str:
    """Returns the id of the next event."""
    async for line in lines:
        if line.startswith("id: "):
            return line.removeprefix("id: ")
    return "over"


async def test_a_change_is_told_once(crowd: Crowd, rig: Rig) -> None:
    person = await crowd.logged_in()
    async with stream(person) as lines:
        first = await event(lines)
        task_id = rig.ask()
        second = await event(lines)
        assert second != first
    async with stream(person, since=second, watch=task_id) as lines:
        lease, run_id = rig.claimed(task_id), actions.new_run_id()
        rig.do(actions.open_turn, task_id, lease, run_id, "home", kind="normal", head=None)
        moved = await event(lines)
        body = json.dumps({"kind": "agent_message", "text": "hello"})
        rig.ledger.hot(jobs.append, run_id, [RunEvent(7, rig.clock.now(), "agent_message", body)])
        heard = await event(lines)
        while heard.startswith(f"{moved.partition('.')[0]}.0"):
            heard = await event(lines)
        assert heard.endswith(".7")  # what the agent does is no command, and is told all the same


async def test_a_stream_ends_with_the_product(running: Running, crowd: Crowd) -> None:
    person = await crowd.logged_in()
    async with stream(person) as lines:
        assert await event(lines) != "over"
        running.stopping = True
        assert await event(lines) == "over"


async def test_a_login_has_a_few_streams_at_a_time(crowd: Crowd) -> None:
    person = await crowd.logged_in()
    opened = [person.client.stream("GET", f"{ROOT}/events", timeout=20) for _ in range(_MOST_STREAMS)]
    answers: list[AsyncIterator[str]] = []
    try:
        for each in opened:
            answers.append((await each.__aenter__()).aiter_lines())
            await event(answers[-1])
        refused = await person.client.get(f"{ROOT}/events")
        assert refused.status_code == 409
        assert "too many pages" in refused.text
    finally:
        for each in opened[: len(answers)]:
            await each.__aexit__(None, None, None)
