from __future__ import annotations

import os

import httpx
import pytest

from stationmaster.control import rest
from stationmaster.control.commands import Site
from stationmaster.control.scrape import Access, Metrics
from stationmaster.control.server import PEER
from tests.control.conftest import Running


async def _page() -> bytes:
    return b"x 1\n"


async def _asked(
    running: Running,
    access: Access,
    *,
    near: str = "127.0.0.1",
    peer: int | None = None,
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    app = rest.app(
        Site(running.port, lambda: None), (), None, lambda: True, metrics=Metrics(_page, "text/plain", access)
    )

    async def marked(scope: dict[str, object], receive: object, send: object) -> None:
        await app(scope if peer is None else {**scope, PEER: peer}, receive, send)  # type: ignore[arg-type]

    transport = httpx.ASGITransport(marked, client=(near, 1))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        return await client.get("/metrics", headers=headers)


async def test_a_key_that_may_only_look_is_enough(running: Running) -> None:
    key = await running.key("prometheus", "read")
    answer = await _asked(running, "key", headers={"authorization": f"Bearer {key}"})
    assert (answer.status_code, answer.text) == (200, "x 1\n")
    assert answer.headers["cache-control"] == "no-store"
    for wrong in (None, {"authorization": "Bearer smk_no"}):
        assert (await _asked(running, "key", headers=wrong)).status_code == 401


NEAR = ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1")
FAR = ("10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "no-address")


@pytest.mark.parametrize(("near", "status"), [*((each, 200) for each in NEAR), *((each, 403) for each in FAR)])
async def test_this_machine_may_look_without_a_key_when_that_was_chosen(
    running: Running, near: str, status: int
) -> None:
    assert (await _asked(running, "loopback", near=near)).status_code == status


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
async def test_a_proxy_on_this_machine_is_not_this_machine(running: Running, header: str) -> None:
    answer = await _asked(running, "loopback", headers={header: "192.0.2.1"})
    assert (answer.status_code, answer.json()["error"]) == (403, "forbidden")


async def test_the_control_socket_is_for_its_owner_here_too(running: Running) -> None:
    assert (await _asked(running, "key", peer=os.geteuid())).status_code == 200
    assert (await _asked(running, "loopback", peer=os.geteuid() + 1)).status_code == 403


async def test_off_is_off(running: Running) -> None:
    assert (await _asked(running, "off")).status_code == 404
