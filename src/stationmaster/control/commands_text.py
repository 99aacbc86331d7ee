"""The reference page of the commands, made from their declarations."""

from __future__ import annotations

from typing import Any

from stationmaster.control.cli import shape
from stationmaster.control.commands import Command, fields
from stationmaster.control.errors import MEANINGS
from stationmaster.control.registry import COMMANDS

_HEAD = """# Commands

Generated from the declarations in `src/stationmaster/control` by `make docs`; do not edit.

Over HTTP every command needs `Authorization: Bearer <operator key>`; `stationmaster operator add NAME` makes one. The
command line needs no key: it uses the control socket of the running daemon, whose peer is the home's own user, and
without a daemon opens the home itself. Every command line takes `--json`.

Bodies are JSON objects; an unknown field is refused. A change carries a `requestId` of the caller's choosing and a
`reason`: the same id again gets the first answer and has no second effect; the same id with anything else is refused
(`request_id_conflict`). The command line makes up the id unless `--request-id` gives one.

What a worker has to finish is answered with 202 and `"pending": true`. A repeat is refused (`request_in_progress`)
until it is finished, and then answered with how it ended; the command line waits for that.

An error is `{"error": code, "message": sentence, "details": {...}}`:

| kind | HTTP status | exit code | code unless a better one is known |
|---|---|---|---|
"""


_TAIL = """
## Command lines of their own

- `stationmaster audit [--task ID] [--repo KEY] …` prints events and, last, the proof chain that they make: delivery,
  task, session, thread, turn, comment. With `--json` one event a line, then `{"chain": {…}}`.
- `stationmaster task watch ID` follows a task until it rests, a line for each thing that happens. Exit status: 0 it
  succeeded, 10 it failed, 11 somebody stopped it, 12 it waits for its user, 13 its workspace is blocked.
- `stationmaster canon [FILE|-]` prints a JSON value in the one form by which snapshots are hashed (`fc.canon.v1`), with
  its SHA-256. With `--jsonl` it answers lines `{"id", "input"}` by lines `{"id", "canonical", "sha256"}` or
  `{"id", "error", "code"}`.
"""


def render() -> str:
    """Returns docs/commands.md."""
    kinds = [
        f"| {kind} | {meaning.status} | {meaning.exit_code} | `{meaning.code}` |\n"
        for kind, meaning in MEANINGS.items()
    ]
    return "".join([_HEAD, *kinds, *(_section(command) for command in COMMANDS), _TAIL])


def _section(command: Command[Any, Any]) -> str:
    lines = [f"\n## {command.name}\n\n{command.summary}\n"]
    lines.append(f"- HTTP: `{command.method} {command.path}`\n")
    if command.cli:
        lines.append(f"- Command line: `stationmaster {shape(command)}`\n")
    lines.append(f"- Needs: {command.grant.__name__.lower()}\n")
    inputs = fields(command.inputs)
    if inputs:
        lines.append("\n| input | type | needed | meaning |\n|---|---|---|---|\n")
    for field in inputs:
        kind = " or ".join(f"`{choice}`" for choice in field.choices) or field.type.__name__
        needed = "yes" if field.required else "no" if field.default is None else f"no (`{field.default}`)"
        lines.append(f"| `{field.wire}` | {kind} | {needed} | {field.about} |\n")
    return "".join(lines)
