"""The HTTP side: the model's endpoint, the list of what it was asked, and the switches a test turns."""

from __future__ import annotations

import gzip
import json
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stationmaster.standins.responses_model import asked as asking
from stationmaster.standins.responses_model.asked import Asked, Json
from stationmaster.standins.responses_model.scenario import Scenario, ScenarioError, Source
from stationmaster.standins.responses_model.stream import Cut, Response

_LOOK = 0.05  # how often a waiting answer looks whether its client is still there
_LINGER_OFF = struct.pack("ii", 1, 0)  # closing sends RST instead of FIN


class ResponsesModel:
    """The scripted model as a server on loopback; a context manager, or start() and stop()."""

    def __init__(self, scenario: Source | None = None, port: int = 0) -> None:
        self.scenario = Scenario(scenario)
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._asked: list[Asked] = []
        self._strays: list[str] = []
        self._gates: dict[str, threading.Event] = {}
        self._busy = 0
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.model = self
        self.port = int(self._server.server_address[1])
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        self._thread: threading.Thread | None = None

    def start(self) -> Self:
        """Serves on a thread of its own."""
        self._thread = threading.Thread(target=self.serve, name="responses-model", daemon=True)
        self._thread.start()
        return self

    def serve(self) -> None:
        """Serves on this thread until `stop`."""
        self._server.serve_forever(poll_interval=_LOOK)

    def stop(self) -> None:
        """Ends every waiting answer and closes the port."""
        self.stopping.set()
        self.release()
        self._server.shutdown()
        self._server.server_close()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def requests(self) -> list[Json]:
        """Everything the model was asked so far, oldest first."""
        with self._lock:
            return [asked.as_json() for asked in self._asked]

    @property
    def strays(self) -> list[str]:
        """Method and path of every call that was not for the model: a quiet agent makes none."""
        with self._lock:
            return list(self._strays)

    @property
    def busy(self) -> int:
        """How many answers are being given at this moment."""
        with self._lock:
            return self._busy

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Counts one answer while it is given."""
        with self._lock:
            self._busy += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1

    def use(self, scenario: Source) -> None:
        """Replaces the scenario; its counters start anew."""
        self.scenario = Scenario(scenario)

    def reset(self) -> None:
        """Forgets requests, counters and released gates."""
        self.scenario.reset()
        with self._lock:
            self._asked.clear()
            self._strays.clear()
            self._gates.clear()

    def release(self, name: str | None = None) -> None:
        """Lets the answers that hold at the gate `name` go on, or all of them; a released gate stays open."""
        if name is not None:
            self.gate(name).set()
            return
        with self._lock:
            gates = list(self._gates.values())
        for gate in gates:
            gate.set()

    def gate(self, name: str) -> threading.Event:
        """Returns the gate an answer holds at."""
        with self._lock:
            return self._gates.setdefault(name, threading.Event())

    def note(self, path: str, headers: dict[str, str], body: Json) -> Asked:
        """Records one request for the model."""
        with self._lock:
            asked = asking.read(len(self._asked), path, headers, body)
            self._asked.append(asked)
        return asked

    def stray(self, what: str) -> None:
        """Records a call that was not for the model."""
        with self._lock:
            self._strays.append(what)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    model: ResponsesModel

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stays quiet about clients that left; anything else is a fault of the stand-in and is shown."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Keeps the output for the one line that says where the model listens."""

    def do_GET(self) -> None:
        """Lists models and recorded requests; refuses a websocket so that the agent falls back to HTTP."""
        path, model = self.path.partition("?")[0], self.server.model
        if path == "/__requests":
            return self._json(200, model.requests)
        if path == "/__strays":
            return self._json(200, model.strays)
        if path.endswith("/models"):
            listed = [{"id": name, "object": "model", "owned_by": "scripted"} for name in model.scenario.models]
            return self._json(200, {"object": "list", "data": listed, "models": []})
        if self.headers.get("upgrade", "").lower() == "websocket":
            return self._json(426, _error("websockets are not spoken here"))
        model.stray(f"GET {self.path}")
        return self._json(404, _error(f"no route {self.path}"))

    def do_POST(self) -> None:
        """Answers as the model, or turns a switch."""
        path, model, raw = self.path.partition("?")[0], self.server.model, self._body()
        try:
            body = json.loads(raw or b"{}")
            if path == "/__scenario":
                model.use(body)
            elif path == "/__reset":
                model.reset()
            elif path == "/__release":
                model.release(body.get("name"))
            elif path.endswith("/responses"):
                asked = model.note(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                with model.answering():
                    return self._answer(asked)
            else:
                model.stray(f"POST {self.path}")
                return self._json(404, _error(f"no route {self.path}"))
        except ScenarioError as error:
            return self._json(400, _error(str(error)))
        except ValueError:
            return self._json(400, _error("the body is not JSON"))
        return self._json(200, {"ok": True})

    def _answer(self, asked: Asked) -> None:
        actions = self.server.model.scenario.actions(asked)
        try:
            first = self._wait_for_refusal(actions)
            if first is not None:
                return self._refuse(first)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("cache-control", "no-cache")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            numbers = iter(range(1 << 30))
            Response(
                asked,
                emit=lambda event: self._event({**event, "sequence_number": next(numbers)}),
                pause=self._pause,
                hold=self._hold,
            ).play(actions)
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        except Cut as cut:
            self._drop(cut.how)
        except ConnectionError:
            self.close_connection = True

    def _wait_for_refusal(self, actions: list[Json]) -> Json | None:
        """Plays the waiting before an HTTP error or refusal and returns that action; None when a stream is due."""
        refusal = next((a for a in actions if "http" in a or a.get("cut") == "refuse"), None)
        if refusal is None:
            return None
        for action in actions[: actions.index(refusal)]:
            if "delay" in action:
                self._pause(float(action["delay"]))
            else:
                self._hold(action["hold"], float(action.get("timeout", 600)))
        return refusal

    def _refuse(self, action: Json) -> None:
        if "cut" in action:
            return self._drop("close")
        status = int(action["http"])
        return self._json(status, action.get("body", _error(f"scripted HTTP {status}")), action.get("headers"))

    def _event(self, event: Json) -> None:
        data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.server.model.stopping.wait(min(left, _LOOK))
            self._look()

    def _hold(self, name: str, timeout: float) -> None:
        gate, end = self.server.model.gate(name), time.monotonic() + timeout
        while not gate.wait(_LOOK) and time.monotonic() < end:
            self._look()

    def _look(self) -> None:
        """Raises ConnectionError when the client has gone or the model stops: nobody waits for this answer."""
        if self.server.model.stopping.is_set():
            raise ConnectionAbortedError
        readable, _, _ = select.select([self.connection], [], [], 0)
        if readable and not self.connection.recv(1, socket.MSG_PEEK):
            raise ConnectionResetError

    def _drop(self, how: str) -> None:
        self.close_connection = True
        try:
            if how == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OFF)
                self.connection.close()
            else:
                self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            data = b""
            while size := int(self.rfile.readline().partition(b";")[0].strip() or b"0", 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
        return gzip.decompress(data) if self.headers.get("content-encoding") == "gzip" else data

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, str(text))
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _error(message: str) -> Json:
    return {"error": {"message": message, "type": "scripted_error", "code": None}}


def main(port: int, scenario: Path | None = None) -> None:
    """Serves until SIGTERM or SIGINT; prints one JSON line once it listens."""
    done = threading.Event()
    # Said outright, for a shell starts what it puts in the background with SIGINT ignored.
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: done.set())
    with ResponsesModel(scenario, port) as model:
        line = {"event": "listening", "port": model.port, "base_url": model.base_url}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        done.wait()
