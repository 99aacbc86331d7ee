"""Command lines with a form of their own: the audit in full, and a task as it changes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from stationmaster.control import render
from stationmaster.control.audit import audit
from stationmaster.control.cli import OpenDoor
from stationmaster.control.socket import Door

_PAGE = 1000
_CHAIN = ("deliveryId", "taskId", "sessionKey", "threadId", "turnId", "commentId")
_COLUMNS = ("seq", "timestamp", "actor", "action", "fromState", "toState", "outcome", "errorCode")


def mount(root: typer.Typer, open_door: OpenDoor) -> None:
    """Adds `audit`."""

    @root.command("audit", help="Prints the audit from history alone; with --json one event a line, then the chain.")
    def _audit(
        *,
        task: Annotated[str | None, typer.Option(help="Only events of this task.")] = None,
        delivery: Annotated[str | None, typer.Option(help="… of this webhook delivery.")] = None,
        repo: Annotated[str | None, typer.Option(help="… of this repository.")] = None,
        session: Annotated[str | None, typer.Option(help="… of this conversation.")] = None,
        thread: Annotated[str | None, typer.Option(help="… of this thread of the agent.")] = None,
        turn: Annotated[str | None, typer.Option(help="… of this turn of the agent.")] = None,
        comment: Annotated[str | None, typer.Option(help="… of this comment.")] = None,
        actor: Annotated[str | None, typer.Option(help="… by this actor, such as admin:ann.")] = None,
        action: Annotated[str | None, typer.Option(help="… whose action begins with this.")] = None,
        since: Annotated[str | None, typer.Option(help="… from this time on, such as 2026-01-31T12:00:00Z.")] = None,
        until: Annotated[str | None, typer.Option(help="… before this time.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    ) -> None:
        wire = {
            "taskId": task,
            "deliveryId": delivery,
            "repoKey": repo,
            "sessionKey": session,
            "threadId": thread,
            "turnId": turn,
            "commentId": comment,
            "actor": actor,
            "action": action,
            "since": since,
            "until": until,
        }
        with open_door() as door:
            _print_audit(events(door, wire), as_json=as_json)


def events(door: Door, wire: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields every event that a query finds, page after page."""
    cursor: str | None = None
    while True:
        answer = door.call(audit, {**wire, "cursor": cursor, "limit": _PAGE})
        yield from answer["events"]
        cursor = answer["nextCursor"]
        if cursor is None:
            return


def _print_audit(found: Iterator[dict[str, Any]], *, as_json: bool) -> None:
    chain: dict[str, list[str]] = {name: [] for name in _CHAIN}
    shown = []
    for event in found:
        for name, values in chain.items():
            if event[name] is not None and event[name] not in values:
                values.append(event[name])
        if as_json:
            typer.echo(json.dumps(event, ensure_ascii=False))
        else:
            shown.append(event)
    if as_json:
        typer.echo(json.dumps({"chain": chain}, ensure_ascii=False))
        return
    typer.echo(render.table(shown, _COLUMNS))
    typer.echo("\n" + "\n".join(f"{name.ljust(12)}{render.text(values)}" for name, values in chain.items()))
