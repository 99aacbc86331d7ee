"""Listens: one uvicorn server for TCP, one for the control socket, both inside the daemon's event loop.

Sockets are bound before anything starts, so that a taken port is one sentence. The control socket tells the app who
its peer is; a TCP request can never carry that mark, for it is set here and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Generator, Iterator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from stationmaster.errors import Invalid

PEER = "stationmaster.peer_uid"
_BACKLOG = 512
_GRACE_S = 5


class PeerProtocol(HttpToolsProtocol):
    """HTTP that puts the user id of a UNIX socket's peer into the scope."""

    def on_message_begin(self) -> None:
        """Adds the mark to the scope of each request."""
        super().on_message_begin()
        uid = _peer_uid(self.transport)
        if uid is not None:
            self.scope[PEER] = uid  # type: ignore[literal-required]  # the ASGI scope is open to additions


class Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the daemon."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=PeerProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        self.listener = listener

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leaves every signal handler as it is."""
        yield

    async def run_until(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set, then lets open requests finish for a few seconds."""
        serving = asyncio.create_task(self.serve(sockets=[self.listener]))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        self.should_exit = True
        stopping.cancel()
        await serving


def bind_tcp(host: str, port: int) -> socket.socket:
    """Binds the web server's address; raises Invalid when it is taken or not ours."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        raise Invalid(
            f"The address {host} port {port} cannot be used: {error.strerror}.",
            code="address_in_use",
            hint="Set web.host and web.port in the configuration.",
        ) from None
    return listener


def bind_unix(path: Path) -> socket.socket:
    """Binds the control socket, for its owner only; the caller holds the home's lock, so a leftover is nobody's."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        with short(path) as name:
            listener.bind(name)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


@contextlib.contextmanager
def short(path: Path) -> Iterator[str]:
    """Gives a name of `path` that fits a UNIX socket's 107 bytes, however deep the home folder is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _peer_uid(transport: asyncio.Transport) -> int | None:
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    size = struct.calcsize("3i")
    _pid, uid, _gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(uid)
