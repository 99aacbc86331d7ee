"""How an error reaches whoever typed a command: a sentence for people, one JSON object a line for programs.

Both go to standard error, so that standard output holds answers only; the exit code is the same for both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import typer

from stationmaster import redact
from stationmaster.control import errors
from stationmaster.errors import StationmasterError

USAGE = 2
ABORTED = 1

# Typer keeps the root of its errors of usage to itself, and shows these.
_WrongWords = cast("type[Exception]", typer.BadParameter.__mro__[2])


def wants_json(words: Sequence[str]) -> bool:
    """Tells whether a command line asks for JSON; what stands after `--` is not ours."""
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def error(told: StationmasterError, *, as_json: bool) -> int:
    """Says what went wrong; returns the exit code."""
    code = errors.exit_code(told)
    if not as_json:
        typer.echo(redact.clean(f"stationmaster: {told}"), err=True)
        return code
    body = errors.body(told)
    message = told.message if told.kind != "bug" else str(body["message"])
    said = {"error": body["error"], "kind": told.kind, "message": redact.clean(message)}
    if told.hint:
        said["hint"] = redact.clean(told.hint)
    _write(said | {name: body[name] for name in ("details",) if name in body}, code)
    return code


def run(app: Callable[..., Any]) -> int:
    """Runs a command line that asked for JSON, with errors of usage as JSON too; returns the exit code."""
    try:
        ended = app(standalone_mode=False)
    except typer.Abort:
        _write({"error": "aborted", "kind": "invalid", "message": "Nothing was done."}, ABORTED)
        return ABORTED
    except _WrongWords as wrong:
        _write(_usage(wrong), USAGE)
        return USAGE
    return ended if isinstance(ended, int) else 0


def _usage(wrong: Any) -> dict[str, Any]:
    words = redact.clean(" ".join(str(wrong.format_message()).split()))
    command = wrong.ctx.command_path if wrong.ctx is not None else "stationmaster"
    return {
        "error": "usage",
        "kind": "invalid",
        "message": words,
        "hint": f"`{command} --help` says how it is written.",
    }


def _write(said: dict[str, Any], code: int) -> None:
    sys.stderr.write(json.dumps(said | {"exitCode": code}, ensure_ascii=False) + "\n")
