"""The command line's way in: the control socket of the running daemon, else the same app in this process.

Either way the caller is the home's own user and the answers are the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from stationmaster.control import errors
from stationmaster.control.commands import Command
from stationmaster.control.server import PEER, short
from stationmaster.errors import Unavailable

LocalApp = Callable[[], contextlib.AbstractAsyncContextManager[ASGIApp]]

_BASE = "http://stationmaster"
_TIMEOUT_S = 60.0


class Door:
    """Calls commands by their declaration; made by `opened`. `live` tells that a daemon works behind it."""

    def __init__(self, client: httpx.AsyncClient, runner: asyncio.Runner, *, live: bool) -> None:
        self.live = live
        self._client = client
        self._runner = runner

    def call(self, command: Command[Any, Any], given: Mapping[str, Any]) -> Any:
        """Calls a command with its wire fields; returns the answer's body or raises the error it stands for."""
        return self._runner.run(
            self._call(command, {name: value for name, value in given.items() if value is not None})
        )

    async def _call(self, command: Command[Any, Any], given: dict[str, Any]) -> Any:
        path = command.path
        for name in command.in_path:
            path = path.replace(f"{{{name}}}", quote(str(given.pop(name)), safe=""))
        try:
            if command.method == "GET":
                answer = await self._client.get(path, params=given)
            else:
                within = None if command.slow else _TIMEOUT_S
                answer = await self._client.post(path, json=given, timeout=within)
        except httpx.HTTPError as error:
            raise Unavailable(
                f"The daemon did not answer: {error or type(error).__name__}.",
                code="daemon_unreachable",
                hint="Look at its log, or start it with `stationmaster up`.",
            ) from None
        said = answer.json()
        if answer.is_success:
            return said
        raise errors.from_body(answer.status_code, said)


@contextlib.contextmanager
def opened(path: Path, local: LocalApp) -> Iterator[Door]:
    """Opens a door: the daemon at the socket `path` when one listens there, else the app that `local` makes."""
    with contextlib.ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        live = listens(path)
        if live:
            name = stack.enter_context(short(path))
            transport: httpx.AsyncBaseTransport = httpx.AsyncHTTPTransport(
                uds=name,
                verify=False,  # no TLS on a UNIX socket; reading the authorities takes longer than the call
            )
        else:
            entered = _Entered(runner, local())
            transport = httpx.ASGITransport(_as_owner(stack.enter_context(entered)), raise_app_exceptions=True)
        client = httpx.AsyncClient(transport=transport, base_url=_BASE, timeout=_TIMEOUT_S, trust_env=False)
        stack.callback(lambda: runner.run(client.aclose()))
        yield Door(client, runner, live=live)


def listens(path: Path) -> bool:
    """Tells whether a daemon accepts connections at `path`; a leftover of a killed one does not."""
    try:
        with short(path) as name, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.connect(name)
    except OSError:
        return False
    return True


class _Entered:
    """An async context manager entered and left on the runner's loop, so that synchronous code can hold it."""

    def __init__(self, runner: asyncio.Runner, inner: contextlib.AbstractAsyncContextManager[ASGIApp]) -> None:
        self._runner = runner
        self._inner = inner

    def __enter__(self) -> ASGIApp:
        return self._runner.run(_enter(self._inner))

    def __exit__(self, *_: object) -> None:
        self._runner.run(_leave(self._inner))


async def _enter(inner: contextlib.AbstractAsyncContextManager[ASGIApp]) -> ASGIApp:
    return await inner.__aenter__()


async def _leave(inner: contextlib.AbstractAsyncContextManager[ASGIApp]) -> None:
    await inner.__aexit__(None, None, None)


def _as_owner(app: ASGIApp) -> ASGIApp:
    async def marked(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, PEER: os.geteuid()}, receive, send)

    return marked
