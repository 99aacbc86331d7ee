"""Command lines with a form of their own: the audit with its proof chain, and a task as it changes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from stationmaster.control import render, watch
from stationmaster.control.audit import audit
from stationmaster.control.cli import OpenDoor
from stationmaster.control.proof import Proof
from stationmaster.control.socket import Door
from stationmaster.errors import NotFound

_PAGE = 1000
_COLUMNS = ("seq", "timestamp", "actor", "action", "fromState", "toState", "outcome", "errorCode")


def mount(root: typer.Typer, open_door: OpenDoor) -> None:
    """Adds `audit` and `task watch`."""
    tasks = next(group.typer_instance for group in root.registered_groups if group.name == "task")
    if tasks is not None:
        watch.mount(tasks, open_door)

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
            found = events(door, wire)
            first = next(found, None)
            if first is None and task is not None:
                # No task is without a history, so this is an answer of its own and not an empty one.
                raise NotFound(
                    f"There is no task {task}.",
                    code="task_not_found",
                    hint="`stationmaster task list` shows the tasks there are.",
                )
            _print_audit(itertools.chain(() if first is None else (first,), found), as_json=as_json)


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
    proof = Proof()
    shown = []
    for event in found:
        proof.add(event)
        if as_json:
            typer.echo(json.dumps(event, ensure_ascii=False))
        else:
            shown.append(event)
    if as_json:
        typer.echo(json.dumps({"chain": proof.ids}, ensure_ascii=False))
        return
    typer.echo(render.table(shown, _COLUMNS))
    if rows := proof.lines():
        typer.echo("\nProof, from this history alone:\n" + render.aligned(rows))
