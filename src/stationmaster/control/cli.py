"""The command line's commands, made from the same declarations as the REST routes.

Prints the answer on standard output, for people or with `--json` for programs; errors are worded in `ops.main`.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Annotated, Any, Literal

import typer

from stationmaster import ids
from stationmaster.control import render
from stationmaster.control.commands import Command, Field, fields
from stationmaster.control.socket import Door
from stationmaster.errors import Busy

OpenDoor = Callable[[], AbstractContextManager[Door]]

_GROUPS = {
    "hold": "Tasks that a limit keeps back.",
    "operator": "Keys for people and programs that use the HTTP API.",
    "retention": "How long payloads are kept.",
    "repo": "Repositories that Stationmaster knows.",
    "task": "Tasks: one for every mention that was accepted.",
}
# What of a long row a person looks at first; `--json` has all of it.
_COLUMNS: Mapping[str, Sequence[str]] = {
    "tasks": ("taskId", "state", "author", "resourceKey", "attempt", "errorCode", "updatedAt"),
    "repositories": ("repoKey", "status", "defaultBranch", "homeWorker", "lastFetchAt", "updatedAt"),
    "holds": ("taskId", "reason", "until", "author", "resourceKey"),
    "activeLeases": ("repoKey", "taskId", "owner", "fence", "expiresAt"),
    "turns": ("turnRef", "turnId", "kind", "status", "errorCode", "startedAt", "completedAt"),
    "comments": ("commentKey", "kind", "status", "commentId", "errorCode", "updatedAt"),
    "followUps": ("at", "author", "instruction"),
}
# A little more than an abort may take by default (GW-R-179).
_WAIT_S = 75.0
_PAUSE_S = 0.3
_WAIT = Annotated[
    float,
    typer.Option("--wait", help="Seconds to wait until a running daemon has finished it; 0 returns at once."),
]
_JSON = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


def mount(root: typer.Typer, commands: Sequence[Command[Any, Any]], open_door: OpenDoor) -> dict[str, typer.Typer]:
    """Adds every command that has a command line to `root`; returns the groups for what is written by hand."""
    groups: dict[str, typer.Typer] = {}
    for name, about in _GROUPS.items():
        groups[name] = typer.Typer(no_args_is_help=True, help=about)
        root.add_typer(groups[name], name=name)
    for command in commands:
        if command.cli:
            group, _, verb = command.cli.rpartition(" ")
            (groups[group] if group else root).command(verb, help=command.summary)(_callback(command, open_door))
    return groups


def show(body: Any, *, as_json: bool) -> None:
    """Prints an answer."""
    typer.echo(json.dumps(body, ensure_ascii=False) if as_json else render.page(body, _COLUMNS))


def _callback(command: Command[Any, Any], open_door: OpenDoor) -> Callable[..., None]:
    inputs = fields(command.inputs)

    def call(**given: Any) -> None:
        as_json, wait_s = given.pop("as_json"), given.pop("wait", 0.0)
        wire = {field.wire: given[field.name] for field in inputs}
        if "requestId" in wire:
            wire["requestId"] = wire["requestId"] or ids.new("cli")
        with open_door() as door:
            answer = door.call(command, wire)
            if door.live and isinstance(answer, dict) and answer.get("pending"):
                answer = _finished(door, command, wire, answer, wait_s)
        show(answer, as_json=as_json)

    parameters = [_parameter(command, field) for field in inputs]
    parameters.append(inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_JSON))
    if command.later:
        parameters.append(inspect.Parameter("wait", inspect.Parameter.KEYWORD_ONLY, default=_WAIT_S, annotation=_WAIT))
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _finished(
    door: Door, command: Command[Any, Any], wire: Mapping[str, Any], accepted: dict[str, Any], wait_s: float
) -> Any:
    """Repeats an accepted request, which tells how it ended as soon as that is known, or returns what was accepted."""
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        time.sleep(_PAUSE_S)
        try:
            return door.call(command, wire)
        except Busy as error:
            if error.code != "request_in_progress":
                raise
    return accepted


def shape(command: Command[Any, Any]) -> str:
    """Returns how a command is written on the command line, for the reference page."""
    words = [command.cli]
    for field in fields(command.inputs):
        if _is_argument(command, field):
            words.append(field.name.upper())
        elif field.required and field.wire != "requestId":
            words.append(f"{_flag(field)} {field.name.upper()}")
        else:
            words.append(f"[{_flag(field)} {field.name.upper()}]")
    if command.later:
        words.append("[--wait SECONDS]")
    return " ".join(words)


def _parameter(command: Command[Any, Any], field: Field) -> inspect.Parameter:
    kind: Any = Literal[field.choices] if field.choices else field.type
    if _is_argument(command, field):
        info: Any = typer.Argument(help=field.about, show_default=False)
    else:
        info = typer.Option(_flag(field), help=field.about, show_default=field.default is not None)
    needed = field.required and field.wire != "requestId"
    if not needed and field.default is None:
        kind = kind | None
    default = inspect.Parameter.empty if needed else field.default
    annotation: Any = Annotated[kind, info]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _flag(field: Field) -> str:
    return f"--{field.name.replace('_', '-')}"


def _is_argument(command: Command[Any, Any], field: Field) -> bool:
    """The thing that a command is about stands without a flag; why and under which id have one."""
    if field.wire in command.in_path:
        return True
    return command.method == "POST" and field.required and field.wire not in {"reason", "requestId"}
