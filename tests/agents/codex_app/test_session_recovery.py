"""Ends of a real app-server: interrupts, kills, resumes, and what is left of its processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stationmaster.agents import process
from stationmaster.agents.codex_app.session import CodexRun
from stationmaster.agents.codex_app.settings import RunSpec, Sandbox
from stationmaster.agents.events import AgentMessage, ItemStarted, ProcessExited, TurnCompleted
from stationmaster.agents.isolation import Isolation
from stationmaster.errors import NotFound, Unavailable
from stationmaster.standins.responses_model import ResponsesModel
from tests.agents.codex_app.rig import Rig, scenario, turn, until
from tests.support import eventually, eventually_async

# The child leaves its session, so that only a namespace or the mark can find it.
LINGER = "setsid sleep 600 & echo up > up; wait"
PLACES: list[tuple[Isolation, Sandbox]] = [
    ("required", "workspace-write"),
    ("required", "danger-full-access"),
    ("codex_only", "danger-full-access"),
]


def app_server(run_id: str) -> int:
    """The pid of the app-server itself."""

    def is_it(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1] == b"app-server"
        except (OSError, IndexError):
            return False

    return next(pid for pid in process.marked(run_id) if is_it(pid))


async def test_an_interrupt_ends_the_turn_and_the_thread_goes_on(tmp_path: Path) -> None:
    # GW-R-154
    rig = Rig(tmp_path)
    with ResponsesModel(scenario("^wait", [{"text": "hm", "phase": "commentary"}, {"hold": "gate"}])) as model:
        async with rig.run(rig.settings(model.base_url)) as run:
            thread_id = await run.start_thread()
            turn_id = await run.start_turn(thread_id, "wait for it")
            await until(run, lambda event: isinstance(event, AgentMessage))
            await run.interrupt(thread_id, turn_id)
            end = (await until(run, lambda event: isinstance(event, TurnCompleted)))[-1]
            assert isinstance(end, TurnCompleted)
            assert (end.status, end.turn_id) == ("interrupted", turn_id)
            await run.interrupt(thread_id, turn_id)
            last = (await turn(run, thread_id, "and now?"))[-1]
            assert isinstance(last, TurnCompleted)
            assert last.status == "completed"


async def test_a_thread_goes_on_in_a_new_process_after_a_kill(tmp_path: Path) -> None:
    # GW-R-146: tools, sandbox and rules are there again
    rig = Rig(tmp_path)
    steps = [
        {"shell": "echo two > b.txt; cat a.txt"},
        {"call": {"name": "reply", "args": {"body": "x"}}},
        "${last_output}",
    ]
    plan = {
        "rules": [
            {"when": {"user": "^first"}, "steps": [[{"text": "hm", "phase": "commentary"}, {"hold": "gate"}]]},
            {"when": {"user": "^second"}, "advance": "tool", "steps": steps},
        ]
    }
    with ResponsesModel(plan) as model:
        settings, spec = rig.settings(model.base_url), rig.spec(developer_instructions="RULES OF THE HOUSE")
        async with rig.run(settings, spec) as run:
            thread_id = await run.start_thread()
            await run.start_turn(thread_id, "first")
            await until(run, lambda event: isinstance(event, AgentMessage))
            os.kill(app_server(spec.run_id), signal.SIGKILL)
            events = [event async for event in run.events()]
            assert isinstance(events[-1], ProcessExited)
            with pytest.raises(Unavailable) as caught:
                await run.start_turn(thread_id, "more")
            assert caught.value.code == "app_server_unreachable"
        async with rig.run(settings, rig.spec(developer_instructions="RULES OF THE HOUSE")) as run:
            await run.resume_thread(thread_id)
            events = await turn(run, thread_id, "second")
        body = str(model.requests[-1]["body"])
    assert isinstance(events[-1], TurnCompleted)
    assert events[-1].status == "completed"
    assert events[-1].thread_id == thread_id
    assert [call.tool for call in rig.called] == ["reply"]
    assert (rig.tree / "b.txt").read_text() == "two\n"
    assert "first" in body
    assert "RULES OF THE HOUSE" in body


async def test_a_thread_that_codex_lost_is_told_from_one_it_cannot_reach(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with ResponsesModel({"default": ["Nothing to do."]}) as model:
        settings, spec = rig.settings(model.base_url), rig.spec()
        async with rig.run(settings, spec) as run:
            unborn = await run.start_thread()
        async with rig.run(settings) as run:
            thread_id = await run.start_thread()
            await turn(run, thread_id, "hello")
            async with rig.run(settings) as other:
                with pytest.raises(Unavailable) as busy:
                    await other.resume_thread(thread_id)
                assert busy.value.code == "session_busy"
        for name in (unborn, "01a22f2a-ad36-70c2-b9c0-32a09a08eec5", "no-id"):
            async with rig.run(settings) as run:
                with pytest.raises(NotFound) as lost:
                    await run.resume_thread(name)
                assert lost.value.code == "session_unrecoverable"


@pytest.mark.parametrize(("isolation", "sandbox"), PLACES)
@pytest.mark.parametrize("stopped", [False, True])
async def test_close_leaves_no_process(tmp_path: Path, isolation: Isolation, sandbox: Sandbox, stopped: bool) -> None:
    rig = Rig(tmp_path)
    spec = rig.spec(isolation=isolation)
    with ResponsesModel(scenario("^linger", {"shell": LINGER})) as model:
        settings = rig.settings(model.base_url, sandbox=sandbox, close_grace_s=0.5)
        run = await CodexRun.launch(settings, spec, on_tool=rig.on_tool)
        thread_id = await run.start_thread()
        await run.start_turn(thread_id, "linger")
        await until(run, lambda event: isinstance(event, ItemStarted))
        await eventually_async(lambda: asyncio.to_thread((rig.tree / "up").exists))
        if stopped:
            os.kill(app_server(spec.run_id), signal.SIGSTOP)
        assert sleepers() >= 1
        await run.close()
    assert process.marked(spec.run_id) == []
    assert process.sweep(spec.run_id) == 0


def sleepers() -> int:
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += path.read_bytes() == b"sleep\x00600\x00"
        except OSError:
            continue
    return found


@contextmanager
def product(rig: Rig, spec: RunSpec, base_url: str, sandbox: Sandbox) -> Iterator[subprocess.Popen[bytes]]:
    order = {name: str(getattr(spec, name)) for name in ("run_id", "worktree", "bare", "codex_home", "run_temp")}
    order |= {"isolation": spec.isolation, "sandbox": sandbox, "home": str(rig.codex), "text": "linger"}
    path = rig.root / "order.json"
    path.write_text(json.dumps({**order, "config": dict(rig.settings(base_url).config)}))
    child = subprocess.Popen([sys.executable, "-m", "tests.agents.codex_app.product", str(path)])
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        process.sweep(spec.run_id)


@pytest.mark.parametrize(("isolation", "sandbox"), PLACES)
@pytest.mark.parametrize("stopped", [False, True])
def test_a_killed_product_leaves_no_process_or_finds_it(
    tmp_path: Path, isolation: Isolation, sandbox: Sandbox, stopped: bool
) -> None:
    rig = Rig(tmp_path)
    spec = rig.spec(isolation=isolation)
    with (
        ResponsesModel(scenario("^linger", {"shell": LINGER})) as model,
        product(rig, spec, model.base_url, sandbox) as child,
    ):
        eventually((rig.tree / "up").exists)
        assert len(process.marked(spec.run_id)) >= 3
        if stopped:
            os.kill(app_server(spec.run_id), signal.SIGSTOP)
        child.kill()
        if isolation == "required":
            # The kernel ends the namespace with the product; nobody needs to come back for it.
            eventually(lambda: process.marked(spec.run_id) == [])
        process.sweep(spec.run_id)
        assert process.marked(spec.run_id) == []
