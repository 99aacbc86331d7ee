"""From the app-server's notifications to the product's own events.

Pure and total: whatever a newer Codex sends becomes an event or nothing, never an exception. Texts are redacted and
clipped here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stationmaster import redact
from stationmaster.agents.events import (
    AgentError,
    AgentEvent,
    AgentMessage,
    AgentWarning,
    ItemCompleted,
    ItemStarted,
    ThreadStarted,
    TokenUsage,
    TurnCompleted,
    TurnStarted,
    TurnStatus,
)

Params = dict[str, Any]
_SUMMARY = 300
_DETAIL = 4000
_MESSAGE = 200_000

# Codex's names of failures that may pass by themselves.
_TRANSIENT = frozenset({"flexUnavailable", "internalServerError", "rateLimitExceeded", "serverOverloaded"})
_HTTP_KINDS = frozenset(
    {
        "httpConnectionFailed",
        "responseStreamConnectionFailed",
        "responseStreamDisconnected",
        "responseTooManyFailedAttempts",
    }
)
_TRANSIENT_STATUS = frozenset({None, 408, 409, 425, 429})
_SERVER_ERRORS = 500
# "other" says nothing; these words of its message do.
_TRANSIENT_WORDS = ("stream disconnected", "error sending request", "timed out", "timeout", "connection")


def notification(method: str, params: Params) -> AgentEvent | None:
    """Translates one notification; None for what no reader needs (progress, limits, housekeeping)."""
    translate = _BY_METHOD.get(method)
    return translate(params) if translate else None


def failure(error: Any) -> tuple[str, str, bool]:
    """Returns code, message and transience of a turn's error."""
    error = _dict(error)
    info, message = error.get("codexErrorInfo"), _clip(error.get("message"), _DETAIL)
    details = _clip(error.get("additionalDetails"), _DETAIL)
    words = f"{message} {details}".strip()
    if isinstance(info, dict) and info:
        kind = str(next(iter(info)))
        status = _dict(info[kind]).get("httpStatusCode")
        code = f"{kind}:{status}" if status is not None else kind
        passing = status in _TRANSIENT_STATUS or (isinstance(status, int) and status >= _SERVER_ERRORS)
        return code, words, kind in _HTTP_KINDS and passing
    code = info if isinstance(info, str) else "other"
    if code == "other":
        return code, words, any(word in words.lower() for word in _TRANSIENT_WORDS)
    return code, words, code in _TRANSIENT


def _thread_started(params: Params) -> AgentEvent:
    return ThreadStarted(thread_id=_str(_dict(params.get("thread")).get("id")))


def _turn_started(params: Params) -> AgentEvent:
    return TurnStarted(thread_id=_str(params.get("threadId")), turn_id=_str(_dict(params.get("turn")).get("id")))


def _turn_completed(params: Params) -> AgentEvent:
    turn = _dict(params.get("turn"))
    given = turn.get("status")
    status: TurnStatus = "completed" if given == "completed" else "interrupted" if given == "interrupted" else "failed"
    code, message, transient = failure(turn.get("error")) if turn.get("error") else ("", "", False)
    return TurnCompleted(
        thread_id=_str(params.get("threadId")),
        turn_id=_str(turn.get("id")),
        status=status,
        error_code=code,
        error_message=message,
        transient=transient,
    )


def _item_started(params: Params) -> AgentEvent | None:
    item = _dict(params.get("item"))
    if item.get("type") in ("agentMessage", "userMessage"):
        return None
    return ItemStarted(
        thread_id=_str(params.get("threadId")),
        turn_id=_str(params.get("turnId")),
        item_id=_str(item.get("id")),
        item_type=_str(item.get("type")),
        summary=_summary(item),
        detail={},
    )


def _item_completed(params: Params) -> AgentEvent | None:
    item = _dict(params.get("item"))
    thread, turn, kind = _str(params.get("threadId")), _str(params.get("turnId")), item.get("type")
    if kind == "userMessage":
        return None
    if kind == "agentMessage":
        return AgentMessage(
            thread_id=thread,
            turn_id=turn,
            item_id=_str(item.get("id")),
            text=_clip(item.get("text"), _MESSAGE),
            phase=_str(item.get("phase")),
            delivery=_str(item.get("delivery")),
            questions=tuple(_clip(_dict(entry).get("title"), _DETAIL) for entry in _list(item.get("questions"))),
        )
    return ItemCompleted(
        thread_id=thread,
        turn_id=turn,
        item_id=_str(item.get("id")),
        item_type=_str(kind),
        summary=_summary(item),
        detail=_detail(item),
    )


def _token_usage(params: Params) -> AgentEvent:
    total = _dict(_dict(params.get("tokenUsage")).get("total"))
    return TokenUsage(
        thread_id=_str(params.get("threadId")),
        turn_id=_str(params.get("turnId")),
        input_tokens=_int(total.get("inputTokens")),
        cached_input_tokens=_int(total.get("cachedInputTokens")),
        output_tokens=_int(total.get("outputTokens")),
        reasoning_tokens=_int(total.get("reasoningOutputTokens")),
        total_tokens=_int(total.get("totalTokens")),
    )


def _warning(params: Params) -> AgentEvent:
    words = params.get("message") or params.get("summary") or params.get("details")
    return AgentWarning(thread_id=_str(params.get("threadId")), message=_clip(words, _DETAIL))


def _server_status(params: Params) -> AgentEvent | None:
    if params.get("status") != "failed":
        return None
    words = f"MCP server {params.get('name')} did not start: {params.get('error')}"
    return AgentWarning(thread_id=_str(params.get("threadId")), message=_clip(words, _DETAIL))


def _error(params: Params) -> AgentEvent:
    code, message, _ = failure(params.get("error"))
    return AgentError(
        thread_id=_str(params.get("threadId")),
        turn_id=_str(params.get("turnId")),
        code=code,
        message=message,
        will_retry=bool(params.get("willRetry")),
    )


_BY_METHOD: dict[str, Callable[[Params], AgentEvent | None]] = {
    "configWarning": _warning,
    "deprecationNotice": _warning,
    "error": _error,
    "guardianWarning": _warning,
    "item/completed": _item_completed,
    "item/started": _item_started,
    "mcpServer/startupStatus/updated": _server_status,
    "thread/started": _thread_started,
    "thread/tokenUsage/updated": _token_usage,
    "turn/completed": _turn_completed,
    "turn/started": _turn_started,
    "warning": _warning,
}


def _summary(item: Params) -> str:
    kind = item.get("type")
    words: Any = kind
    if kind == "commandExecution":
        words = item.get("command")
    elif kind == "fileChange":
        words = ", ".join(_str(_dict(change).get("path")) for change in _list(item.get("changes")))
    elif kind == "dynamicToolCall":
        words = item.get("tool")
    elif kind == "mcpToolCall":
        words = f"{item.get('server')}.{item.get('tool')}"
    elif kind == "reasoning":
        words = " ".join(_str(part) for part in _list(item.get("summary")))
    elif kind == "webSearch":
        words = item.get("query")
    elif kind == "plan":
        words = item.get("text")
    return _clip(words, _SUMMARY)


def _detail(item: Params) -> dict[str, Any]:
    kind = item.get("type")
    detail: dict[str, Any] = {"status": _str(item.get("status"))} if item.get("status") else {}
    if kind == "commandExecution":
        output = redact.clean(_str(item.get("aggregatedOutput")))
        # The end of an output says how it went; Codex keeps up to 1 MiB of it.
        detail |= {"exitCode": item.get("exitCode"), "output": output[-_DETAIL:]}
    elif kind == "fileChange":
        changes = [_dict(change) for change in _list(item.get("changes"))]
        detail["changes"] = [
            {"path": _clip(change.get("path"), _SUMMARY), "kind": _str(_dict(change.get("kind")).get("type"))}
            for change in changes[:100]
        ]
    elif kind == "dynamicToolCall":
        detail["success"] = bool(item.get("success"))
    elif kind == "mcpToolCall":
        detail |= {"server": _str(item.get("server")), "tool": _str(item.get("tool")), "result": _told(item)}
        if item.get("error"):
            detail["error"] = _clip(_dict(item.get("error")).get("message"), _DETAIL)
    return detail


def _told(item: Params) -> str:
    parts = [_dict(part) for part in _list(_dict(item.get("result")).get("content"))]
    return _clip("\n".join(_str(part.get("text")) for part in parts if part.get("type") == "text"), _DETAIL)


def _clip(value: Any, limit: int) -> str:
    return redact.clean(_str(value))[:limit]


def _str(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
