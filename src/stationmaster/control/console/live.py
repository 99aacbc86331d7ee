"""Tells open pages that something changed, by server-sent events; what changed they fetch as they fetched the page.

A stream costs one short read a second. It ends when the product stops, its login is over, or after a while, when the
browser opens the next one; one login has a few at a time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from stationmaster.control.console import reads, sessions
from stationmaster.control.console.frame import Frame
from stationmaster.control.console.sessions import Session
from stationmaster.errors import Busy, Denied, StationmasterError

_EVERY_S = 1.0
_LOOK_AT_LOGIN = 15
_MOST_TICKS = 600
_MOST_STREAMS = 8


class Live:
    """The open streams of one process."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    async def stream(self, frame: Frame) -> Response:
        """Opens a stream for a page; raises Busy when its login has too many."""
        session = frame.session
        if session is None:
            raise Denied("Log in first.", code="unauthenticated")
        if self._open[session.id] >= _MOST_STREAMS:
            raise Busy("This login has too many pages open.", code="busy", hint="Close some.", retry_after=60)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._told(frame, session), media_type="text/event-stream", headers=headers)

    async def _told(self, frame: Frame, session: Session) -> AsyncIterator[str]:
        query = frame.request.query_params
        watched = query.get("watch", "")[:100]
        before = frame.request.headers.get("last-event-id") or query.get("since", "")
        self._open[session.id] += 1
        try:
            yield "retry: 2000\n\n"
            for tick in range(_MOST_TICKS):
                if not frame.console.ready() or (tick % _LOOK_AT_LOGIN == 0 and not await self._stands(frame)):
                    return
                now = await self._pulse(frame, watched)
                if now and now != before:
                    before = now
                    yield f"id: {now}\nevent: changed\ndata: {now}\n\n"
                elif tick % _LOOK_AT_LOGIN == 0:
                    # A proxy closes what is silent, and a reader that has gone is noticed by a write.
                    yield ": here\n\n"
                await asyncio.sleep(_EVERY_S)
        finally:
            self._open[session.id] -= 1
            if self._open[session.id] <= 0:
                del self._open[session.id]

    async def _pulse(self, frame: Frame, watched: str) -> str:
        try:
            return await frame.console.site.port.read(reads.pulse, watched)
        except StationmasterError:
            return ""

    async def _stands(self, frame: Frame) -> bool:
        cookie = frame.request.cookies.get("sm_session", "")
        try:
            return await sessions.find(frame.console.site.port, cookie, frame.console.lasting) is not None
        except StationmasterError:
            return True
