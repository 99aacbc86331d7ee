"""The stand-in of gitea-mcp: what differs between its dialects, against the stand-in forge."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stationmaster.standins.forge import Forge, ForgeAdmin
from stationmaster.standins.gitea_mcp import DIALECTS, GiteaMcp, main

REPO = "acme/widgets"


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, ForgeAdmin]]:
    with Forge(tmp_path_factory.mktemp("forge")) as server, ForgeAdmin(server.url) as admin:
        admin.org("acme")
        admin.user("alice")
        admin.bot("codebot")
        admin.repo("acme", "widgets", {"a.txt": "a\n"}, collaborators={"alice": "admin", "codebot": "write"})
        admin.issue(REPO, "alice", "It is broken", "")
        yield server.url, admin.token("codebot"), admin


def call(server: GiteaMcp, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": {"owner": "acme", "repo": "widgets", **arguments}}
    answer = server.answer({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})
    assert answer is not None
    assert answer["id"] == 7
    return answer


def told(answer: dict[str, Any]) -> Any:
    return json.loads(answer["result"]["content"][0]["text"])


def test_the_oldest_has_a_tool_for_each_thing_and_wraps_full_objects(forge: tuple[str, str, ForgeAdmin]) -> None:
    url, token, admin = forge
    server = GiteaMcp(DIALECTS["0.4"], host=url, token=token)
    made = told(call(server, "create_issue_comment", index=1, body="One"))["Result"]
    assert (made["body"], made["user"]["login"]) == ("One", "codebot")
    changed = told(call(server, "edit_issue_comment", commentID=made["id"], body="Two"))["Result"]
    assert (changed["id"], changed["body"]) == (made["id"], "Two")
    assert told(call(server, "get_issue_comments_by_index", index=1))["Result"][-1]["body"] == "Two"
    assert told(call(server, "get_issue_by_index", index=1))["Result"]["title"] == "It is broken"
    assert "error" in call(server, "create_issue_comment", index="1", body="a number must be one")
    assert admin.comments(REPO, 1)[-1]["body"] == "Two"


@pytest.mark.parametrize(("version", "number"), [("1.0", "index"), ("1.8", "issue_number")])
def test_later_ones_have_one_tool_with_a_method_and_slim_answers(
    forge: tuple[str, str, ForgeAdmin], version: str, number: str
) -> None:
    url, token, _ = forge
    server = GiteaMcp(DIALECTS[version], host=url + "/", token=token)
    made = told(call(server, "issue_write", method="add_comment", **{number: "1"}, body=version))
    assert (next(iter(made)), made["body"], made["user"]) == ("id", version, "codebot")
    edited = call(server, "issue_write", method="edit_comment", commentID=made["id"], body="more")
    assert told(edited)["body"] == "more"
    assert told(call(server, "issue_read", method="get_comments", **{number: 1}))[-1]["id"] == made["id"]
    failed = call(server, "issue_write", method="add_comment", **{number: 99}, body="nowhere")
    assert ("error" in failed) == (version == "1.0")
    assert failed.get("result", {}).get("isError", False) == (version == "1.8")
    other = {"index": "issue_number", "issue_number": "index"}[number]
    words = json.dumps(call(server, "issue_write", method="add_comment", **{other: 1}, body="x"))
    assert f"{number} is required" in words


def test_it_never_leaves_for_its_default_host() -> None:
    server = GiteaMcp(DIALECTS["1.8"], host="", token="secret-token")
    refused = call(server, "issue_read", method="get", issue_number=1)
    assert "GITEA_HOST is not set" in refused["result"]["content"][0]["text"]
    assert server.answer({"method": "notifications/initialized"}) is None
    unknown = server.answer({"id": 1, "method": "resources/list"}) or {}
    assert unknown["error"]["code"] == -32601


def test_its_command_line_is_that_of_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    greeting = '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}\n'

    def run(*words: str, **env: str) -> tuple[int, str]:
        out = io.StringIO()
        monkeypatch.setattr(sys, "stdin", io.StringIO(greeting))
        monkeypatch.setattr(sys, "stdout", out)
        return main(words, env), out.getvalue()

    assert '"name": "Gitea MCP Server"' in run("-t", "stdio")[1]
    assert run("-t", "stdio", "-H", "http://x", "--dialect", "0.4") == (2, "")
    assert run("-t", "stdio", "-H", "http://x", "--dialect", "1.0")[0] == 0
    # MCP_MODE wins over the argument: then nobody answers here.
    assert run("-t", "stdio", MCP_MODE="http") == (0, "")
    assert run("-t", "stdio", "--play", "exit") == (1, "")
