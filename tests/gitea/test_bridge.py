"""What the versions of gitea-mcp call things, and what their answers say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stationmaster.gitea import texts
from stationmaster.gitea.bridge import CommentTool, Create, Created, created
from stationmaster.standins.gitea_mcp import DIALECTS
from stationmaster.standins.gitea_mcp.dialects import tools

WHAT = Create("acme", "widgets", 12, "Done.", "<!-- mark -->")
BODY = "Done.\n\n<!-- mark -->"
ABOUT = texts.Correlation("task", "run_1", "default:acme/widgets:issue:12", "acme/widgets", "issue", 12, "alice")
CALLS = [
    ("0.4", "create_issue_comment", {"owner": "acme", "repo": "widgets", "index": 12, "body": BODY}),
    ("1.0", "issue_write", {"method": "add_comment", "owner": "acme", "repo": "widgets", "index": 12, "body": BODY}),
    (
        "1.8",
        "issue_write",
        {"method": "add_comment", "owner": "acme", "repo": "widgets", "issue_number": 12, "body": BODY},
    ),
]


@pytest.mark.parametrize(("version", "name", "arguments"), CALLS)
def test_one_operation_takes_the_names_of_each_version(version: str, name: str, arguments: dict[str, Any]) -> None:
    # GW-R-160
    tool = CommentTool.listed(tools(DIALECTS[version], read_only=False))
    assert tool is not None
    assert tool.name == name
    assert tool.arguments(WHAT) == arguments
    assert CommentTool.listed(tools(DIALECTS[version], read_only=True)) is None
    line = texts.post_line(tool, ABOUT)
    assert line.startswith(f"Post it with the tool {name} of gitea: {{")
    body = json.loads(line.partition(": ")[2])["body"]
    assert body == "<your answer>\n\n<!-- ccweb taskId=task turnId=run_1 resourceKey=default:acme/widgets:issue:12 -->"
    assert line in texts.turn_prompt(ABOUT, "please", mode="official", how=line)
    assert line in texts.reply_retry_prompt(ABOUT, "Done.", "official", line)


@pytest.mark.parametrize(
    "listed",
    [
        [],
        [{"name": "issue_write"}],
        [{"name": "issue_write", "inputSchema": {"properties": {"body": {}, "index": {}}}}],
        [
            {
                "name": "issue_write",
                "inputSchema": {"properties": {"body": {}, "index": {}, "method": {"enum": ["get"]}}},
            }
        ],
        [{"name": "create_issue_comment", "inputSchema": {"properties": {"body": {}, "nummer": {}}}}],
        [{"name": "add_comment", "inputSchema": {"properties": {"body": {}, "index": {}}}}],
        [{"name": "create_issue_comment", "inputSchema": []}],
    ],
)
def test_a_tool_of_another_form_is_none(listed: list[dict[str, Any]]) -> None:
    assert CommentTool.listed(listed) is None


@pytest.mark.parametrize(
    ("result", "failed", "said"),
    [
        ('{"Result": {"id": 7, "body": "x"}}', False, Created(accepted=True, comment_id=7)),
        ('{"id": 8, "body": "x"}', False, Created(accepted=True, comment_id=8)),
        ('{"body": "x", "id": 9}', False, Created(accepted=True, comment_id=9)),
        ('{"id": 10, "body": "' + "x" * 100, False, Created(accepted=True, comment_id=10)),
        ('{"body": "{\\"id\\": 5}"}', False, Created(accepted=True)),
        ('{"id": "7"}', False, Created(accepted=True)),
        ("[]", False, Created(accepted=True)),
        ("", False, Created(accepted=True)),
        ("POST /x err: 404", True, Created(accepted=False, error_code="mcp_call_failed")),
    ],
)
def test_both_shapes_and_both_forms_of_an_error_are_read(result: str, failed: bool, said: Created) -> None:
    # GW-R-160, GW-R-161
    assert created(result, failed=failed) == said
