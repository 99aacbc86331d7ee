"""A running door: the real app on a real TCP port and a real control socket, over a real ledger."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from stationmaster.clock import ManualClock
from stationmaster.command import Cmd
from stationmaster.control import operators, rest
from stationmaster.control.commands import Site
from stationmaster.control.console.frame import Console
from stationmaster.control.dispatch import Dispatch
from stationmaster.control.registry import COMMANDS
from stationmaster.control.server import Server, bind_tcp, bind_unix
from stationmaster.ledger.ledger import Ledger
from stationmaster.ops.wiring import SLICES
from tests.gitea.rig import SETTINGS, Rig

CONTROL = next(part for part in SLICES if part.name == "control")
WEBHOOK_LIMIT = 2048


@dataclass(slots=True)
class Running:
    """One running door and what its webhook was given."""

    ledger: Ledger
    port: Dispatch
    url: str
    socket: Path
    deliveries: list[rest.Delivery] = field(default_factory=list)
    too_large: list[rest.Delivery] = field(default_factory=list)
    woken: int = 0
    stopping: bool = False
    counted: list[tuple[str, int, float]] = field(default_factory=list)
    anns: str = ""

    @property
    def address(self) -> tuple[str, int]:
        parts = httpx.URL(self.url)
        return parts.host, parts.port or 0

    def client(self, key: str = "") -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.AsyncClient(base_url=self.url, headers=headers, trust_env=False)

    def over_socket(self) -> httpx.AsyncClient:
        transport = httpx.AsyncHTTPTransport(uds=str(self.socket))
        return httpx.AsyncClient(base_url="http://stationmaster", transport=transport, trust_env=False)

    async def ann(self) -> httpx.AsyncClient:
        """Returns a client of the one operator that most tests need."""
        if not self.anns:
            self.anns = await self.key("ann")
        return self.client(self.anns)

    async def key(self, name: str = "ann", scope: str = "operate") -> str:
        made = operators.new_key()
        cmd = Cmd("operator.add", "admin:test", "test")
        await self.port.do(cmd, operators.add, name, scope, operators.key_hash(made))
        return made


@pytest.fixture
async def running(ledger_factory: Callable[..., Ledger], tmp_path: Path) -> AsyncIterator[Running]:
    ledger = ledger_factory(SLICES)
    port = Dispatch(ledger, threads=2)
    web, unix = bind_tcp("127.0.0.1", 0), bind_unix(tmp_path / "c.sock")
    host, number = web.getsockname()
    door = Running(ledger, port, f"http://{host}:{number}", tmp_path / "c.sock")
    stop = asyncio.Event()
    servers = [Server(_app(door), listener) for listener in (web, unix)]
    serving = [asyncio.create_task(server.run_until(stop)) for server in servers]
    yield door
    stop.set()
    await asyncio.gather(*serving)
    port.close()
    for listener in (web, unix):
        assert isinstance(listener, socket.socket)
        listener.close()


@pytest.fixture
def rig(running: Running, tmp_path: Path, clock: ManualClock) -> Iterator[Rig]:
    """Brings tasks about in the ledger of the running door."""
    made = Rig(running.ledger, tmp_path / "ledger.db", clock)
    yield made
    made.close()


def _app(door: Running) -> Starlette:
    async def handle(delivery: rest.Delivery) -> rest.Reply:
        door.deliveries.append(delivery)
        return rest.Reply(202, {"state": "queued"}, {})

    async def too_large(delivery: rest.Delivery) -> rest.Reply:
        door.too_large.append(delivery)
        return rest.Reply(413, {"error": "payload_too_large"}, {})

    def wake() -> None:
        door.woken += 1

    site = Site(door.port, wake, SETTINGS)
    shown = {"gitea": {"base_url": "https://gitea.example.com", "token_ref": "file:/srv/token"}}
    return rest.app(
        site,
        COMMANDS,
        rest.Webhook(handle, too_large, WEBHOOK_LIMIT),
        lambda: True,
        counted=lambda *answer: door.counted.append(answer),
        console=Console(
            replace(site, workspaces=Path("/srv/workspaces")), ready=lambda: not door.stopping, settings=lambda: shown
        ),
    )
