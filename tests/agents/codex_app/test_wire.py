"""The client's wire, with this test at its other end."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stationmaster.agents.codex_app.wire import Rejected, ServerRequest, Wire
from stationmaster.errors import Unavailable

LIMIT = 100_000


class Peer:
    """Reads what the client sends, and sends whatever a test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.told: list[str] = []
        self.asked: list[ServerRequest] = []
        self.closed = asyncio.Event()
        self.wire: Wire

    async def take(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(await self.reader.readline())
        return message

    def send(self, *messages: Any) -> None:
        for message in messages:
            self.writer.write((message if isinstance(message, str) else json.dumps(message)).encode() + b"\n")


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours, limit=LIMIT)
    other = Peer(*await asyncio.open_connection(sock=theirs))
    other.wire = Wire(
        reader,
        writer,
        on_notification=lambda method, _: other.told.append(method),
        on_request=other.asked.append,
        on_closed=other.closed.set,
    )
    yield other
    await other.wire.close()
    other.writer.close()
    assert other.closed.is_set()


def ask(peer: Peer, method: str, timeout_s: float = 20.0) -> asyncio.Task[Any]:
    return asyncio.create_task(peer.wire.request(method, {"a": 1}, timeout_s=timeout_s))


async def test_answers_find_their_requests_in_any_order(peer: Peer) -> None:
    one, two = ask(peer, "one"), ask(peer, "two")
    first, second = await peer.take(), await peer.take()
    assert "jsonrpc" not in first
    peer.send({"id": second["id"], "result": 2}, {"method": "told"}, {"id": first["id"], "result": None})
    assert (await one, await two) == (None, 2)
    assert peer.told == ["told"]


async def test_an_error_answer_is_a_rejection(peer: Peer) -> None:
    asked = ask(peer, "one")
    number = (await peer.take())["id"]
    peer.send({"id": number, "error": {"code": -32600, "message": "no"}})
    with pytest.raises(Rejected) as caught:
        await asked
    assert (caught.value.number, caught.value.words, caught.value.kind) == (-32600, "no", "unavailable")


async def test_an_error_without_a_form_is_one_too(peer: Peer) -> None:
    asked = ask(peer, "one")
    peer.send({"id": (await peer.take())["id"], "error": "oops"})
    with pytest.raises(Rejected):
        await asked


async def test_noise_is_no_answer(peer: Peer) -> None:
    asked = ask(peer, "one")
    number = (await peer.take())["id"]
    peer.send("not json", "[1]", "null", {"id": None}, {"id": 77, "result": 1}, {"id": str(number), "result": 1}, {})
    peer.send({"id": number, "result": "right"}, {"id": number, "result": "doubled"})
    assert await asked == "right"


async def test_server_requests_of_either_id_are_answered_in_kind(peer: Peer) -> None:
    peer.send({"id": 1, "method": "m", "params": {"x": 1}}, {"id": "two", "method": "n", "params": [1]})
    asked = ask(peer, "sync")
    peer.send({"id": (await peer.take())["id"], "result": {}})
    await asked
    assert [(request.id, request.method, request.params) for request in peer.asked] == [
        (1, "m", {"x": 1}),
        ("two", "n", {}),
    ]
    await peer.wire.answer(peer.asked[0], {"ok": True})
    await peer.wire.refuse(peer.asked[1], "no")
    assert await peer.take() == {"id": 1, "result": {"ok": True}}
    assert await peer.take() == {"id": "two", "error": {"code": -32601, "message": "no"}}


async def test_the_end_of_the_stream_ends_every_request(peer: Peer) -> None:
    asked = [ask(peer, "one"), ask(peer, "two")]
    await peer.take()
    peer.writer.close()
    for task in asked:
        with pytest.raises(Unavailable) as caught:
            await task
        assert caught.value.code == "app_server_unreachable"
    with pytest.raises(Unavailable):
        await peer.wire.notify("late")


async def test_a_line_over_the_limit_ends_the_conversation(peer: Peer) -> None:
    asked = ask(peer, "one")
    await peer.take()
    peer.send("x" * (LIMIT * 3))
    with pytest.raises(Unavailable) as caught:
        await asked
    assert caught.value.code == "app_server_unreachable"


async def test_a_full_pipe_meets_the_deadline(peer: Peer) -> None:
    # A stopped app-server reads nothing: writing must not wait for ever either.
    with pytest.raises(Unavailable) as caught:
        await peer.wire.request("big", {"x": "x" * 50_000_000}, timeout_s=0.3)
    assert caught.value.code == "app_server_timeout"
    with pytest.raises(Unavailable) as caught:
        await peer.wire.request("next", {}, timeout_s=0.3)
    assert caught.value.code == "app_server_timeout"
