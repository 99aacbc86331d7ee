"""A small git server over HTTP: real `git http-backend`, basic authentication, and the faults a test asks for."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

TOKEN = "tok-5f0c2a91d4e7"
USER = "stationbot"


class HttpRemote:
    """Serves the bare repositories of a folder. Set the attributes to make it misbehave.

    `status` maps an ending of the path to a status to answer with; `drop_before` and `drop_after` close the connection
    before and after `git-receive-pack` ran; `redirect_to` answers 301.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.status: dict[str, int] = {}
        self.drop_before = False
        self.drop_after = False
        self.hang = threading.Event()
        self.hang.set()
        self.arrived = threading.Event()
        self.redirect_to: str | None = None
        self.authorizations: list[str | None] = []
        self.command_lines: list[str] = []
        remote = self

        class Handler(_Handler):
            owner = remote

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.hang.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    owner: HttpRemote
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        pass

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b"".join(iter(self._chunk, b""))
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self._answer(body)

    def _chunk(self) -> bytes:
        size = int(self.rfile.readline(), 16)
        data = self.rfile.read(size)
        self.rfile.readline()
        return data

    def _answer(self, body: bytes) -> None:
        remote = self.owner
        remote.authorizations.append(self.headers.get("Authorization"))
        remote.command_lines += _command_lines()
        remote.arrived.set()
        remote.hang.wait(30)
        path, _, query = self.path.partition("?")
        receiving = "git-receive-pack" in self.path
        if remote.redirect_to is not None:
            self._plain(301, Location=remote.redirect_to + self.path.lstrip("/"))
            return
        forced = next((code for end, code in remote.status.items() if self.path.endswith(end)), None)
        if forced is not None:
            self._plain(forced)
            return
        expected = "Basic " + base64.b64encode(f"{USER}:{TOKEN}".encode()).decode()
        if self.headers.get("Authorization") != expected:
            self._plain(401, **{"WWW-Authenticate": 'Basic realm="forge"'})
            return
        if receiving and self.command == "POST" and remote.drop_before:
            self._drop()
            return
        done = self._backend(path, query, body)
        if receiving and self.command == "POST" and remote.drop_after:
            self._drop()
            return
        head, _, content = done.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _backend(self, path: str, query: str, body: bytes) -> bytes:
        env = {
            "PATH": os.defpath,
            "GIT_PROJECT_ROOT": str(self.owner.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_USER": USER,
            "REMOTE_ADDR": "127.0.0.1",
        }
        return subprocess.run(
            ["git", "http-backend"], input=body, env=env, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ).stdout

    def _plain(self, code: int, **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(2)


def _command_lines() -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
    return found
