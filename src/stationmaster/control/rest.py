"""The HTTP door: the webhook, the control and query API, health. The same app serves TCP and the control socket.

It proves who calls, types the input and words the answer; what happens is decided by the handlers and by
`gitea.webhook`. Nothing is readable without a key but health and the webhook's own answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from stationmaster import canonical
from stationmaster.command import LedgerPort
from stationmaster.control import errors, grants, operators, readiness, scrape
from stationmaster.control.commands import Command, Site
from stationmaster.control.console.door import Door
from stationmaster.control.console.frame import ROOT, Console
from stationmaster.control.edge import WEBHOOK, Counted, Edge
from stationmaster.control.readiness import Standing
from stationmaster.control.scrape import Metrics
from stationmaster.control.server import PEER
from stationmaster.errors import Bug, Denied, Invalid, StationmasterError

BODY_LIMIT = 65_536
_BEARER = "bearer "
_NO_METHOD = 405
# The forge of the plain webhook address.
_FIRST = "default"

Endpoint = Callable[[Request], Awaitable[Response]]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One webhook request as it arrived: the exact bytes, headers in lower case, and where it came from."""

    headers: Mapping[str, str]
    body: bytes
    source: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a webhook request."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Webhook:
    """The door of one forge: what handles a delivery, what records one that is too large, and the limit."""

    handle: Callable[[Delivery], Awaitable[Reply]]
    too_large: Callable[[Delivery], Awaitable[Reply]]
    max_bytes: int


def app(
    site: Site,
    commands: Sequence[Command[Any, Any]],
    webhook: Webhook | Mapping[str, Webhook] | None,
    ready: Callable[[], bool],
    *,
    standing: Callable[[], Standing] = Standing,
    metrics: Metrics | None = None,
    counted: Counted = lambda _door, _status, _seconds: None,
    console: Console | None = None,
) -> Starlette:
    """Builds the app; without `webhook` (a command line that works alone) no delivery is taken.

    Several are named by their forges: `default` has the plain address, the others one that ends in their name.

    `ready` is False once the process stops; `standing` says what it still waits for. `counted` is told of every answer.
    Without `console` there are no pages.
    """
    routes = [_route(site, command) for command in commands]
    routes.append(Route("/healthz", _guarded(_health), methods=["GET"]))
    routes.append(Route("/readyz", _guarded(_readiness(site.port, ready, standing)), methods=["GET"]))
    if metrics is not None and metrics.access != "off":
        routes.append(Route("/metrics", _guarded(_metrics(site.port, metrics)), methods=["GET"]))
    door = None if console is None else Door(console)
    routes += [] if door is None else door.routes()
    # First: addresses are tried in order, and these are the ones under load.
    routes[:0] = [
        Route(WEBHOOK if name == _FIRST else f"{WEBHOOK}/{name}", _guarded(_webhook(each)), methods=["POST"])
        for name, each in ({_FIRST: webhook} if isinstance(webhook, Webhook) else webhook or {}).items()
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Edge, counted=counted)],
        exception_handlers={404: _missing(door, 404), 405: _missing(door, 405)},
    )


def _route(site: Site, command: Command[Any, Any]) -> Route:
    async def endpoint(request: Request) -> Response:
        grant = grants.need(await _identify(site.port, request), command.grant)
        given = await _given(request, command)
        answer = await command.run(site, grant, given)
        if answer.lines:
            return StreamingResponse(_lines(answer.body), answer.status, media_type="application/x-ndjson")
        return _json(answer.body, answer.status)

    # A repository key holds a slash, which the server has decoded by now; it must not split the path (GW-R-218).
    path = command.path.replace("{repoKey}", "{repoKey:path}")
    return Route(path, _guarded(endpoint), methods=[command.method], name=command.name)


async def _lines(bodies: AsyncIterator[Any]) -> AsyncIterator[str]:
    async for body in bodies:
        yield canonical.dump(body) + "\n"


async def _identify(port: LedgerPort, request: Request) -> grants.Read | None:
    peer = request.scope.get(PEER)
    if peer is not None:
        return grants.of_peer(peer)
    header = request.headers.get("authorization", "")
    if header[: len(_BEARER)].lower() != _BEARER:
        return None
    row = await port.read(operators.find, header[len(_BEARER) :].strip())
    if row is None:
        raise Denied(
            "The operator key is not known or was revoked.",
            code="unauthenticated",
            hint="`stationmaster operator add NAME` makes a new one.",
        )
    return grants.of_key(row["name"], row["scope"])


async def _given(request: Request, command: Command[Any, Any]) -> Any:
    given = _query(request) if command.method == "GET" else _object(await read_body(request, BODY_LIMIT))
    for name, value in request.path_params.items():
        if name in given:
            raise Invalid(f"{name} is part of the address; leave it out of the request.", code="invalid_request")
        given[name] = value
    try:
        # Queries are text throughout; a body says its own types.
        return msgspec.convert(given, command.inputs, strict=command.method != "GET")
    except msgspec.ValidationError as error:
        raise Invalid(f"The request is wrong: {error}.", code="invalid_request") from None


def _query(request: Request) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise Invalid(f"{name} was given twice.", code="invalid_request")
        given[name] = value
    return given


def _object(raw: bytes) -> dict[str, Any]:
    try:
        given = canonical.load(raw)
    except msgspec.DecodeError:
        given = None
    if not isinstance(given, dict):
        raise Invalid("The body must be a JSON object.", code="invalid_request")
    return given


class TooLarge(Invalid):
    """A body above its limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"The body is larger than {limit} bytes.", code="payload_too_large")


async def read_body(request: Request, limit: int) -> bytes:
    """Reads a body that may be chunked; raises TooLarge as soon as it is known to be above `limit` (GW-R-049)."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise TooLarge(limit)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise TooLarge(limit)
        parts.append(part)
    return b"".join(parts)


def _webhook(webhook: Webhook) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        headers = dict(request.headers)
        source = request.client.host if request.client else "local"
        try:
            body = await read_body(request, webhook.max_bytes)
        except TooLarge:
            reply = await webhook.too_large(Delivery(headers, b"", source))
        else:
            reply = await webhook.handle(Delivery(headers, body, source))
        return _json(reply.body, reply.status, reply.headers)

    return endpoint


async def _health(_request: Request) -> Response:
    return _json({"status": "alive"})


def _readiness(port: LedgerPort, ready: Callable[[], bool], standing: Callable[[], Standing]) -> Endpoint:
    async def endpoint(_request: Request) -> Response:
        body, status = await readiness.told(port, stopping=not ready(), standing=standing)
        return _json(body, status)

    return endpoint


def _metrics(port: LedgerPort, metrics: Metrics) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        if scrape.needs_key(metrics, request):
            grants.need(await _identify(port, request), grants.Read)
        made = Response(await metrics.page(), media_type=metrics.content_type)
        made.headers["Cache-Control"] = "no-store"
        return made

    return endpoint


def _guarded(endpoint: Endpoint) -> Endpoint:
    """Words every failure of an endpoint; nothing of ours reaches a caller as a traceback."""

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ClientDisconnect:
            return Response(status_code=400)
        except StationmasterError as error:
            if isinstance(error, Bug):
                _log.error("request.bug", path=request.url.path, exc_info=error)
            return _json(errors.body(error), errors.status(error), errors.headers(error))
        except Exception as error:  # noqa: BLE001 - the last fence before the server
            _log.error("request.broken", path=request.url.path, exc_info=error)
            return _json(errors.body(Bug("BUG: unforeseen.")), 500)

    return guarded


_MISSING = {
    404: {"error": "not_found", "message": "There is no such address."},
    405: {"error": "invalid_request", "message": "This address does not take that method."},
}


def _missing(door: Door | None, status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Says that there is nothing: to people as a page, to programs as JSON."""

    async def told(request: Request, _error: Exception) -> Response:
        if door is not None and request.url.path.startswith(f"{ROOT}/"):
            return await door.no_page(request, method=status == _NO_METHOD)
        return _json(_MISSING[status], status)

    return told


def _json(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    made = Response(canonical.dump(body), status_code=status, media_type="application/json", headers=headers)
    made.headers["Cache-Control"] = "no-store"
    return made
