"""What differs between the versions of gitea-mcp: names of tools and arguments, shapes of results and of errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]
Operation = Literal["create", "edit", "comments", "issue"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One version: `number` is what it calls the number of an issue; `merged` has one tool with a `method`.

    `wrapped` results are full objects in `Result`, the others slim ones; `loose` numbers may come as text; `soft`
    errors are results that say so, the others errors of the protocol. `flags` are those that its command line knows.
    """

    version: str
    number: str
    merged: bool
    wrapped: bool
    loose: bool
    soft: bool
    flags: frozenset[str]


_FLAGS = frozenset({"t", "transport", "host", "port", "token", "read-only", "d", "insecure"})
_MORE = _FLAGS | {"H", "p", "T", "r", "k", "debug", "v", "version"}
DIALECTS = {
    each.version: each
    for each in (
        Dialect("0.4", "index", merged=False, wrapped=True, loose=False, soft=False, flags=_FLAGS),
        Dialect("1.0", "index", merged=True, wrapped=False, loose=True, soft=False, flags=_MORE),
        Dialect(
            "1.8",
            "issue_number",
            merged=True,
            wrapped=False,
            loose=True,
            soft=True,
            flags=_MORE | {"O", "tools", "S", "scope", "max-inline-attachment-bytes"},
        ),
    )
}
_TEXT, _NUMBER = {"type": "string"}, {"type": "number"}
_WHERE = {"owner": _TEXT, "repo": _TEXT}


def tools(dialect: Dialect, *, read_only: bool) -> list[Json]:
    """Returns what `tools/list` shows."""
    number = {dialect.number: _NUMBER}
    if dialect.merged:
        shown = [_tool("issue_read", {"method": _choice("get", "get_comments"), **_WHERE, **number}, read=True)]
        if not read_only:
            methods = _choice("create", "update", "add_comment", "edit_comment")
            about = {"method": methods, **_WHERE, **number, "title": _TEXT, "body": _TEXT, "commentID": _NUMBER}
            shown.append(_tool("issue_write", about, "method", "owner", "repo"))
        return shown
    shown = [
        _tool("get_issue_by_index", {**_WHERE, **number}, read=True),
        _tool("get_issue_comments_by_index", {**_WHERE, **number}, read=True),
    ]
    if not read_only:
        shown.append(_tool("create_issue_comment", {**_WHERE, **number, "body": _TEXT}))
        shown.append(_tool("edit_issue_comment", {**_WHERE, "commentID": _NUMBER, "body": _TEXT}))
    return shown


def operation(dialect: Dialect, tool: str, arguments: Json) -> Operation | None:
    """Returns what a call of a tool wants; None when this version has nothing of the kind."""
    if dialect.merged:
        known: dict[tuple[str, Any], Operation] = {
            ("issue_write", "add_comment"): "create",
            ("issue_write", "edit_comment"): "edit",
            ("issue_read", "get_comments"): "comments",
            ("issue_read", "get"): "issue",
        }
        return known.get((tool, arguments.get("method")))
    named: dict[str, Operation] = {
        "create_issue_comment": "create",
        "edit_issue_comment": "edit",
        "get_issue_comments_by_index": "comments",
        "get_issue_by_index": "issue",
    }
    return named.get(tool)


def shape(dialect: Dialect, found: Any) -> Any:
    """Returns an answer of the forge as this version hands it on."""
    if dialect.wrapped:
        return {"Result": found}
    return [_slim(each) for each in found] if isinstance(found, list) else _slim(found)


def _slim(row: Json) -> Json:
    kept = ("id", "number", "title", "body", "state", "html_url", "created_at", "updated_at")
    return {name: row[name] for name in kept if name in row} | {"user": (row.get("user") or {}).get("login", "")}


def _choice(*names: str) -> Json:
    return {"type": "string", "enum": list(names)}


def _tool(name: str, properties: Json, *required: str, read: bool = False) -> Json:
    schema = {"type": "object", "properties": properties, "required": list(required) or list(properties)}
    shown = {"name": name, "description": name.replace("_", " "), "inputSchema": schema}
    return {**shown, "annotations": {"readOnlyHint": True}} if read else shown
