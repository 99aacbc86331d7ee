"""How fast a signed delivery becomes durable: webhook in, delivery, task and history on disk, 202 out.

The same load goes in turn to three servers: the product, the same server and signature check without a store, and the
same rows in bare SQL with one commit a request. At the end the product shows where a delivery's time goes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from stationmaster.errors import Bug
from stationmaster.gitea import normalise, signature
from stationmaster.ops.bench import deliveries, load, serve
from stationmaster.ops.bench.load import Hits, Shot
from stationmaster.ops.bench.processes import Child, child
from stationmaster.ops.bench.report import Report, machine, spread
from stationmaster.ops.bench.stores import Place, place

AIM_AT = 32
_AIM_RATIO, _AIM_P99_MS = 1.8, 50.0
_VARIANTS: tuple[serve.Variant, ...] = ("product", "none", "plain")
_APART = 10_000_000
_SAMPLES = 300


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, how often, and with how many connections."""

    seconds: float
    rounds: int
    connections: tuple[int, ...] = (1, 8, AIM_AT, 128)
    url: str | None = None


@dataclass(slots=True)
class Field:
    """The servers, the load, and what was found."""

    servers: dict[serve.Variant, Child]
    places: dict[serve.Variant, Place]
    ports: dict[serve.Variant, int]
    load: Child
    hits: dict[tuple[serve.Variant, int], list[Hits]] = field(default_factory=dict)
    # Microseconds of processor time a delivery; it hardly notices who else is at work on the machine.
    cpu: dict[tuple[serve.Variant, int], list[float]] = field(default_factory=dict)
    answered: dict[serve.Variant, int] = field(default_factory=dict)
    after: serve.Told = field(default_factory=lambda: serve.Told(0.0, {}))
    _firsts: Iterator[int] = field(default_factory=lambda: count(0, _APART))

    def fire(self, variant: serve.Variant, connections: int, seconds: float) -> Hits:
        """Gives one server its share of load; raises Bug when it answered anything but 202."""
        before = self._told(variant).cpu_s
        hits: Hits = self.load.ask(Shot(self.ports[variant], connections, seconds, next(self._firsts)))
        self.after = self._told(variant)
        spent = self.after.cpu_s - before
        if set(hits.statuses) != {"202"}:
            raise Bug(f"BUG: the server {variant} answered {hits.statuses}.")
        self.answered[variant] = self.answered.get(variant, 0) + hits.answers
        self.cpu.setdefault((variant, connections), []).append(spent * 1e6 / hits.answers)
        return hits

    def _told(self, variant: serve.Variant) -> serve.Told:
        """Asks a server for what it says of itself."""
        answer: serve.Told = self.servers[variant].ask("how did it go")
        return answer


def run(plan: Plan, folder: Path, report: Report) -> None:
    """Measures and reports."""
    report.line("machine", **machine(folder), engine="sqlite" if plan.url is None else "postgres")
    with _field(folder, plan.url) as ground:
        for variant in ground.servers:
            ground.fire(variant, 8, plan.seconds / 2)
        for number in range(plan.rounds):
            report.note(f"round {number + 1} of {plan.rounds}")
            for connections in plan.connections:
                for at in range(len(_VARIANTS)):
                    variant = _VARIANTS[(at + number) % len(_VARIANTS)]
                    hits = ground.fire(variant, connections, plan.seconds)
                    ground.hits.setdefault((variant, connections), []).append(hits)
        _tell_speed(plan, ground, report)
        for connections in sorted({1, AIM_AT} & set(plan.connections)):
            _tell_parts(ground, connections, plan.seconds, report)
        _tell_stored(ground, report)


@contextlib.contextmanager
def _field(folder: Path, url: str | None) -> Iterator[Field]:
    with contextlib.ExitStack() as stack:
        variants: tuple[serve.Variant, ...] = (*_VARIANTS, "traced")
        places = {name: stack.enter_context(place(folder, name, url)) for name in variants}
        servers = {name: stack.enter_context(child(serve.serve, name, places[name])) for name in variants}
        ports = {name: server.heard() for name, server in servers.items()}
        yield Field(servers, places, ports, stack.enter_context(child(load.serve)))


def _tell_speed(plan: Plan, ground: Field, report: Report) -> None:
    for connections in plan.connections:
        rounds = {variant: ground.hits[variant, connections] for variant in _VARIANTS}
        for variant, hits in rounds.items():
            report.line(
                "speed",
                connections=connections,
                variant=variant,
                per_second=spread([hit.per_second for hit in hits]),
                p50_ms=spread([hit.p50_ms for hit in hits]),
                p99_ms=spread([hit.p99_ms for hit in hits]),
                cpu_us=spread(ground.cpu[variant, connections][-len(hits) :]),
                rounds=len(hits),
                load_cpu=spread([hit.own_share for hit in hits]),
            )
        pairs = zip(rounds["product"], rounds["plain"], strict=True)
        ratio = spread([ours.per_second / bare.per_second for ours, bare in pairs])
        report.line("ratio", connections=connections, product_to_plain=ratio)
        if connections == AIM_AT:
            words = f"times the speed of one commit a request, at {AIM_AT} connections"
            report.aim(words, ratio.median, _AIM_RATIO, at_least=True)
            slowest = spread([hit.p99_ms for hit in rounds["product"]]).median
            report.aim(f"p99 in ms at {AIM_AT} connections", slowest, _AIM_P99_MS, at_least=False)


def _tell_parts(ground: Field, connections: int, seconds: float, report: Report) -> None:
    """Says where a delivery's time goes, as means: only means add up."""
    hits = ground.fire("traced", connections, seconds)
    parts = ground.after.parts
    group, inside = parts.pop("group"), parts.pop("inside")
    whole = hits.mean_ms * 1000
    signed, read = _alone()
    where = {
        "http and the queue before the handler": whole - inside,
        f"signature, parse, normalise (alone: {signed:.0f} + {read:.0f})": parts["check"],
        "hash of the arguments, hand-over to the writer": parts["hand_over"],
        "wait for the writer": parts["wait"],
        "body: look, write, guards, journal": parts["body"],
        "wait for the others of the commit": parts["others"],
        "commit": parts["commit"],
        "way back to the event loop": parts["back"],
        "answer": parts["answer"],
    }
    for name, micros in where.items():
        share = round(100 * micros / whole, 1)
        report.line(f"time at {connections}", part=name, mean_us=round(micros, 1), percent=share)
    report.line(f"time at {connections}", part="whole", mean_us=round(whole, 1), percent=100.0)
    report.line("commits", connections=connections, deliveries_a_commit=group, per_second=hits.per_second)


def _alone() -> tuple[float, float]:
    """Returns the microseconds of the signature and of reading one delivery while nothing else runs here."""
    made = deliveries.Deliveries()
    settings = deliveries.settings()
    secrets = [secret.reveal().encode() for secret in settings.webhook_secrets]
    rules = normalise.Rules(frozenset({"gitea.example.com:443"}), settings.bot_login)
    bodies = [made.body(number) for number in range(_SAMPLES)]
    headers = [made.headers(number, body) for number, body in enumerate(bodies)]
    began = time.perf_counter()
    for head, body in zip(headers, bodies, strict=True):
        signature.verified(head, body, secrets)
    signed = time.perf_counter()
    for head, body in zip(headers, bodies, strict=True):
        normalise.normalise(head, body, rules)
    read = time.perf_counter()
    return (signed - began) * 1e6 / _SAMPLES, (read - signed) * 1e6 / _SAMPLES


def _tell_stored(ground: Field, report: Report) -> None:
    """Holds what was answered against what is stored: an answer without its task would make every figure a lie."""
    for variant in ("product", "plain"):
        ground.servers[variant].end()
        stored = ground.places[variant].count("gitea_task")
        report.line("stored", variant=variant, answered=ground.answered[variant], tasks=stored)
        if stored != ground.answered[variant]:
            raise Bug(f"BUG: {variant}: {ground.answered[variant]} answers, {stored} tasks.")
