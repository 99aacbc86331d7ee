"""The edge of the HTTP door: every request gets an id that its log lines and its answer carry, and is counted.

A caller may bring an id in `X-Request-Id`; one that is no plain short word is replaced, never repeated.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stationmaster import ids

Counted = Callable[[str, int, float], None]

WEBHOOK = "/api/gitea/webhook"
_HEALTH = frozenset({"/healthz", "/readyz"})
_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_HEADER = b"x-request-id"
# What is counted for a caller that left before there was an answer.
_GONE = 499
_BROKEN = 500


def door_of(path: str) -> str:
    """Returns which of the few doors an address belongs to; never the address itself, which a stranger chooses."""
    if path == WEBHOOK or path.startswith(f"{WEBHOOK}/"):
        return "webhook"
    if path in _HEALTH:
        return "health"
    if path == "/metrics":
        return "metrics"
    return "api" if path.startswith("/api/") else "console"


class Edge:
    """The outermost middleware."""

    def __init__(self, app: ASGIApp, counted: Counted) -> None:
        self._app = app
        self._counted = counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on under its id and counts its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = _id_of(scope)
        began = time.monotonic()
        status, answered = _GONE, None

        async def told(message: Message) -> None:
            nonlocal status, answered
            if message["type"] == "http.response.start":
                # A stream of events lasts as long as somebody looks on: what is timed is the wait for its beginning.
                status, answered = message["status"], time.monotonic()
                message = {**message, "headers": [*message.get("headers", ()), (_HEADER, name)]}
            await send(message)

        try:
            with structlog.contextvars.bound_contextvars(request=name.decode()):
                await self._app(scope, receive, told)
        except Exception:
            # Whatever stands around the app words this for the caller.
            status = _BROKEN if status == _GONE else status
            raise
        finally:
            self._counted(door_of(scope["path"]), status, (answered or time.monotonic()) - began)


def _id_of(scope: Scope) -> bytes:
    headers: Any = scope.get("headers", ())
    given = next((value for header, value in headers if header == _HEADER), b"")
    return given if _ID.fullmatch(given) else ids.new("req").encode()
