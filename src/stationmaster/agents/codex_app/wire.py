"""The JSON-RPC client of the Codex app-server: newline-delimited JSON over pipes, without the version field.

It owns ids, deadlines and the one reader task. It interprets no method, and never leaves a request without an end: an
answer, a deadline, or the death of the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from stationmaster.errors import Unavailable

OVERLOADED = -32001
METHOD_NOT_FOUND = -32601
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


class Rejected(Unavailable):
    """The app-server answered with an error; `number` and `words` are its own."""

    def __init__(self, method: str, number: int, words: str) -> None:
        super().__init__(f"Codex refused {method}: {words[:300]}", code="app_server_rejected")
        self.number = number
        self.words = words


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A request that the app-server sent to us; it must be answered."""

    id: int | str
    method: str
    params: dict[str, Any]


class Wire:
    """One conversation with one app-server process.

    `on_notification` and `on_request` are called on the reader task, in the order of receipt, and must not block.
    `on_closed` is called once, when the stream has ended.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        on_notification: Callable[[str, dict[str, Any]], None],
        on_request: Callable[[ServerRequest], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_notification = on_notification
        self._on_request = on_request
        self._on_closed = on_closed
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last_id = 0
        self._dead = ""
        self._sending = asyncio.Lock()
        self._task = asyncio.create_task(self._read())

    async def request(self, method: str, params: dict[str, Any], *, timeout_s: float) -> Any:
        """Sends a request and returns its result.

        An overloaded app-server is asked again, with growing pauses, within the same deadline (GW-R-153). Raises
        Rejected for any other error answer, Unavailable `app_server_timeout` or `app_server_unreachable`.
        """
        pause = _FIRST_PAUSE_S
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        return await self._ask(method, params)
                    except Rejected as refusal:
                        if refusal.number != OVERLOADED:
                            raise
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, hides nothing
                    pause = min(pause * 2, _LONGEST_PAUSE_S)
        except TimeoutError:
            raise Unavailable(
                f"Codex did not answer {method} within {timeout_s:g} s.", code="app_server_timeout"
            ) from None

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Sends a notification."""
        await self._send({"method": method} if params is None else {"method": method, "params": params})

    async def answer(self, request: ServerRequest, result: dict[str, Any]) -> None:
        """Answers a server request with a result."""
        await self._send({"id": request.id, "result": result})

    async def refuse(self, request: ServerRequest, words: str, *, number: int = METHOD_NOT_FOUND) -> None:
        """Answers a server request with an error."""
        await self._send({"id": request.id, "error": {"code": number, "message": words}})

    async def close(self) -> None:
        """Stops reading; every open request ends as unreachable."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        self._last_id += 1
        number = self._last_id
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        try:
            await self._send({"id": number, "method": method, "params": params})
            answer = await future
        finally:
            self._pending.pop(number, None)
        if (error := answer.get("error")) is not None:
            raise _rejected(method, error)
        return answer.get("result")

    async def _send(self, message: dict[str, Any]) -> None:
        if self._dead:
            raise _unreachable(self._dead)
        try:
            async with self._sending:
                self._writer.write(msgspec.json.encode(message) + b"\n")
                await self._writer.drain()
        except (OSError, RuntimeError):
            raise _unreachable("its input is closed") from None

    async def _read(self) -> None:
        try:
            # A line over the limit raises ValueError: the stream is no longer in step and cannot be used.
            while line := await self._reader.readline():
                self._take(line)
            self._dead = "its output ended"
        except (OSError, ValueError) as error:
            self._dead = f"its output broke ({type(error).__name__})"
        finally:
            self._dead = self._dead or "it was closed"
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(_unreachable(self._dead))
                    # Whoever asked may be gone by now; that is no reason to complain on the error stream.
                    future.exception()
            with contextlib.suppress(OSError, RuntimeError):
                self._writer.close()
            self._on_closed()

    def _take(self, line: bytes) -> None:
        try:
            message = msgspec.json.decode(line)
        except msgspec.DecodeError:
            return
        if not isinstance(message, dict):
            return
        method, number = message.get("method"), message.get("id")
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if isinstance(method, str) and isinstance(number, int | str):
            self._on_request(ServerRequest(number, method, params))
        elif isinstance(method, str):
            self._on_notification(method, params)
        elif isinstance(number, int) and (future := self._pending.get(number)) and not future.done():
            future.set_result(message)


def _rejected(method: str, error: Any) -> Rejected:
    if not isinstance(error, dict):
        return Rejected(method, 0, "an error without a form")
    number = error.get("code")
    return Rejected(method, number if isinstance(number, int) else 0, str(error.get("message", "")))


def _unreachable(why: str) -> Unavailable:
    return Unavailable(f"The Codex app-server is gone: {why}.", code="app_server_unreachable")
