from __future__ import annotations

import asyncio

import httpx
import pytest
import structlog
from starlette.types import Send

from stationmaster.control import rest
from stationmaster.control.commands import Site
from stationmaster.control.edge import Edge, door_of
from stationmaster.errors import Unavailable
from stationmaster.ops.metrics.figures import Figures
from tests.control.conftest import Running
from tests.support import eventually_async

HOSTILE = ("", "a b", "x" * 65, "a\tb", "<script>", "né")


async def test_an_answer_carries_the_id_that_its_caller_gave(running: Running) -> None:
    async with running.client() as client:
        assert (await client.get("/healthz", headers={"X-Request-Id": "ci-7:a.b_c"})).headers[
            "x-request-id"
        ] == "ci-7:a.b_c"
        # An error and an address that nobody knows have one too.
        assert (await client.get("/api/gitea-workflow/tasks", headers={"X-Request-Id": "r1"})).headers[
            "x-request-id"
        ] == "r1"
        assert (await client.get("/nothing", headers={"X-Request-Id": "r2"})).headers["x-request-id"] == "r2"


async def test_what_is_no_plain_word_is_replaced(running: Running) -> None:
    async with running.client() as client:
        made = {(await client.get("/healthz")).headers["x-request-id"]}
        for word in HOSTILE:
            answer = await client.get("/healthz", headers=[(b"X-Request-Id", word.encode())])
            made.add(answer.headers["x-request-id"])
    assert len(made) == len(HOSTILE) + 1
    assert all(name.startswith("req_") for name in made)


async def test_what_is_logged_on_the_way_carries_the_id_and_nothing_after_it_does() -> None:
    seen: list[object] = []

    async def app(scope: object, receive: object, send: object) -> None:
        seen.append(structlog.contextvars.get_contextvars().get("request"))

    counted: list[tuple[str, int]] = []
    edge = Edge(app, lambda door, status, _: counted.append((door, status)))
    scope = {"type": "http", "path": "/x", "headers": [(b"x-request-id", b"r9")]}
    await edge(scope, None, None)  # type: ignore[arg-type]
    assert seen == ["r9"]
    assert structlog.contextvars.get_contextvars() == {}
    # It never answered.
    assert counted == [("console", 499)]


async def test_an_app_that_breaks_is_counted_as_what_its_caller_sees() -> None:
    async def broken(scope: object, receive: object, send: object) -> None:
        raise ValueError("broken")

    counted: list[tuple[str, int]] = []
    edge = Edge(broken, lambda door, status, _: counted.append((door, status)))
    with pytest.raises(ValueError, match="broken"):
        await edge({"type": "http", "path": "/api/x", "headers": []}, None, None)  # type: ignore[arg-type]
    assert counted == [("api", 500)]


async def test_answers_are_counted_by_door_and_status(running: Running) -> None:
    async with running.client() as client:
        await client.get("/healthz")
        await client.post("/api/gitea/webhook", content=b"{}")
        await client.post("/api/gitea/webhook", content=b"x" * 5000)
        await client.get("/api/gitea-workflow/overview")
    assert [(door, status) for door, status, _ in running.counted] == [
        ("health", 200), ("webhook", 202), ("webhook", 413), ("api", 401),
    ]  # fmt: skip
    assert all(0 < seconds < 10 for _, _, seconds in running.counted)


async def test_a_delivery_that_cannot_be_kept_is_answered_and_counted_as_that(running: Running) -> None:
    # GW-R-069
    async def lost(_: rest.Delivery) -> rest.Reply:
        raise Unavailable("The database could not keep the write.", code="store_unavailable")

    figures = Figures()
    door = rest.Webhook(lost, lost, 100)
    app = rest.app(Site(running.port, lambda: None), (), door, lambda: True, counted=figures.response)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
        answer = await client.post("/api/gitea/webhook", content=b"{}")
        await client.post("/api/gitea-workflow/control/pause", json={})
    assert (answer.status_code, answer.json()["error"]) == (503, "store_unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert figures.deliveries_failed == 1


async def test_a_stream_is_timed_until_it_begins() -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def stream(scope: object, receive: object, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        began.set()
        await go.wait()
        await send({"type": "http.response.body", "body": b"x"})

    async def nowhere(message: object) -> None:
        return

    counted: list[float] = []
    edge = Edge(stream, lambda _door, _status, seconds: counted.append(seconds))
    loop = asyncio.get_running_loop()
    asked = loop.time()
    streaming = asyncio.create_task(edge({"type": "http", "path": "/x", "headers": []}, None, nowhere))  # type: ignore[arg-type]
    await began.wait()
    until = loop.time()
    await eventually_async(lambda: _past(until + 0.05))
    go.set()
    await streaming
    assert 0 <= counted[0] <= until - asked


async def _past(at: float) -> bool:
    return asyncio.get_running_loop().time() > at


def test_an_address_that_a_stranger_makes_up_makes_no_label() -> None:
    doors = {
        door_of(path) for path in ("/", "/a/b", "/api/x", "/api/gitea/webhook", "/api/gitea/webhook/two", "/metrics")
    }
    assert doors == {"console", "api", "webhook", "metrics"}
