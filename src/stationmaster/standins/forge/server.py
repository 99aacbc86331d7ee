"""The forge as a running server: sockets, faults on the wire, and the order in which paths are tried."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections import deque
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stationmaster.standins.forge import access, rest, rest_hooks, rest_issues, rest_pulls, rest_repos
from stationmaster.standins.forge.admin import PREFIX, Admin, verbs_of
from stationmaster.standins.forge.admin_acts import Acts
from stationmaster.standins.forge.bare import GitRefused
from stationmaster.standins.forge.deeds import Deeds
from stationmaster.standins.forge.events import Events
from stationmaster.standins.forge.faults import Action, BadFault, Faults, damaged
from stationmaster.standins.forge.git_http import GitHttp
from stationmaster.standins.forge.hooks import Hooks
from stationmaster.standins.forge.pages import Pages
from stationmaster.standins.forge.pull_views import PullViews
from stationmaster.standins.forge.store import Store
from stationmaster.standins.forge.views import Views
from stationmaster.standins.forge.wire import ApiError, Request, Response, as_json, plain

ROUTES = [*rest_issues.routes.table, *rest_repos.routes.table, *rest_hooks.routes.table, *rest_pulls.routes.table]
LOG_LENGTH = 20_000


class Dropped(Exception):
    """The connection ends here; `head` bytes of the answer leave first."""

    def __init__(self, response: Response | None = None) -> None:
        super().__init__("connection dropped")
        self.response = response


class Forge:
    """A forge on one folder; as a context manager it serves until the block ends."""

    def __init__(self, folder: Path, port: int = 0, faults: Path | None = None) -> None:
        self.store = Store(folder)
        self.faults = Faults(self.store)
        try:
            if faults:
                self.faults.load(faults)
            self._server = _Server(("127.0.0.1", port), self)
        except BaseException:
            self.store.close()
            raise
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.views = Views(self.store, self.url)
        self.hooks = Hooks(self.store, self.faults)
        events = Events(self.store, self.views, self.hooks)
        self.deeds = Deeds(self.store, self.views, events, self.hooks)
        self.api = rest.Api(self.store, self.views, PullViews(self.views), self.deeds, self.faults)
        self.pages = Pages(self.api)
        self.git = GitHttp(self.store, self.views, self.deeds)
        self.log: deque[dict[str, Any]] = deque(maxlen=LOG_LENGTH)
        admin = Admin(self.api, self.log)
        self.verbs = verbs_of(admin, Acts(admin))
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="forge", daemon=True)

    def start(self) -> Self:
        """Begins to serve and to send webhooks."""
        self.hooks.start()
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends every connection and closes the state."""
        self.stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.hooks.stop()
        self._server.end_connections()
        self.store.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def answer(self, request: Request) -> Response:
        """Answers a request, or raises Dropped when a fault says so."""
        if request.path.startswith(PREFIX):
            return self._admin(request)
        login = self._login(request)
        fault = self.faults.on_request(request, login)
        entry = {"at": time.time(), "method": request.method, "path": request.target, "login": login, "status": 0}
        self.log.append({**entry, "fault": fault[0] if fault else ""})
        entry = self.log[-1]
        response = self._with_fault(request, fault[1]) if fault else self._serve(request)
        entry["status"] = response.status
        return response

    def _serve(self, request: Request) -> Response:
        if request.path.startswith(rest.PREFIX + "/"):
            return rest.answer(self.api, ROUTES, request)
        return self.git.handle(request) or self.pages.handle(request) or plain(404, "404 page not found\n")

    def _with_fault(self, request: Request, action: Action) -> Response:
        kind, seconds = action["kind"], float(action.get("seconds", 0))
        if action.get("when", "before") == "before":
            self.stopping.wait(seconds)
        if kind == "drop_before":
            raise Dropped
        if kind == "redirect" or (kind == "answer" and not action.get("effect")):
            return damaged(Response(200), action)
        response = self._serve(request)
        if action.get("when") == "after":
            self.stopping.wait(seconds)
        if kind == "drop_after":
            raise Dropped
        if kind == "drop_midway":
            raise Dropped(response)
        return damaged(response, action)

    def _login(self, request: Request) -> str:
        try:
            caller = access.identify(self.store, request)
        except ApiError:
            return ""
        return str(caller.account["login"]) if caller.account else ""

    def _admin(self, request: Request) -> Response:
        verb = self.verbs.get(request.path.removeprefix(PREFIX))
        # A web page in somebody's browser also comes from this machine, but it says where it is from.
        if verb is None or not request.peer.startswith("127.") or "origin" in request.headers:
            return as_json(404, {"error": f"no verb {request.path.removeprefix(PREFIX)!r}"})
        try:
            return as_json(200, verb(**(json.loads(request.body) if request.body else {})))
        except ApiError as error:
            return as_json(error.status, {"error": error.message})
        except (TypeError, ValueError, LookupError, BadFault, GitRefused, sqlite3.Error) as error:
            return as_json(422, {"error": f"{type(error).__name__}: {error}"})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], forge: Forge) -> None:
        self.forge = forge
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def track(self, connection: socket.socket, *, is_open: bool) -> None:
        """Remembers a connection, so that stopping can end it."""
        with self._lock:
            (self._open.add if is_open else self._open.discard)(connection)

    def end_connections(self) -> None:
        """Ends every connection and waits a moment until their threads have let go."""
        end = time.monotonic() + 5
        while time.monotonic() < end:
            with self._lock:
                left = list(self._open)
            if not left:
                return
            for connection in left:
                _hang_up(connection)
            time.sleep(0.01)

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing about clients that went away; everything else goes to standard error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.track(self.connection, is_open=True)

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            self.server.track(self.connection, is_open=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Keeps standard error quiet; the request log is an admin verb."""

    def _handle(self) -> None:
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        forge = self.server.forge
        request = Request(self.command, path, query, headers, self._body(), forge.url, self.client_address[0])
        try:
            response = forge.answer(request)
        except Dropped as dropped:
            self._drop(dropped.response)
            return
        except Exception as error:  # noqa: BLE001 - a fault of the stand-in must show as such, not as a hang
            response = plain(500, f"stand-in: {type(error).__name__}: {error}\n")
        self.wfile.write(self._head(response) + (b"" if self.command == "HEAD" else response.body))

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = do_HEAD = _handle  # noqa: N815 - likewise

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _head(self, response: Response) -> bytes:
        lines = [f"HTTP/1.1 {response.status} {self.responses.get(response.status, ('',))[0]}"]
        lines += [f"{name}: {value}" for name, value in response.headers]
        if response.status != HTTPStatus.NO_CONTENT:
            lines.append(f"Content-Length: {len(response.body)}")
        lines += [f"Date: {self.date_time_string()}", "", ""]
        return "\r\n".join(lines).encode()

    def _drop(self, response: Response | None) -> None:
        self.close_connection = True
        if response is not None:
            whole = self._head(response) + response.body
            self.wfile.write(whole[: len(whole) - max(len(response.body) // 2, 1)])
        _hang_up(self.connection)


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def main(port: int, folder: Path, faults: Path | None = None) -> None:
    """Serves until SIGTERM or SIGINT; the first line on standard output says where."""
    done = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: done.set())
    with Forge(folder, port, faults) as forge:
        where = {"event": "listening", "url": forge.url, "admin": forge.url + PREFIX}
        print(json.dumps(where), flush=True)  # noqa: T201 - whoever started it reads where it listens
        done.wait()
