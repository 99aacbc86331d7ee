"""The server under test, in a process of its own: the product's own app and server, in front of one of four stores.

`product` is the webhook as it is, `traced` the same with stopwatches, `none` checks the signature and answers, `plain`
checks, reads and writes the same rows in bare SQL with one commit a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import uvloop

from stationmaster import canonical
from stationmaster.control import rest
from stationmaster.control.commands import Site
from stationmaster.control.dispatch import Dispatch
from stationmaster.control.registry import COMMANDS
from stationmaster.control.server import Server, bind_tcp
from stationmaster.errors import Bug
from stationmaster.gitea import normalise, signature
from stationmaster.gitea.webhook import Webhook
from stationmaster.ops import logs, wiring
from stationmaster.ops.bench import deliveries
from stationmaster.ops.bench.plain import PlainAccept
from stationmaster.ops.bench.stores import Place
from stationmaster.ops.bench.trace import Handle, Trace, Traced

Variant = Literal["product", "traced", "none", "plain"]
_MAX_BYTES = 10 * 1024**2


@dataclass(frozen=True, slots=True)
class Told:
    """What a server says of itself: its processor time so far, and the parts of its deliveries since the last time."""

    cpu_s: float
    parts: dict[str, float]


def serve(variant: Variant, place: Place, pipe: Any) -> None:
    """Serves until the pipe says None; says the port first, and how it went at each question."""
    logs.setup("warning", "keyvalue")
    with contextlib.ExitStack() as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        ledger = place.ledger()
        stack.callback(ledger.close)
        trace = Trace(shared=place.url is None)
        port = Traced(ledger, threads=2) if variant == "traced" else Dispatch(ledger, threads=2)
        stack.callback(port.close)
        door = stack.enter_context(_door(variant, place, port, trace))
        app = rest.app(Site(port, wake=lambda: None), COMMANDS, door, ready=lambda: True)
        runner.run(_serve(Server(app, bind_tcp("127.0.0.1", 0)), pipe, trace))


async def _serve(server: Server, pipe: Any, trace: Trace) -> None:
    stop = asyncio.Event()

    def told() -> None:
        try:
            question = pipe.recv()
        except EOFError:
            question = None
        if question is None:
            stop.set()
        else:
            pipe.send(Told(time.process_time(), trace.take()))

    asyncio.get_running_loop().add_reader(pipe.fileno(), told)
    pipe.send(server.listener.getsockname()[1])
    await server.run_until(stop)
    asyncio.get_running_loop().remove_reader(pipe.fileno())


@contextlib.contextmanager
def _door(variant: Variant, place: Place, port: Dispatch, trace: Trace) -> Iterator[rest.Webhook]:
    settings = deliveries.settings()
    product = wiring.webhook_door(Webhook(port, settings), lambda: None, _MAX_BYTES)
    if variant == "product":
        yield product
    elif variant == "traced":
        yield rest.Webhook(trace.around(product.handle), product.too_large, _MAX_BYTES)
    elif variant == "none":
        yield rest.Webhook(_no_store(), product.too_large, _MAX_BYTES)
    else:
        port.ledger.close()
        with contextlib.closing(place.plain()) as store:
            yield rest.Webhook(_plain_store(PlainAccept(store)), product.too_large, _MAX_BYTES)


def _no_store() -> Handle:
    secrets = [secret.reveal().encode() for secret in deliveries.settings().webhook_secrets]

    async def handle(delivery: rest.Delivery) -> rest.Reply:
        if signature.verified(delivery.headers, delivery.body, secrets) is None:
            return rest.Reply(401, {}, {})
        named = normalise.header_delivery_id(delivery.headers)
        return rest.Reply(202, {"deliveryId": named, "taskId": normalise.task_id(named), "state": "queued"}, {})

    return handle


def _plain_store(accept: PlainAccept) -> Handle:
    settings = deliveries.settings()
    secrets = [secret.reveal().encode() for secret in settings.webhook_secrets]
    host = normalise.host_of(settings.base_url)
    rules = normalise.Rules(frozenset({host} if host else ()), settings.bot_login, None, settings.instance_id)

    async def handle(delivery: rest.Delivery) -> rest.Reply:
        content = signature.verified(delivery.headers, delivery.body, secrets)
        if content is None:
            return rest.Reply(401, {}, {})
        said = normalise.normalise(delivery.headers, content, rules)
        if not isinstance(said, normalise.Normalised):
            raise Bug(f"BUG: the bench sent what starts nothing: {said}.")
        return rest.Reply(202, accept(said, canonical.sha256(delivery.body)), {})

    return handle
