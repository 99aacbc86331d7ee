"""The page of metrics: who may read it, and nothing of what is on it."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request

from stationmaster.control.server import PEER
from stationmaster.errors import Denied

Access = Literal["key", "loopback", "off"]

# A proxy on this machine speaks from loopback for people anywhere; it says so in one of these.
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


@dataclass(frozen=True, slots=True)
class Metrics:
    """What makes the page, its content type, and who may read it: holders of a key, this machine, or nobody."""

    page: Callable[[], Awaitable[bytes]]
    content_type: str
    access: Access = "key"


def needs_key(metrics: Metrics, request: Request) -> bool:
    """Tells whether this caller must show an operator key; raises Denied when it may not read the page at all."""
    if request.scope.get(PEER) is not None or metrics.access == "key":
        return True
    if not _is_near(request):
        raise Denied(
            "The metrics are for this machine only.",
            code="forbidden",
            hint='Ask from the machine itself without a proxy, or set web.metrics = "key" and show a key.',
        )
    return False


def _is_near(request: Request) -> bool:
    if request.client is None or any(name in request.headers for name in _FORWARDED):
        return False
    try:
        address = ipaddress.ip_address(request.client.host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
