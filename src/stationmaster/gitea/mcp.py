"""Starts the official gitea-mcp once before a turn, to see that it is there, greets back and can write a comment.

It never calls a tool: only the agent does, through a process that Codex starts in the same way (GW-R-162). The bot's
token is in that process's environment and nowhere else (GW-R-142).
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from stationmaster import bubblewrap, redact
from stationmaster.agents import isolation
from stationmaster.agents.process import AgentProcess
from stationmaster.errors import StationmasterError, Unavailable
from stationmaster.gitea import acts, codes
from stationmaster.gitea.bridge import SERVER, CommentTool
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import Task
from stationmaster.gitea.settings import GiteaSettings, Station

T = TypeVar("T")

# Another product of the same command name is on the Python index; only this one is meant.
NAME = "Gitea MCP Server"
ARGUMENTS = ("-t", "stdio")
_PROTOCOL = "2025-06-18"
_MOST_PAGES = 20
_GRACE_S = 1.0
_WORDS = 200


@dataclass(frozen=True, slots=True)
class Bridge:
    """A gitea-mcp that was seen to work: its program, what it calls itself, and the tool that writes comments."""

    program: Path
    version: str
    tool: CommentTool

    def server(self, settings: GiteaSettings, home: Path) -> dict[str, Any]:
        """Returns Codex's entry for it; the token is in the message that carries this, and in no file."""
        return {
            "command": str(self.program),
            "args": list(ARGUMENTS),
            "env": _secrets(settings, home),
            "required": True,
            "default_tools_approval_mode": "approve",
            "startup_timeout_sec": settings.mcp_handshake_timeout_s,
        }


def home_of(run_temp: Path) -> Path:
    """Returns the HOME of the bridge: it writes a log there, which ends with the run."""
    return run_temp / "mcp"


async def preflight(gear: Gear, hold: Hold, task: Task) -> Bridge:
    """Sees that the bridge works, under the lease, with an intent before and the result after (GW-R-156).

    Raises Unavailable `mcp_command_missing`, `mcp_spawn_failed` or `mcp_handshake_failed`.
    """
    about = {"server": SERVER, "command": gear.settings.mcp_command}
    async with acts.act(gear, task, "mcp.preflight", subject=task.id, hold=hold, about=about) as doing:
        # One run at a time has a repository, so its name is enough.
        found = await probe(gear.settings, gear.station, f"mcp_{task.repository_id}", bwrap=gear.codex.bwrap)
        doing.data = {"version": found.version, "tool": found.tool.name, "number": found.tool.number}
    return found


async def probe(settings: GiteaSettings, station: Station, name: str, *, bwrap: str = "bwrap") -> Bridge:
    """Starts the bridge within the walls of a run, greets it, reads its tools and ends it again.

    `name` marks the process and names its folder, which is gone afterwards.
    """
    program = _found(settings.mcp_command, station)
    folder = (station.runs / name).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    home_of(folder).mkdir(mode=0o700, parents=True)
    try:
        process = await _spawn(program, settings, station, folder, name, bwrap)
        try:
            version, tools = await _greeted(process, settings.mcp_handshake_timeout_s)
        finally:
            await process.close(grace_s=_GRACE_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    tool = CommentTool.listed(tools)
    if tool is None:
        _failed("lists no tool that writes a comment", "Start it without its read-only switch.")
    return Bridge(program, version, tool)


def _found(command: str, station: Station) -> Path:
    found = shutil.which(command, path=isolation.search_path(station.mounts))
    if found is None:
        raise Unavailable(
            f"gitea.mcp.command: there is no program {command}.",
            code=codes.MCP_COMMAND_MISSING,
            hint="Install the official gitea-mcp, or name its absolute path.",
        )
    return Path(found).resolve()


async def _spawn(
    program: Path, settings: GiteaSettings, station: Station, folder: Path, name: str, bwrap: str
) -> AgentProcess:
    home, isolated = home_of(folder), station.isolation == "required"
    argv = [str(program), *ARGUMENTS]
    if isolated:
        box = bubblewrap.Box(home, read_only=(*station.mounts, program), read_write=(folder,), network=True)
        argv = bubblewrap.argv(box, argv, bwrap=bwrap)
    env = {"PATH": isolation.search_path(station.mounts), "LANG": "C.UTF-8", **_secrets(settings, home)}
    try:
        return await AgentProcess.spawn(argv, env=env, cwd=home, run_id=name, isolated=isolated)
    except StationmasterError as error:
        raise Unavailable(error.message, code=codes.MCP_SPAWN_FAILED, hint=error.hint) from error


def _secrets(settings: GiteaSettings, home: Path) -> dict[str, str]:
    # MCP_MODE would win over the arguments: it is cleared, for nothing else reaches this environment.
    return {"GITEA_HOST": settings.base_url, "GITEA_ACCESS_TOKEN": settings.token.reveal(), "HOME": str(home)}


async def _greeted(process: AgentProcess, within_s: float) -> tuple[str, list[Mapping[str, Any]]]:
    talk = _Talk(process)
    try:
        async with asyncio.timeout(within_s):
            client = {"name": "stationmaster", "version": "1"}
            greeting = {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": client}
            told = _table(_table(await talk.ask("initialize", greeting)).get("serverInfo"))
            if told.get("name") != NAME:
                name = redact.clean(str(told.get("name")))[:_WORDS]
                _failed(f"calls itself {name!r}, not {NAME!r}", "Another product has that command name too.")
            await talk.send({"method": "notifications/initialized"})
            return redact.clean(str(told.get("version", "")))[:_WORDS], await _listed(talk)
    except TimeoutError:
        _failed(f"did not answer within {within_s:g} s", "See gitea.mcp.handshake_timeout_s.")


async def _listed(talk: _Talk) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    cursor: Any = None
    for _ in range(_MOST_PAGES):
        page = _table(await talk.ask("tools/list", {} if cursor is None else {"cursor": cursor}))
        tools = page.get("tools")
        found += [tool for tool in tools if isinstance(tool, Mapping)] if isinstance(tools, list) else []
        cursor = page.get("nextCursor")
        if not cursor:
            break
    return found


class _Talk:
    """Requests and answers over the pipes of one process, one after another."""

    def __init__(self, process: AgentProcess) -> None:
        self._process = process
        self._last = 0

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        self._last += 1
        await self.send({"id": self._last, "method": method, "params": params})
        while True:
            message = await self._next()
            if message.get("id") != self._last or "method" in message:
                # A notification, or something it asks of us: it was told that we can do nothing for it.
                continue
            if "error" in message:
                words = redact.clean(str(_table(message["error"]).get("message", "")))[:_WORDS]
                _failed(f"refused {method}: {words}", "Look at its version.")
            return message.get("result")

    async def send(self, message: dict[str, Any]) -> None:
        self._process.stdin.write(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")
        await self._or_ended(self._process.stdin.drain())

    async def _next(self) -> Mapping[str, Any]:
        line = await self._or_ended(self._process.stdout.readline())
        if not line:
            await self._ended()
        try:
            return _table(msgspec.json.decode(line))
        except msgspec.DecodeError:
            _failed("says what is no JSON", "Look at its version.")

    async def _or_ended(self, doing: Awaitable[T]) -> T:
        try:
            return await doing
        except (OSError, ValueError):
            await self._ended()

    async def _ended(self) -> NoReturn:
        await self._process.wait()
        words = self._process.words().strip().splitlines()
        raise Unavailable(
            f"gitea-mcp ended at its start (status {self._process.returncode})"
            f"{': ' + words[-1][:_WORDS] if words else ''}.",
            code=codes.MCP_SPAWN_FAILED,
            hint="Run it by hand; what it needs besides itself belongs into agents.mounts.",
        )


def _failed(what: str, hint: str) -> NoReturn:
    raise Unavailable(f"gitea-mcp {what}.", code=codes.MCP_HANDSHAKE_FAILED, hint=hint)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
