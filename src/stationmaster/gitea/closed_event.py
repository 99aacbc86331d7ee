"""Reads from a delivery that an issue or pull request was closed or merged; pure, and None for everything else."""

from __future__ import annotations

from typing import Final

import msgspec

from stationmaster import clock
from stationmaster.gitea.payload import Id

ROUTES: Final = {"issues": "issue", "pull_request": "pull_request"}


class Closed(msgspec.Struct, frozen=True):
    """That an issue or pull request was closed or merged; `at` is the forge's time, in microseconds."""

    instance_id: str
    delivery_id: str
    event_type: str
    native_id: int
    kind: str
    number: int
    at: int


class _What(msgspec.Struct, frozen=True):
    number: Id
    merged_at: str | None = None
    closed_at: str | None = None
    updated_at: str | None = None
    pull_request: dict[str, msgspec.Raw] | None = None


class _Where(msgspec.Struct, frozen=True):
    id: Id


class _Payload(msgspec.Struct, frozen=True):
    action: str
    repository: _Where
    issue: _What | None = None
    pull_request: _What | None = None


_decoder = msgspec.json.Decoder(_Payload)


def read(route: str, sent_id: str, body: bytes, instance_id: str) -> Closed | None:
    """Returns what was closed, or None when the delivery says something else, or not when it happened."""
    if route not in ROUTES or not sent_id:
        return None
    try:
        said = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    what = said.pull_request if route == "pull_request" else said.issue
    if said.action != "closed" or what is None:
        return None
    at = _time(what)
    if at is None:
        return None
    # Old servers tell of a pull request as of an issue.
    seen_as_issue = route == "issues" and what.pull_request is not None
    kind = "pull_request" if seen_as_issue else ROUTES[route]
    return Closed(instance_id, sent_id, route, said.repository.id, kind, what.number, at)


def _time(what: _What) -> int | None:
    # A time that was never set is null, or a date at the beginning of all time.
    for text in (what.merged_at, what.closed_at, what.updated_at):
        try:
            at = clock.from_iso(text) if text else 0
        except (ValueError, OverflowError):
            continue
        if at > 0:
            return at
    return None
