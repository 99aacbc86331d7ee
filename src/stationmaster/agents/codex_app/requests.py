"""The unattended answer to everything that the app-server asks of its host (GW-R-152), tool calls aside.

Nothing is granted that was not configured, and no request stays without an answer: a turn would wait for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stationmaster import redact
from stationmaster.agents.events import AgentRequest

_CLIPPED = 500


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back on the wire, a result or an error, and what the run's log says about it."""

    event: AgentRequest
    result: dict[str, Any] | None = None
    error: str = ""


def decide(method: str, params: dict[str, Any], trusted_servers: frozenset[str]) -> Reply:
    """Decides about one server request."""
    if method == "mcpServer/elicitation/request":
        return _elicitation(method, params, trusted_servers)
    if method == "item/tool/requestUserInput":
        asked = _questions(params)
        event = _event(method, params, "error", "; ".join(asked), waiting=True, questions=asked)
        return Reply(event, error="Nobody is here to answer now. End the turn; the question was noted.")
    if method in ("item/commandExecution/requestApproval", "item/fileChange/requestApproval"):
        words = str(params.get("command") or params.get("reason") or params.get("grantRoot") or "")
        return Reply(_event(method, params, "decline", words), result={"decision": "decline"})
    if method == "item/permissions/requestApproval":
        return Reply(_event(method, params, "decline", str(params.get("reason") or "")), result={"permissions": {}})
    return Reply(_event(method, params, "error", ""), error=f"{method[:100]} is not supported by this client.")


def _elicitation(method: str, params: dict[str, Any], trusted_servers: frozenset[str]) -> Reply:
    server, message = str(params.get("serverName", "")), str(params.get("message", ""))
    meta = params.get("_meta")
    kind = meta.get("codex_approval_kind") if isinstance(meta, dict) else None
    words = f"{server}: {message}"
    if kind == "mcp_tool_call" and server in trusted_servers:
        result: dict[str, Any] = {"action": "accept", "content": {}, "_meta": None}
        return Reply(_event(method, params, "accept", words), result=result)
    event = _event(method, params, "cancel", words, waiting=True, questions=(_clip(message),) if message else ())
    return Reply(event, result={"action": "cancel", "content": None, "_meta": None})


def _event(
    method: str,
    params: dict[str, Any],
    action: str,
    summary: str,
    *,
    waiting: bool = False,
    questions: tuple[str, ...] = (),
) -> AgentRequest:
    return AgentRequest(
        thread_id=str(params.get("threadId") or ""),
        turn_id=str(params.get("turnId") or ""),
        method=method[:100],
        action=action,
        summary=_clip(summary),
        waiting=waiting,
        questions=questions,
    )


def _questions(params: dict[str, Any]) -> tuple[str, ...]:
    asked = params.get("questions")
    if not isinstance(asked, list):
        return ()
    return tuple(_clip(str(entry.get("question", ""))) for entry in asked if isinstance(entry, dict))


def _clip(text: str) -> str:
    return redact.clean(text)[:_CLIPPED]
