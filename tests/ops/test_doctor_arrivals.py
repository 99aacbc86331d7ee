"""How mentions arrive: the webhook's address is tried by a signed delivery, and readings that are late are told."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from stationmaster.clock import MICROS, ManualClock, SystemClock
from stationmaster.gitea import watch
from stationmaster.ops import wiring
from stationmaster.ops.demo.product import Product
from stationmaster.ops.doctor import arrivals
from tests.ops.patient import look, patient


class _Other(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def other() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Other)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def tried(tmp_path: Path, url: str) -> str:
    made = patient(
        tmp_path / "home",
        f'[gitea]\nwebhook_secret_ref = "file:{tmp_path}/hook"\nbase_url = "http://127.0.0.1:9"\n'
        f'token_ref = "env:X"\n[web]\npublic_url = "{url}"\n',
    )
    (tmp_path / "hook").write_text("s3cret-of-the-hook")
    [line] = look(arrivals.webhook(made.config))
    return line


def test_an_address_that_nobody_named_or_that_is_another_is_told(tmp_path: Path, other: str) -> None:
    assert tried(tmp_path, "").startswith("ok    webhook: It is not tried")
    assert "cannot be reached (ConnectError)" in tried(tmp_path, "http://127.0.0.1:9")
    assert "something else listens there" in tried(tmp_path, other)


def test_a_product_that_runs_takes_the_test_and_another_secret_is_told(tmp_path: Path) -> None:
    product = Product(tmp_path / "product")
    settings: dict[str, object] = {"gitea": {"base_url": "http://127.0.0.1:9"}, "web": {"port": 0}}
    product.configure(settings, token="t", webhook_secret="s3cret-of-the-hook")
    product.start()
    try:
        assert tried(tmp_path, product.web).startswith("ok    webhook: ")
        (tmp_path / "product/webhook-secret").write_text("another one, as secrets are")
        assert "has another webhook secret" in tried(tmp_path, product.web)
    finally:
        product.stop()


def test_how_far_the_forge_was_read_is_told(tmp_path: Path) -> None:
    made = patient(tmp_path / "home", '[gitea]\nbase_url = "http://127.0.0.1:9"\n')
    assert look(arrivals.reading(made.home, made.config)) == []
    ledger = wiring.open_ledger(made.config, made.home, SystemClock())
    try:
        ledger.hot(watch.listed, "default", 0)
        assert "was never read through" in look(arrivals.reading(made.home, made.config))[0]
        ledger.hot(watch.begin, "default", [(1, "acme", "widgets")], 0)
        ledger.hot(watch.round_done, "default", found=0, taken=0, failed=0)
        [line] = look(arrivals.reading(made.home, made.config))
        assert line.startswith("ok    reading: The forge default was read through at ")
        assert line.endswith(", 1 repositories.")
        ledger.hot(watch.looked, "default", 1, "forge_denied")
        assert "1 repositories of default could not be read" in look(arrivals.reading(made.home, made.config))[0]
    finally:
        ledger.close()


def test_a_reading_that_is_long_overdue_is_told(tmp_path: Path) -> None:
    made = patient(tmp_path / "home", '[gitea]\nbase_url = "http://127.0.0.1:9"\n')
    ledger = wiring.open_ledger(made.config, made.home, ManualClock(SystemClock().now() - 3600 * MICROS))
    ledger.hot(watch.listed, "default", 0)
    ledger.hot(watch.round_done, "default", found=0, taken=0, failed=0)
    ledger.close()
    [line] = look(arrivals.reading(made.home, made.config))
    assert line.startswith("warn  reading: The forge default was read through last at ")
