"""A real Chromium, and a product whose door runs in a thread beside it over a ledger that tests fill.

The tests of this folder run in a thread of their own: Playwright keeps an event loop running wherever it is used, and
the other tests of the same process need theirs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, sync_playwright

from stationmaster.clock import ManualClock, SystemClock
from stationmaster.command import Cmd
from stationmaster.control import operators, rest
from stationmaster.control.commands import Site
from stationmaster.control.console.frame import Console
from stationmaster.control.dispatch import Dispatch
from stationmaster.control.registry import COMMANDS
from stationmaster.control.server import Server, bind_tcp
from stationmaster.ledger.ledger import Ledger
from stationmaster.ops.wiring import SLICES
from tests.gitea.rig import SETTINGS, Rig

CHROMIUM = "/usr/bin/chromium"


@dataclass
class Place:
    """One product with its console, and the browsers that look at it."""

    url: str
    rig: Rig
    browser: Browser
    settings: dict[str, Any]
    troubles: list[str] = field(default_factory=list)
    _contexts: list[BrowserContext] = field(default_factory=list)

    def key(self, name: str = "ann", scope: str = "operate") -> str:
        """Makes an operator key."""
        made = operators.new_key()
        cmd = Cmd("operator.add", "admin:test", "test")
        self.rig.ledger.do(cmd, operators.add, name, scope, operators.key_hash(made))
        return made

    def page(self, **context: Any) -> Page:
        """Opens a page that nobody has logged in with; whatever the browser complains about is kept."""
        made = self.browser.new_context(base_url=self.url, **context)
        made.set_default_timeout(10_000)
        self._contexts.append(made)
        page = made.new_page()
        page.on("console", lambda message: self.troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("dialog", self._dialog)
        return page

    def _dialog(self, dialog: Dialog) -> None:
        self.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def logged_in(self, name: str = "ann", scope: str = "operate", path: str = "/console/", **context: Any) -> Page:
        """Opens a page as an operator who has logged in."""
        page = self.page(**context)
        page.goto(path)
        page.fill("#key", self.key(name, scope))
        page.click("#log-in")
        page.wait_for_url(f"**{path}")
        return page

    def close(self) -> None:
        """Closes every page."""
        for each in self._contexts:
            each.close()


_thread = ThreadPoolExecutor(1, thread_name_prefix="browser")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Runs a test in the thread of the browser."""
    names = pyfuncitem._fixtureinfo.argnames
    _thread.submit(pyfuncitem.obj, **{name: pyfuncitem.funcargs[name] for name in names}).result()
    return True


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    made = _thread.submit(lambda: sync_playwright().start()).result()
    options: dict[str, Any] = {"executable_path": CHROMIUM, "args": ["--no-sandbox", "--disable-dev-shm-usage"]}
    browser = _thread.submit(lambda: made.chromium.launch(**options)).result()
    yield browser
    _thread.submit(browser.close).result()
    _thread.submit(made.stop).result()


class _Door(threading.Thread):
    """Serves the app in an event loop of its own until it is closed."""

    def __init__(self, port: Dispatch, settings: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.listener = bind_tcp("127.0.0.1", 0)
        site = Site(port, lambda: None, SETTINGS, Path("/srv/workspaces"))
        self._over = threading.Event()
        console = Console(site, ready=lambda: not self._over.is_set(), settings=lambda: settings)
        self._app = rest.app(site, COMMANDS, None, lambda: True, console=console)

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        stop = asyncio.Event()
        serving = asyncio.create_task(Server(self._app, self.listener).run_until(stop))
        await asyncio.to_thread(self._over.wait)
        stop.set()
        await serving

    def close(self) -> None:
        self._over.set()
        self.join(20)
        self.listener.close()


@pytest.fixture
def place(chromium: Browser, tmp_path: Path) -> Iterator[Place]:
    ledger = Ledger.open(tmp_path / "ledger.db", SLICES, clock=SystemClock())
    port = Dispatch(ledger, threads=2)
    settings: dict[str, Any] = {"gitea": {"token_ref": "file:/srv/token"}}
    door = _Door(port, settings)
    door.start()
    host, number = door.listener.getsockname()
    rig = Rig(ledger, tmp_path / "ledger.db", ManualClock(0))
    made = Place(f"http://{host}:{number}", rig, chromium, settings)
    yield made
    _thread.submit(made.close).result()
    door.close()
    port.close()
    # What it reads beside the ledger was opened where the test ran.
    _thread.submit(rig.close).result()
    assert made.troubles == []


@pytest.fixture
def pictures(request: pytest.FixtureRequest) -> Path | None:
    """Names the folder of the handbook's pictures when these are to be taken anew."""
    if not request.config.getoption("--pictures"):
        return None
    folder = Path(__file__).parents[2] / "docs/pictures"
    folder.mkdir(exist_ok=True)
    return folder
