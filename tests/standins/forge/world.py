"""A small world on a forge, a receiver of webhooks, and git for a person: what the tests of the forge share."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from stationmaster.standins.forge import Forge, ForgeAdmin
from tests.support import eventually

REPO = "acme/widgets"


@dataclass
class Hit:
    """One request that a receiver got."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """A web server that keeps what it gets; `answer` and `wait` say how it treats the sender."""

    def __init__(self) -> None:
        self.hits: list[Hit] = []
        self.answer: tuple[int, dict[str, str], bytes] = (202, {}, b"ok")
        self.release = threading.Event()
        self.release.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                receiver.hits.append(Hit(self.command, self.path, dict(self.headers.items()), body))
                receiver.release.wait(30)
                status, headers, text = receiver.answer
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            do_POST = do_GET = handle_any  # noqa: N815 - the names are the base class's

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - likewise
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: object, client_address: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def wait_for(self, count: int) -> list[Hit]:
        """Waits for that many requests."""
        eventually(lambda: len(self.hits) >= count)
        return self.hits


@dataclass
class World:
    """A forge with alice (owner), bob (reader), carol (writer), the bot (writer) and one repository."""

    forge: Forge
    admin: ForgeAdmin
    tokens: dict[str, str]
    folder: Path
    clients: list[httpx.Client] = field(default_factory=list)

    @classmethod
    def make(cls, forge: Forge, admin: ForgeAdmin, folder: Path) -> World:
        admin.org("acme")
        for login in ("alice", "bob", "carol"):
            admin.user(login, full_name=login.title(), password=f"{login}-secret")
        admin.bot("codebot")
        admin.call("member", org="acme", login="alice", permission="owner")
        admin.repo(
            "acme", "widgets", {"README.md": "# Widgets\n", "src/app.py": "print('a')\nprint('b')\n"},
            private=True, collaborators={"bob": "read", "carol": "write", "codebot": "write"},
        )  # fmt: skip
        tokens = {login: admin.token(login) for login in ("alice", "bob", "carol", "codebot")}
        return cls(forge, admin, tokens, folder)

    def api(self, login: str = "codebot", **headers: str) -> httpx.Client:
        """Returns a client of the REST API as somebody; "" is nobody."""
        if login:
            headers = {"Authorization": f"token {self.tokens[login]}", **headers}
        url = f"{self.forge.url}/api/v1"
        client = httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=30)
        self.clients.append(client)
        return client

    def settled(self) -> list[dict[str, Any]]:
        """Waits until no delivery is on its way and returns all of them."""
        eventually(lambda: self.admin.on_their_way() == 0)
        return self.admin.deliveries()

    def git(self, *args: str, cwd: Path | None = None, header: str = "") -> subprocess.CompletedProcess[str]:
        """Runs git as a person, optionally with an Authorization header."""
        env = {
            "PATH": os.environ["PATH"], "HOME": str(self.folder), "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8",
            "GIT_AUTHOR_NAME": "P", "GIT_AUTHOR_EMAIL": "p@example.org",
            "GIT_COMMITTER_NAME": "P", "GIT_COMMITTER_EMAIL": "p@example.org",
        }  # fmt: skip
        extra = ["-c", f"http.extraHeader=Authorization: {header}"] if header else []
        return subprocess.run(
            ["git", *extra, *args], cwd=cwd or self.folder, env=env, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip

    def clone_url(self, user: str = "", secret: str = "", repo: str = REPO) -> str:
        """Returns the address of a repository with credentials in it."""
        login = f"{user}:{secret}@" if user else ""
        return self.forge.url.replace("http://", f"http://{login}") + f"/{repo}.git"

    def clone(self, login: str = "codebot", name: str = "clone") -> Path:
        """Clones the repository as somebody."""
        done = self.git("clone", "-q", self.clone_url(login, self.tokens[login]), name)
        assert done.returncode == 0, done.stderr
        return self.folder / name

    def change(self, tree: Path, path: str, text: str) -> str:
        """Commits one file in a clone and returns the sha."""
        (tree / path).write_text(text)
        self.git("add", "-A", cwd=tree)
        self.git("commit", "-qm", f"Change {path}", cwd=tree)
        return self.git("rev-parse", "HEAD", cwd=tree).stdout.strip()
