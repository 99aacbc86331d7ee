"""Follows a task on the command line until it rests: a line for each thing that happens, `--json` an object a line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer

from stationmaster.control import render
from stationmaster.control.cli import OpenDoor
from stationmaster.control.socket import Door
from stationmaster.control.timeline import timeline
from stationmaster.errors import Unavailable

# How a watch ends, told by its exit status; 2 to 8 and 70 are those of errors.
EXITS = {
    "succeeded": 0,
    "succeeded_with_rest_fallback": 0,
    "failed": 10,
    "failed_reply": 10,
    "cancelled": 11,
    "aborted": 11,
    "waiting_user": 12,
    "blocked_workspace": 13,
}
_OTHER = 14
_PAUSE_S = 0.5
_CELL = 110
_ASIDE = {"token_usage", "thread_started", "turn_started", "item_started"}


def mount(task: typer.Typer, open_door: OpenDoor) -> None:
    """Adds `task watch`."""

    @task.command(
        "watch",
        help="Follows a task until it rests. Exit status: 0 it succeeded, 10 it failed, 11 somebody stopped it, "
        "12 it waits for its user, 13 its workspace is blocked.",
    )
    def _watch(
        task_id: Annotated[str, typer.Argument(help="The task's id.", show_default=False)],
        *,
        as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    ) -> None:
        with open_door() as door:
            state = _follow(door, task_id, as_json=as_json)
        raise typer.Exit(EXITS.get(state, _OTHER))


def _follow(door: Door, task_id: str, *, as_json: bool) -> str:
    state = ""
    for row in happenings(door, task_id):
        state = row["state"]
        if row["kind"] == "end":
            said = (
                json.dumps({"kind": "end", "taskId": task_id, "state": state}) if as_json else f"{task_id} is {state}."
            )
            typer.echo(said)
        elif as_json:
            typer.echo(json.dumps({name: value for name, value in row.items() if name != "state"}, ensure_ascii=False))
        elif words := line(row):
            typer.echo(words)
    return state


def happenings(door: Door, task_id: str, pause: Callable[[float], None] = time.sleep) -> Iterator[dict[str, Any]]:
    """Yields what happens to a task, each with its state at that time, and at last `{"kind": "end"}`.

    Raises Unavailable when the task does not rest and nobody is there to work on it.
    """
    cursor: str | None = None
    while True:
        page = door.call(timeline, {"taskId": task_id, "cursor": cursor})
        cursor = page["nextCursor"]
        for row in page["events"]:
            yield {**row, "state": page["state"]}
        if page["more"]:
            continue
        if page["resting"]:
            yield {"kind": "end", "state": page["state"]}
            return
        if not door.live:
            raise Unavailable(
                f"The task is {page['state']} and no daemon runs here to work on it.",
                code="daemon_unreachable",
                hint="Start it with `stationmaster up`.",
            )
        pause(_PAUSE_S)


def line(row: dict[str, Any]) -> str:
    """Returns one happening as a person reads it, or nothing when it says nothing; texts of strangers are harmless."""
    words = _WORDS[row["kind"]](row)
    if not words:
        return ""
    shown = render.text(words)
    # What an agent says may be a novel; what we say is meant to be read to its end.
    if row["kind"] == "agent" and len(shown) > _CELL:
        shown = shown[: _CELL - 1] + "…"
    return f"{row['at'][11:19]}  {row['kind'].ljust(7)}  {shown}"


def _moved(row: dict[str, Any]) -> str:
    begin = f"{row['fromState']} → {row['toState']}" if row["fromState"] else str(row["toState"])
    by = "" if row["actor"] == "system" else f" by {row['actor']}"
    return f"{begin}{by}"


def _named(row: dict[str, Any]) -> str:
    # A comment's key begins with its task's id, which everybody who watches knows.
    name = str(row["entity"]).partition(":")[2] or str(row["entity"])
    return f"{name} {_moved(row)}"


def _event(row: dict[str, Any]) -> str:
    why = row["sentence"] or row["reason"] or row["code"] or ""
    code = f" ({row['code']})" if row["code"] and row["code"] != why else ""
    outcome = f" {row['outcome']}" if row["outcome"] and row["outcome"] != row["code"] else ""
    return f"{row['action']}{outcome}: {why}{code}"


def _agent(row: dict[str, Any]) -> str:
    return agent_words(row["event"])


def agent_words(event: Mapping[str, Any]) -> str:
    """Words what an agent did; empty when it says nothing to a person."""
    kind = event.get("kind", "")
    if kind in _ASIDE:
        return ""
    if kind == "agent_message":
        return f"says: {event.get('text', '')}"
    if kind == "item_completed":
        return f"{event.get('item_type', '')}: {event.get('summary', '')}"
    if kind == "turn_completed":
        return f"turn {event.get('status', '')} {event.get('error_message', '')}"
    told = event.get("message") or event.get("summary") or event.get("words") or ""
    return f"{kind}: {told}"


_WORDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "state": _moved,
    "comment": _named,
    "branch": _named,
    "turn": _named,
    "event": _event,
    "agent": _agent,
}
