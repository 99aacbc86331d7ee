"""Checks of the agent: that Codex runs, that its walls stand, and that it may work for us."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from stationmaster.agents.codex_app import home as codex_home
from stationmaster.agents.codex_app import login as codex_login
from stationmaster.agents.codex_app import probe
from stationmaster.agents.codex_app.session import CodexRun
from stationmaster.agents.codex_app.settings import RunSpec
from stationmaster.agents.driver import ToolAnswer, ToolCall
from stationmaster.agents.events import AgentMessage, ProcessExited, TurnCompleted
from stationmaster.ops import wiring
from stationmaster.ops.doctor.report import Finding, fail, ok, warn
from stationmaster.ops.home import Home
from stationmaster.ops.settings import Config

_VERSION = re.compile(r"\d+\.\d+\.\d+\S*")
_PACKAGE = "openai-codex-cli-bin"
_VERSION_S = 15.0
_THREAD_S = 60.0
TURN_S = 180.0
_ACCOUNTS = {"chatgpt": "the stored ChatGPT login", "api_key": "the stored API key", "none": "no account of its own"}
_ASKED = "This is a check of the installation. Do not use any tool. Answer with the single word: ready"


def binary(config: Config) -> Iterator[Finding]:
    """Tells whether the Codex program runs, and which it is."""
    command = wiring.codex_settings(config).command
    advice = "Install Stationmaster again with its pinned packages, or set codex.command to a Codex that runs."
    try:
        done = subprocess.run(
            [str(command), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_S,
            check=False,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        words = getattr(error, "strerror", None) or "it did not end"
        yield fail("codex", f"{command} cannot be run: {words}.", advice)
        return
    said = _VERSION.search(done.stdout.decode(errors="replace"))
    tested = metadata.version(_PACKAGE)
    if done.returncode != 0 or said is None:
        yield fail("codex", f"{command} does not say its version (status {done.returncode}).", advice)
    elif said[0] != tested:
        yield warn(
            "codex", f"{command} is version {said[0]}; {tested} is the tested one.", "Leave codex.command empty."
        )
    else:
        yield ok("codex", f"Codex {said[0]} runs.")


def isolation(place: Home, config: Config) -> Iterator[Finding]:
    """Tells whether agents can be walled in, by running a command through both sandboxes and looking at its traces."""
    mode = config.agents.isolation
    with tempfile.TemporaryDirectory(prefix="doctor-", dir=place.path) as folder:
        reason = probe.probe(wiring.codex_settings(config), Path(folder), mode=mode)
    if reason:
        yield fail("isolation", reason, "Runs are refused until this works; see the line about bubblewrap first.")
    elif mode == "codex_only":
        yield warn(
            "isolation",
            "Agents run in Codex's own sandbox alone, as agents.isolation says.",
            'Set agents.isolation = "required".',
        )
    elif config.codex.sandbox == "danger-full-access":
        yield warn(
            "isolation",
            "Codex's own sandbox is off, as codex.sandbox says: commands can read its login and transcripts.",
            'Set codex.sandbox = "workspace-write".',
        )
    else:
        yield ok("isolation", "A command in Codex's sandbox inside ours works and cannot reach what it must not.")


def login(place: Home, config: Config, *, spend: bool) -> Iterator[Finding]:
    """Tells whether Codex may work for us, by starting a thread, and with `spend` by one turn."""
    name = codex_home.provider_key_name(config.codex.config)
    if name and config.codex.api_key is None:
        yield fail(
            "codex login",
            f"The provider of [codex.config] takes its key as {name}, and codex.api_key is not set.",
            "Set codex.api_key to where the key is, such as file:/path.",
        )
        return
    account = _account(config)
    home = config.codex.home
    # The login is shared by hard link, so the folder must be on its file system.
    with (
        tempfile.TemporaryDirectory(prefix="doctor-", dir=place.path) as folder,
        tempfile.TemporaryDirectory(prefix="doctor-", dir=home if home.is_dir() else place.path) as own,
    ):
        spec = _spec(config, Path(folder).resolve(), Path(own).resolve())
        try:
            yield from asyncio.run(_talk(config, spec, account, spend=spend))
        except TimeoutError:
            yield fail("codex login", f"Codex did not start within {_THREAD_S:g} s.", "See the lines above.")


def _account(config: Config) -> str:
    if config.codex.api_key is not None:
        return f"the key of {config.codex.api_key.ref}"
    if config.codex.config.get("model_provider"):
        return f"the provider {config.codex.config['model_provider']!s}"
    return _ACCOUNTS[codex_login.login_status(wiring.codex_settings(config)).account]


def _spec(config: Config, folder: Path, own: Path) -> RunSpec:
    rooms = [folder / name for name in ("tree", "bare", "temp")]
    for room in rooms:
        room.mkdir()
    return RunSpec(
        f"doctor-{os.getpid()}",
        rooms[0],
        rooms[1],
        own,
        rooms[2],
        api_key=config.codex.api_key,
        mounts=config.agents.mounts,
        isolation=config.agents.isolation,
    )


async def _talk(config: Config, spec: RunSpec, account: str, *, spend: bool) -> list[Finding]:
    found = []
    async with asyncio.timeout(_THREAD_S):
        run = await CodexRun.launch(wiring.codex_settings(config), spec, on_tool=_no_tool)
    try:
        async with asyncio.timeout(_THREAD_S):
            thread_id = await run.start_thread()
        found.append(ok("codex login", f"Codex starts a thread with {account}."))
        if spend:
            found.append(await _turn(run, thread_id))
    finally:
        await run.close()
    return found


async def _turn(run: CodexRun, thread_id: str) -> Finding:
    said = ""
    try:
        async with asyncio.timeout(TURN_S):
            turn_id = await run.start_turn(thread_id, _ASKED)
            async for event in run.events():
                if isinstance(event, AgentMessage):
                    said = event.text
                if isinstance(event, TurnCompleted) and event.turn_id == turn_id:
                    return _ended(event, said)
                if isinstance(event, ProcessExited):
                    break
    except TimeoutError:
        return fail("codex turn", f"The model did not answer within {TURN_S:g} s.", "Look at the provider's status.")
    return fail(
        "codex turn", "Codex ended in the middle of the turn.", "Run doctor again; look at the line about codex."
    )


def _ended(event: TurnCompleted, said: str) -> Finding:
    if event.status == "completed" and said:
        return ok("codex turn", f"The model answered: {said[:60]}")
    words = event.error_message[:200].rstrip(".") or "it said nothing"
    return fail(
        "codex turn",
        f"The turn ended {event.status} ({event.error_code or 'no code'}): {words}.",
        "Log in again with `stationmaster codex login`, or look at codex.model, codex.api_key and [codex.config].",
    )


async def _no_tool(call: ToolCall) -> ToolAnswer:
    return ToolAnswer(f"There is no tool {call.tool[:100]!r} here.", ok=False)
