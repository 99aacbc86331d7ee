"""The verbs of `stationmaster bench`; what they measure with is loaded by the verb, since every start pays for this."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stationmaster.ops.bench.report import Report

app = typer.Typer(no_args_is_help=True, help="Measures this machine and this version; works on databases of its own.")

# Often a disk where the folder for temporary files is memory, and a commit to memory measures nothing.
_FOLDER = Path("/var/tmp")  # noqa: S108 - a folder with a name of its own is made inside

_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]
_Quick = Annotated[bool, typer.Option("--quick", help="Run once and briefly: shows that it works, not how fast.")]
_Dir = Annotated[Path, typer.Option("--dir", help="Where the databases go while it runs; on the disk to be measured.")]
_Postgres = Annotated[str | None, typer.Option("--postgres", help="Measure on this PostgreSQL, in schemas of our own.")]
_Seconds = Annotated[float, typer.Option(min=0.05, help="How long each shot of load lasts.")]
_Rounds = Annotated[int, typer.Option(min=1, help="How often everything is measured, in turn.")]


@contextmanager
def _reported(name: str, folder: Path, *, as_json: bool) -> Iterator[tuple[Path, Report]]:
    from stationmaster.ops.bench.report import Report  # noqa: PLC0415 - loaded to be used

    report = Report(name, as_json)
    with tempfile.TemporaryDirectory(prefix="stationmaster-bench-", dir=folder) as own:
        yield Path(own), report
    report.end()


@app.command("accept")
def accept_verb(
    *,
    seconds: _Seconds = 2.0,
    rounds: _Rounds = 5,
    quick: _Quick = False,
    postgres: _Postgres = None,
    folder: _Dir = _FOLDER,
    as_json: _Json = False,
) -> None:
    """Webhook in, durable delivery, task and history, 202 out; beside no store, and one commit a request."""
    from stationmaster.ops.bench import accept  # noqa: PLC0415 - loaded to be used

    plan = accept.Plan(0.2, 1, url=postgres) if quick else accept.Plan(seconds, rounds, url=postgres)
    with _reported("accept", folder, as_json=as_json) as (own, report):
        accept.run(plan, own, report)


@app.command("claim")
def claim_verb(
    *,
    rows: Annotated[list[int] | None, typer.Option(min=1000, help="A number of tasks; may be given again.")] = None,
    claims: Annotated[int, typer.Option(min=1, help="How many claims a round.")] = 200,
    rounds: _Rounds = 5,
    quick: _Quick = False,
    postgres: _Postgres = None,
    folder: _Dir = _FOLDER,
    as_json: _Json = False,
) -> None:
    """Repository lease and move of a task among ever more rows; beside the time among the fewest."""
    from stationmaster.ops.bench import claim  # noqa: PLC0415 - loaded to be used

    usual = (1_000, 3_000) if quick else (1_000, 100_000, 1_000_000) if postgres is None else (1_000, 100_000)
    chosen = tuple(rows) if rows else usual
    plan = claim.Plan(chosen, 20, 1, postgres) if quick else claim.Plan(chosen, claims, rounds, postgres)
    with _reported("claim", folder, as_json=as_json) as (own, report):
        claim.run(plan, own, report)


@app.command("command")
def command_verb(
    *,
    commands: Annotated[int, typer.Option(min=1, help="How many commands a round, at least a group.")] = 1_920,
    rounds: _Rounds = 7,
    quick: _Quick = False,
    postgres: _Postgres = None,
    folder: _Dir = _FOLDER,
    as_json: _Json = False,
) -> None:
    """One guarded command; beside the same rows in bare SQL without triggers, with as many commits."""
    from stationmaster.ops.bench import command  # noqa: PLC0415 - loaded to be used

    wanted = max(commands, command.GROUP)
    plan = command.Plan(command.GROUP * 2, 1, postgres) if quick else command.Plan(wanted, rounds, postgres)
    with _reported("command", folder, as_json=as_json) as (own, report):
        command.run(plan, own, report)
