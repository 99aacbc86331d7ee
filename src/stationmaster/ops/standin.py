"""Mounts the stand-ins on the command line; each prints one JSON line when it listens and runs until it is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="A forge and a model to try Stationmaster with, without accounts.")

_Port = Annotated[int, typer.Option(help="The port to listen on; 0 for any free one.", min=0, max=65535)]


@app.command()
def forge(
    folder: Annotated[Path, typer.Option("--dir", help="Folder that keeps its users, repositories and comments.")],
    port: _Port = 0,
    faults: Annotated[Path | None, typer.Option(help="JSON file of faults to play, for tests.")] = None,
) -> None:
    """Runs a Gitea-compatible server."""
    from stationmaster.standins.forge import server  # noqa: PLC0415 - loaded only to be used

    server.main(port, folder, faults)


@app.command()
def model(
    port: _Port = 0,
    scenario: Annotated[Path | None, typer.Option(help="JSON file of what the model says.")] = None,
) -> None:
    """Runs a scripted model that speaks the Responses API."""
    from stationmaster.standins.responses_model import server  # noqa: PLC0415 - loaded only to be used

    server.main(port, scenario)


@app.command(
    "gitea-mcp",
    # What follows is for the program itself, which knows other flags in each of its versions.
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["--help"]},
)
def gitea_mcp(context: typer.Context) -> None:
    """Runs a gitea-mcp on standard input and output; --dialect 0.4, 1.0 or 1.8, and --play what goes wrong."""
    from stationmaster.ops import config  # noqa: PLC0415 - loaded only to be used
    from stationmaster.standins.gitea_mcp import server  # noqa: PLC0415 - loaded only to be used

    raise typer.Exit(server.main(context.args, config.environment()))
