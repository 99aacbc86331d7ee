"""`stationmaster canon`: brings JSON into the one form by which snapshots are hashed; needs no home and no database."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from stationmaster.canonical import Canon, canon
from stationmaster.errors import Invalid

_UNREADABLE = 2


def mount(root: typer.Typer) -> None:
    """Adds the command."""

    @root.command("canon")
    def _canon(
        file: Annotated[str, typer.Argument(metavar="[FILE|-]", help="The JSON file; - is standard input.")] = "-",
        *,
        jsonl: Annotated[
            bool,
            typer.Option(
                "--jsonl",
                help='Read lines {"id", "input"}, the input being JSON text, and answer each by a line of its own. '
                "Exit status: 0 when every line was answered, 2 when one could not be read.",
            ),
        ] = False,
    ) -> None:
        """Prints a JSON value's canonical form and its hash (fc.canon.v1)."""
        if not jsonl:
            typer.echo(json.dumps(_form(canon(_whole(file)))))
            return
        unreadable = False
        for answer, readable in _answers(file):
            unreadable = unreadable or not readable
            typer.echo(json.dumps(answer))
        raise typer.Exit(_UNREADABLE if unreadable else 0)


def _form(made: Canon) -> dict[str, str]:
    return {"canonical": made.text, "sha256": made.sha256}


def _answers(file: str) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yields what is said of each line, in order, and whether the line could be read."""
    with _opened(file) as lines:
        for number, line in enumerate(lines, 1):
            try:
                asked = _asked(line)
            except ValueError:
                why = f'Line {number} is not an object with "id" and "input", the input being text.'
                yield {"id": None, "error": why}, False
                continue
            try:
                yield {"id": asked["id"], **_form(canon(asked["input"]))}, True
            except Invalid as error:
                yield {"id": asked["id"], "error": error.message, "code": error.code}, True


def _asked(line: bytes) -> dict[str, Any]:
    asked = json.loads(line.decode())
    if not isinstance(asked, dict) or "id" not in asked or not isinstance(asked.get("input"), str):
        raise ValueError(line)
    return asked


def _whole(file: str) -> bytes:
    with _opened(file) as given:
        return given.read()


def _opened(file: str) -> BinaryIO:
    if file == "-":
        return sys.stdin.buffer
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise Invalid(
            f"{file} cannot be read: {error.strerror}.", code="invalid_request", hint="Name a file, or - for input."
        ) from error
