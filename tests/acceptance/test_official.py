"""Official mode: the agent posts by itself through gitea-mcp, in real walls, with the real agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stationmaster.gitea import store
from tests.gitea.bridges import official
from tests.gitea.life import life, mention, rule
from tests.gitea.world import REPO, World
from tests.support import eventually_async

PATCH = "*** Begin Patch\n*** Update File: README.md\n@@\n-# Widgets\n+# Better widgets\n*** End Patch\n"


def say(tool: str, number: str, body: str, **more: Any) -> dict[str, Any]:
    """The model's call of the tool that writes a comment."""
    args = {**more, "owner": "acme", "repo": "widgets", number: 1, "body": body}
    return {"mcp": {"server": "gitea", "tool": tool, "args": args}}


def new(body: str) -> dict[str, Any]:
    """As 1.8 wants it."""
    return say("issue_write", "issue_number", body, method="add_comment")


def old(body: str) -> dict[str, Any]:
    """As 0.4 wants it."""
    return say("create_issue_comment", "index", body)


def asked(words: str, *steps: Any) -> dict[str, Any]:
    """A rule for a prompt that holds `words`; `${1}` is the marker line of its turn."""
    return rule(rf"Marker line: (<!-- ccweb [^>]* -->)[\s\S]*{words}", *steps)


def finals(world: World) -> list[str]:
    return [text for text in world.said() if "taskId=" in text]


async def test_the_agent_posts_its_answer_and_the_host_publishes_and_proves_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GW-R-006, GW-R-141, GW-R-142, GW-R-151, GW-R-160, GW-R-161, GW-R-162, GW-R-234, GW-R-036
    gear = official(world, tmp_path / "bin")
    token = gear.settings.token.reveal()
    look = "cat /proc/*/environ | tr '\\0' '\\n'; env; cat /proc/*/cmdline; true"
    monkeypatch.setenv("MCP_MODE", "http")
    posted = asked(
        "please",
        {"patch": PATCH},
        {"shell": look},
        [new("Fixed.\n\n${1}"), new("Fixed.\n\n${1}")],
        [{"hold": "gate"}, "Fixed."],
    )
    async with life(world, posted, asked("again", new("Again.\n\n${1}"), "Again.")) as alive:
        task = await alive.until(await mention(world, "please fix it"), "running")
        await eventually_async(lambda: answered(world))
        bridges = [env for env in environments() if f"GITEA_ACCESS_TOKEN={token}" in env]
        # One process has it: not the app-server, not the walls around it.
        [env] = bridges
        assert f"GITEA_HOST={gear.settings.base_url}" in env
        assert any(line.startswith("STATIONMASTER_RUN=run") for line in env)
        assert not any(line.startswith("MCP_MODE") for line in env)
        assert token not in command_lines()
        alive.model.release("gate")
        task = await alive.until(task)
        assert (task.state, task.reply_attempt) == ("succeeded", 0)
        thread = await alive.thread(task)
        second = await alive.until(await mention(world, "again"))
        assert second.state == "succeeded"
        # GW-R-146: the bridge comes back with the resumed thread
        assert await alive.thread(second) == thread
        told = alive.requests()
        assert "STATIONMASTER_RUN" in told
    [first, double, _] = finals(world)
    assert first == double
    assert first.startswith("Fixed.\n\n<!-- ccweb taskId=")
    # GW-R-176: what is there twice is seen, and changes nothing
    assert len(await world.history(task, "reply.duplicate_observed")) == 1
    seen = await world.history(task, "mcp.call_observed")
    assert [(entry.data or {})["accepted"] for entry in seen] == [True, True]
    row = next(row for row in await world.comments(task) if row.kind == "mcp_final")
    assert (row.state, row.native_id) == ("confirmed", (seen[0].data or {})["comment"])
    [pull] = world.admin.pulls(REPO)
    assert pull["head"]["ref"] == "stationmaster/issue-1"
    # The token is nowhere but in its own memory.
    history = str(await world.history(task)) + str(await world.history(second))
    assert [
        where for where, text in {"model": told, "history": history, **contents(tmp_path)}.items() if token in text
    ] == []


async def answered(world: World) -> bool:
    return len(finals(world)) > 1


def environments() -> list[list[str]]:
    """Returns the environment of every process on this machine but the test's own."""
    return [read(folder / "environ").split("\0") for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def command_lines() -> str:
    return "\n".join(read(folder / "cmdline") for folder in Path("/proc").iterdir() if folder.name.isdigit())


def read(path: Path) -> str:
    try:
        return path.read_bytes().decode("latin-1")
    except OSError:
        return ""


def contents(folder: Path) -> dict[str, str]:
    """Returns every file of the product, the forge's own ones aside."""
    return {
        str(path): path.read_bytes().decode("latin-1")
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and "forge" not in path.relative_to(folder).parts
    }


async def test_an_agent_that_asks_posts_its_question_and_goes_on_in_the_same_thread(
    world: World, tmp_path: Path
) -> None:
    # GW-R-151, GW-R-160: by the oldest dialect; a call that fails is seen too, in the form of its time
    official(world, tmp_path / "bin", "--dialect", "0.4")
    wrong = {"mcp": {"server": "gitea", "tool": "create_issue_comment", "args": {"owner": "acme"}}}
    asking = asked("please", wrong, old("Which one?"), "I asked.\nccweb-status: waiting_user")
    async with life(world, asking, asked("the left", old("Done.\n\n${1}"), "Done.")) as alive:
        task = await alive.until(await mention(world, "please fix it"))
        assert task.state == "waiting_user"
        assert world.said()[1:] == ["Which one?"]
        assert world.admin.pulls(REPO) == []
        thread = await alive.thread(task)
        assert (await mention(world, "the left one")).id == task.id
        ended = await alive.until(task, "succeeded")
        assert await alive.thread(ended) == thread
    seen = [entry.data or {} for entry in await world.history(task, "mcp.call_observed")]
    assert [(each["accepted"], each["code"]) for each in seen] == [
        (False, "mcp_call_failed"),
        (True, None),
        (True, None),
    ]


async def test_a_success_without_a_comment_leads_to_one_reply_turn_and_the_fallback(
    world: World, tmp_path: Path
) -> None:
    # GW-R-161, GW-R-170, GW-R-171: the call says yes, and the forge shows nothing of it
    official(world, tmp_path / "bin", "--dialect", "1.0")
    world.fault("hide_comment", count=None, match={"body": "Hidden"})
    answer = say("issue_write", "index", "Hidden.\n\n${1}", method="add_comment")
    async with life(world, asked("please", answer, "Looked."), rule("Your answer for", "No.")) as alive:
        task = await alive.until(await mention(world, "please look"))
    assert task.reply_failure == "mcp_reply_missing"
    assert [turn.kind for turn in await world.port.read(store.turns, task.id)] == ["normal", "reply_retry"]
    assert task.state == "succeeded_with_rest_fallback"
    assert [text.split("\n")[0] for text in finals(world)][-1] == "Looked."


async def test_a_thread_of_the_other_mode_is_replaced_and_a_cut_run_is_not_repeated(
    world: World, tmp_path: Path
) -> None:
    # GW-R-036, GW-R-187: the agent dies after it answered; the forge is asked before anything runs again
    async with life(world, rule("first", {"call": {"name": "reply", "args": {"body": "Said."}}}, "Said.")) as alive:
        first = await alive.until(await mention(world, "first"))
        thread = await alive.thread(first)
    official(world, tmp_path / "bin")
    cut = asked("please", {"patch": PATCH}, new("Fixed.\n\n${1}"), {"failed": {"code": "server_error", "message": "x"}})
    async with life(world, cut) as alive:
        task = await alive.until(await mention(world, "please fix it"))
        assert (task.state, task.attempt) == ("succeeded", 0)
        assert await alive.thread(task) != thread
    [replaced] = await world.history(task, "thread.replaced")
    assert (replaced.data or {})["reason"] == "tools_changed"
    assert [turn.kind for turn in await world.port.read(store.turns, task.id)] == ["normal"]
    assert len(world.admin.pulls(REPO)) == 1
