"""One request as a scenario sees it: who spoke last, which tools are offered, what they answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What one HTTP call asked of the model.

    `user` is the last user message, `outputs` are the texts of the tool results after it, `tools` the names offered
    (`namespace::name` inside a namespace), `thread` the agent's conversation.
    """

    n: int
    path: str
    headers: Mapping[str, str]
    body: Json
    user: str
    turn: int
    outputs: tuple[str, ...]
    tools: tuple[str, ...]
    thread: str

    @property
    def last_output(self) -> str:
        """The newest tool result of this turn, or nothing."""
        return self.outputs[-1] if self.outputs else ""

    def as_json(self) -> Json:
        """Returns the request as plain data, the form in which it is recorded."""
        return {
            "n": self.n,
            "path": self.path,
            "headers": dict(self.headers),
            "body": self.body,
            "user": self.user,
            "turn": self.turn,
            "outputs": list(self.outputs),
            "tools": list(self.tools),
            "thread": self.thread,
        }


def read(n: int, path: str, headers: Mapping[str, str], body: Json) -> Asked:
    """Reads a Responses API body; parts of it that are missing count as empty."""
    items = _items(body)
    said = [_text(item.get("content")) for item in items if _is_user(item)]
    return Asked(
        n=n,
        path=path,
        headers=headers,
        body=body,
        user=said[-1] if said else "",
        turn=len(said),
        outputs=_outputs(items),
        tools=tuple(_names(body.get("tools"), items)),
        thread=str(body.get("prompt_cache_key") or headers.get("thread_id") or headers.get("session_id") or ""),
    )


def _items(body: Json) -> list[Json]:
    given = body.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return [item for item in given or [] if isinstance(item, dict)]


def _is_user(item: Json) -> bool:
    return item.get("type", "message") == "message" and item.get("role") == "user"


def _outputs(items: list[Json]) -> tuple[str, ...]:
    found: list[str] = []
    for item in items:
        if _is_user(item):
            found.clear()
        elif str(item.get("type", "")).endswith("_output"):
            found.append(_text(item.get("output")))
    return tuple(found)


def _text(content: Any) -> str:
    """Flattens the forms that content comes in: text, a part, a list of parts, or a wrapped output."""
    if content is None:
        return ""
    if isinstance(content, list):
        return "".join(_text(part) for part in content)
    if isinstance(content, dict):
        for key in ("text", "content", "output"):
            if key in content:
                return _text(content[key])
        return ""
    return str(content)


def _names(tools: Any, items: list[Json]) -> list[str]:
    """Names every tool on offer; models in code mode get theirs inside an input item instead of `tools`."""
    names: list[str] = []
    lists = [tools, *(item.get("tools") for item in items)]
    for tool in (tool for group in lists if isinstance(group, list) for tool in group):
        name = str(tool.get("name") or tool.get("type") or "")
        if tool.get("type") == "namespace":
            names += [f"{name}::{inner.get('name')}" for inner in tool.get("tools") or []]
        else:
            names.append(name)
    return names
