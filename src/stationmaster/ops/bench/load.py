"""The load: one process that keeps a number of connections busy and measures each answer; nothing else runs in it.

Closed loop: a connection sends its next delivery when the answer to the last one is complete.
"""

from __future__ import annotations

import select
import socket
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from stationmaster.errors import Bug, Unavailable
from stationmaster.ops.bench.deliveries import Deliveries
from stationmaster.ops.bench.report import percentile

_ANSWER_S = 30.0
_STATUS = slice(9, 12)


@dataclass(frozen=True, slots=True)
class Shot:
    """What to do: keep `connections` busy for `seconds` with the deliveries from number `first` on."""

    port: int
    connections: int
    seconds: float
    first: int


@dataclass(frozen=True, slots=True)
class Hits:
    """What came of it; `statuses` counts the answers, `own_share` is this process's part of one core."""

    statuses: dict[str, int]
    seconds: float
    mean_ms: float
    p50_ms: float
    p99_ms: float
    most_ms: float
    own_share: float

    @property
    def answers(self) -> int:
        """How many answers came."""
        return sum(self.statuses.values())

    @property
    def per_second(self) -> float:
        """How many answers came a second."""
        return self.answers / self.seconds


def serve(pipe: Any) -> None:
    """Does shots from the pipe until it is told to stop."""
    while (shot := pipe.recv()) is not None:
        pipe.send(fire(shot))


class _Line:
    """One connection and the answer it waits for."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent_at = 0
        self._got = b""

    def send(self, request: bytes) -> None:
        self.sent_at = time.perf_counter_ns()
        self.socket.sendall(request)

    def answer(self) -> str:
        """Reads what is there; returns the status once the answer is complete, before that nothing."""
        part = self.socket.recv(65536)
        if not part:
            raise Unavailable("The server closed a connection under load.")
        self._got += part
        head, found, body = self._got.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return ""
        self._got = b""
        return head[_STATUS].decode()


def _length(head: bytes) -> int:
    _, found, rest = head.lower().partition(b"content-length: ")
    if not found:
        raise Bug("BUG: an answer without a length.")
    return int(rest.partition(b"\r\n")[0])


def fire(shot: Shot) -> Hits:
    """Does one shot."""
    deliveries = Deliveries(shot.port)
    numbers = count(shot.first)
    lines = {line.socket.fileno(): line for line in (_Line(shot.port) for _ in range(shot.connections))}
    try:
        return _fire(shot, (deliveries.request(number) for number in numbers), lines)
    finally:
        for line in lines.values():
            line.socket.close()


def _fire(shot: Shot, requests: Iterator[bytes], lines: dict[int, _Line]) -> Hits:
    statuses: Counter[str] = Counter()
    took = array("q")
    poll = select.epoll()
    for descriptor in lines:
        poll.register(descriptor, select.EPOLLIN)
    cpu, began = time.process_time(), time.perf_counter_ns()
    last = began + int(shot.seconds * 1e9)
    for line in lines.values():
        line.send(next(requests))
    busy = len(lines)
    while busy:
        ready = poll.poll(_ANSWER_S)
        if not ready:
            raise Unavailable(f"The server gave no answer in {_ANSWER_S:.0f} s.")
        for descriptor, _ in ready:
            line = lines[descriptor]
            status = line.answer()
            if not status:
                continue
            now = time.perf_counter_ns()
            took.append(now - line.sent_at)
            statuses[status] += 1
            if now < last:
                line.send(next(requests))
            else:
                busy -= 1
    seconds = (time.perf_counter_ns() - began) / 1e9
    poll.close()
    ordered = [value / 1e6 for value in sorted(took)]
    return Hits(
        statuses=dict(statuses),
        seconds=seconds,
        mean_ms=sum(ordered) / len(ordered),
        p50_ms=percentile(ordered, 0.5),
        p99_ms=percentile(ordered, 0.99),
        most_ms=ordered[-1],
        own_share=(time.process_time() - cpu) / seconds,
    )
