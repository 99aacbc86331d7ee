"""The bridge of official mode: what is looked at before a turn, with real processes in real walls."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stationmaster.errors import Unavailable
from stationmaster.gitea import mcp, turn
from stationmaster.gitea.bridge import CommentTool
from stationmaster.gitea.run import Signals
from tests.agents.codex_app import fake_app_server
from tests.gitea.bridges import official
from tests.gitea.life import mention
from tests.gitea.world import World

OLD = ("0.4", CommentTool("create_issue_comment", "index"))
NEW = ("1.8", CommentTool("issue_write", "issue_number", "add_comment"))


def contents(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize(("dialect", "tool"), [OLD, NEW])
async def test_a_bridge_that_works_is_greeted_and_gone(
    world: World, tmp_path: Path, dialect: str, tool: CommentTool
) -> None:
    # GW-R-156, GW-R-160
    gear = official(world, tmp_path / "bin", "--dialect", dialect)
    hold = await world.claim(await mention(world, "please fix it"))
    found = await mcp.preflight(gear, hold, hold.task)
    assert (found.version, found.tool) == (dialect, tool)
    assert contents(gear.station.runs) == []
    [intent] = await world.history(hold.task, "mcp.preflight.intent")
    [result] = await world.history(hold.task, "mcp.preflight.result")
    assert (result.intent, result.outcome) == (intent.seq, "done")
    assert result.data == {"version": dialect, "tool": tool.name, "number": tool.number}
    assert (await world.task(hold.task.id)).state == "preparing"


WRONG = [
    ("exit", "mcp_spawn_failed", "failed to start"),
    ("dies", "mcp_spawn_failed", "ended at its start"),
    ("silent", "mcp_handshake_failed", "did not answer within"),
    ("refuses", "mcp_handshake_failed", "refused initialize: not today"),
    ("garbage", "mcp_handshake_failed", "no JSON"),
    ("stranger", "mcp_handshake_failed", "calls itself 'gitea-mcp'"),
    ("read_only", "mcp_handshake_failed", "lists no tool that writes a comment"),
]


async def test_a_bridge_that_misbehaves_is_told_apart(world: World, tmp_path: Path) -> None:
    # GW-R-158, GW-R-159, GW-R-201, GW-R-202
    for play, code, words in WRONG:
        within = 0.6 if play == "silent" else 10.0
        gear = official(world, tmp_path / "bin", "--play", play, mcp_handshake_timeout_s=within)
        with pytest.raises(Unavailable, match=words) as caught:
            await mcp.probe(gear.settings, gear.station, "probe")
        assert (play, caught.value.code) == (play, code)
        assert contents(gear.station.runs) == []


async def test_ac_08_a_broken_bridge_fails_the_task_with_one_receipt_until_it_is_mended(
    world: World, tmp_path: Path
) -> None:
    # GW-R-247 AC-08, GW-R-157, GW-R-158, GW-R-159, GW-R-200, GW-R-201, GW-R-202: no clone, no second try
    broken = {
        "missing": ("mcp_command_missing", "gitea-mcp is not installed"),
        "exit": ("mcp_spawn_failed", "gitea-mcp ended at its start"),
        "refuses": ("mcp_handshake_failed", "gitea-mcp did not shake hands"),
    }
    for number, (play, (code, words)) in enumerate(broken.items(), 1):
        gear = official(world, tmp_path / "bin", "--play", play)
        if play == "missing":
            shutil.move(gear.settings.mcp_command, tmp_path / "gone")
        hold = await world.claim(await mention(world, "please fix it"))
        await turn.work(gear, hold.task, hold.lease, Signals())
        task = await world.task(hold.task.id)
        assert (task.state, task.error_code, task.attempt) == ("failed", code, 0)
        receipts = [text.split("\n")[0] for text in world.said()]
        assert (len(receipts), receipts[-1]) == (number, f"giteabot: the task failed: {words}.")
        assert await world.lease(task) is None
        [result] = await world.history(task, "mcp.preflight.result")
        assert (result.outcome, (result.data or {})["code"]) == ("failed", code)
        assert not gear.layout.bare(task.repository_id).exists()
    gear = official(world, tmp_path / "bin")
    again = await world.claim(await mention(world, "please try again"))
    assert await mcp.preflight(gear, again, again.task)


async def test_without_walls_it_is_started_the_same_way(world: World, tmp_path: Path) -> None:
    gear = official(world, tmp_path / "bin", "--dialect", "1.0")
    bare = replace(gear.station, isolation="codex_only")
    found = await mcp.probe(gear.settings, bare, "probe")
    assert found.tool == CommentTool("issue_write", "index", "add_comment")
    assert not shutil.which("gitea-mcp", path="/usr/bin:/bin")
    with pytest.raises(Unavailable, match="there is no program gitea-mcp"):
        await mcp.probe(replace(gear.settings, mcp_command="gitea-mcp"), bare, "probe")


def test_the_token_is_in_the_environment_of_the_child_alone(world: World, tmp_path: Path) -> None:
    # GW-R-142: no -H and no -token, no MCP_MODE to win over `-t stdio`
    gear = official(world, tmp_path / "bin")
    entry = mcp.Bridge(Path("/opt/gitea-mcp"), "1.8", CommentTool("issue_write", "index", "add_comment")).server(
        gear.settings, tmp_path
    )
    token = gear.settings.token.reveal()
    assert entry.pop("env") == {"GITEA_HOST": gear.settings.base_url, "GITEA_ACCESS_TOKEN": token,
                                "HOME": str(tmp_path)}  # fmt: skip
    assert token not in str(entry)
    assert (entry["command"], entry["args"]) == ("/opt/gitea-mcp", ["-t", "stdio"])
    assert (entry["required"], entry["default_tools_approval_mode"]) == (True, "approve")


def elicitation(number: int, server: str, **meta: str) -> dict[str, Any]:
    about = {"threadId": "th-1", "turnId": "tu-1", "serverName": server, "mode": "form", "message": "Allow it?"}
    return {"id": number, "method": "mcpServer/elicitation/request", "params": {**about, "_meta": meta or None}}


async def test_only_a_call_of_the_bridge_is_allowed_and_every_answer_is_in_the_history(
    world: World, tmp_path: Path
) -> None:
    # GW-R-141, GW-R-146, GW-R-151, GW-R-152: with an app-server that asks
    gear = official(world, tmp_path / "bin")
    over = {"threadId": "th-1", "turn": {"id": "tu-1", "status": "completed"}}
    ended = {"method": "turn/completed", "params": over}
    asks = [
        elicitation(90, "gitea", codex_approval_kind="mcp_tool_call"),
        elicitation(91, "other", codex_approval_kind="mcp_tool_call"),
    ]
    log, plan, command = tmp_path / "log", tmp_path / "plan.json", tmp_path / "codex"
    plan.write_text(json.dumps({"log": str(log), "after": {"turn/start": asks}, "answered": {"91": [ended]}}))
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {fake_app_server.__file__} {plan} "$@"\n')
    command.chmod(0o755)
    codex = replace(gear.codex, command=command, close_grace_s=5.0)
    gear = replace(gear, codex=codex, station=replace(gear.station, isolation="codex_only"))
    task = await mention(world, "please fix it")
    for words in ("one", "two"):
        hold = await world.claim(task)
        await turn.work(gear, hold.task, hold.lease, Signals())
        assert (await world.task(task.id)).state == "waiting_user"
        if words == "one":
            task = await mention(world, words)
    told = [entry.data or {} for entry in await world.history(task, "agent.request")]
    assert [(each["answer"], each["what"]) for each in told] == [
        ("accept", "gitea: Allow it?"),
        ("cancel", "other: Allow it?"),
    ] * 2
    heard = [json.loads(line) for line in log.read_text().splitlines()]
    asked = {message["method"]: message["params"] for message in heard if "params" in message and "method" in message}
    for method in ("thread/start", "thread/resume"):
        server = asked[method]["config"]["mcp_servers"]["gitea"]
        assert server["env"]["GITEA_HOST"] == gear.settings.base_url
        assert server["env"]["GITEA_ACCESS_TOKEN"] == gear.settings.token.reveal()
        assert server["env"]["STATIONMASTER_RUN"].startswith("run_")
        assert (server["args"], server["required"]) == (["-t", "stdio"], True)
    assert [tool["name"] for tool in asked["thread/start"]["dynamicTools"]] == ["publish"]
    assert world.said()[1:] == []
