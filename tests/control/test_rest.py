from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.control.conftest import WEBHOOK_LIMIT, Running

KEYS = "/api/stationmaster/operators"


async def _raw(running: Running, request: bytes) -> bytes:
    """Sends exact bytes and returns the answer up to the end of the connection or of a complete small answer."""
    reader, writer = await asyncio.open_connection(*running.address)
    try:
        writer.write(request)
        await writer.drain()
        return await asyncio.wait_for(reader.read(4096), 10)
    finally:
        writer.close()


async def test_health_is_readable_by_anybody(running: Running) -> None:
    async with running.client() as client:
        assert (await client.get("/healthz")).json() == {"status": "alive"}
        assert (await client.get("/readyz")).json()["status"] == "ready"


async def test_nothing_else_is_readable_without_a_key(running: Running) -> None:
    # GW-R-237
    async with running.client() as client:
        for header in ({}, {"Authorization": "Basic YTpi"}, {"Authorization": "Bearer smk_wrong"}, {"x-peer": "0"}):
            answer = await client.get(KEYS, headers=header)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json()["error"] == "unauthenticated"
            assert "smk_wrong" not in answer.text


async def test_a_key_never_reaches_what_only_the_owner_may_do(running: Running) -> None:
    async with running.client(await running.key()) as client:
        answer = await client.post(KEYS, json={"name": "more"})
    assert (answer.status_code, answer.json()["error"]) == (403, "forbidden")


async def test_the_owner_makes_lists_and_revokes_keys_over_the_socket(running: Running) -> None:
    async with running.over_socket() as owner:
        made = (await owner.post(KEYS, json={"name": "ann"})).json()
        async with running.client(made["key"]) as ann:
            assert (await ann.get(KEYS)).status_code == 403
            assert (await owner.post(f"{KEYS}/ann/revoke", json={})).json()["state"] == "revoked"
            assert (await ann.get(KEYS)).status_code == 401
        listed = (await owner.get(KEYS)).json()["operators"]
    assert [(row["name"], row["state"]) for row in listed] == [("ann", "revoked")]
    assert made["key"] not in str(listed)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "must be a JSON object"),
        (b"[]", "must be a JSON object"),
        (b'{"name"', "must be a JSON object"),
        (b'{"name":"a","model":"gpt"}', "unknown field `model`"),
        (b'{"name":7}', "Expected `str`, got `int`"),
        (b'{"name":"a","scope":"all"}', "Invalid enum value 'all'"),
        (b"{}", "missing required field `name`"),
        (b'{"name":"' + b"a" * 501 + b'"}', "length <= 500"),
        (b'{"name":"no spaces"}', "An operator's name is"),
    ],
)
async def test_a_wrong_body_is_refused_with_a_sentence(running: Running, body: bytes, words: str) -> None:
    # GW-R-225
    async with running.over_socket() as owner:
        answer = await owner.post(KEYS, content=body)
    assert answer.status_code == 400
    assert words in answer.json()["message"]


async def test_a_body_cannot_name_what_the_address_names(running: Running) -> None:
    async with running.over_socket() as owner:
        answer = await owner.post(f"{KEYS}/ann/revoke", json={"name": "bob"})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


async def test_queries_take_no_unknown_and_no_doubled_field(running: Running) -> None:
    async with running.over_socket() as owner:
        assert (await owner.get(f"{KEYS}?colour=red")).status_code == 400
        assert "twice" in (await owner.get(f"{KEYS}?a=1&a=2")).json()["message"]


async def test_unknown_addresses_and_methods_are_told(running: Running) -> None:
    async with running.over_socket() as owner:
        assert (await owner.get("/nothing")).status_code == 404
        assert (await owner.delete(KEYS)).status_code == 405
        missing = await owner.post(f"{KEYS}/ghost/revoke", json={})
    assert (missing.status_code, missing.json()["error"]) == (404, "operator_not_found")


async def test_a_control_body_has_a_limit(running: Running) -> None:
    async with running.over_socket() as owner:
        answer = await owner.post(KEYS, content=b'{"name":"' + b"a" * 70_000 + b'"}')
    assert (answer.status_code, answer.json()["error"]) == (413, "payload_too_large")


async def test_the_webhook_gets_the_exact_bytes(running: Running) -> None:
    # GW-R-047, GW-R-049
    body = b'{ "a" :  "\xc3\xa9\x00" }\r\n'
    async with running.client() as client:
        answer = await client.post("/api/gitea/webhook", content=body, headers={"X-Gitea-Delivery": "d-1"})
    assert (answer.status_code, answer.json()) == (202, {"state": "queued"})
    [delivery] = running.deliveries
    assert delivery.body == body
    assert delivery.headers["x-gitea-delivery"] == "d-1"
    assert delivery.source == "127.0.0.1"


async def test_a_chunked_body_arrives_whole(running: Running) -> None:
    async def parts() -> httpx._types.AsyncByteStream:  # type: ignore[misc]
        for part in (b"one", b"two" * 200, b"three"):
            yield part

    async with running.client() as client:
        await client.post("/api/gitea/webhook", content=parts())
    assert running.deliveries[0].body == b"one" + b"two" * 200 + b"three"


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_above_the_limit_is_refused_and_told(running: Running, chunked: bool) -> None:
    # GW-R-049
    body = b"x" * (WEBHOOK_LIMIT + 1)

    async def parts() -> httpx._types.AsyncByteStream:  # type: ignore[misc]
        yield body[:1000]
        yield body[1000:]

    async with running.client() as client:
        answer = await client.post("/api/gitea/webhook", content=parts() if chunked else body)
        assert (answer.status_code, answer.json()["error"]) == (413, "payload_too_large")
        assert (await client.post("/api/gitea/webhook", content=b"x" * WEBHOOK_LIMIT)).status_code == 202
    assert len(running.too_large) == 1
    assert len(running.deliveries) == 1


async def test_a_declared_length_above_the_limit_is_refused_before_the_body_comes(running: Running) -> None:
    head = b"POST /api/gitea/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n"
    assert b" 413 " in (await _raw(running, head)).split(b"\r\n")[0]
    assert running.deliveries == []


async def test_two_lengths_are_no_request(running: Running) -> None:
    # GW-R-049
    head = (
        b"POST /api/gitea/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    assert b" 400 " in (await _raw(running, head)).split(b"\r\n")[0]
    assert running.deliveries == []


async def test_a_caller_that_hangs_up_half_way_disturbs_nobody(running: Running) -> None:
    _, writer = await asyncio.open_connection(*running.address)
    writer.write(b"POST /api/gitea/webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    async with running.client() as client:
        assert (await client.get("/healthz")).status_code == 200
    assert running.deliveries == []
