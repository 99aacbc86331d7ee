"""`stationmaster backup …`: through the control socket while the daemon runs, in this process otherwise."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from stationmaster.clock import SystemClock
from stationmaster.control import cli, grants, upkeep
from stationmaster.control.socket import Door
from stationmaster.ops import config as configuration
from stationmaster.ops import wiring
from stationmaster.ops.backup import proof, restore
from stationmaster.ops.home import Home, locked
from stationmaster.ops.settings import Config

_Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
_File = Annotated[Path, typer.Argument(help="The file of the backup.", show_default=False)]
_Target = Annotated[
    Path | None, typer.Argument(help="A new file or an existing folder; else <home>/backups.", show_default=False)
]


def group(
    find_home: Callable[[], Home],
    load: Callable[[], tuple[Home, Config]],
    door: Callable[[], AbstractContextManager[Door]],
) -> typer.Typer:
    """Makes the commands; `find_home` gives the home alone, for settings that are not there yet."""
    app = typer.Typer(no_args_is_help=True, help="Copies of the whole installation.")

    @app.command()
    def create(path: _Target = None, *, as_json: _Json = False) -> None:
        """Makes a copy of the ledger and of what it refers to on disk, while everything runs."""
        wanted = None if path is None else str(path.expanduser().absolute())
        with door() as opened:
            cli.show(opened.call(upkeep.backup, {"path": wanted}), as_json=as_json)

    @app.command()
    def verify(file: _File, *, as_json: _Json = False) -> None:
        """Proves a backup: its hashes, its ledger with guards and journal, its branches; changes nothing."""
        home, loaded = load()
        cli.show(proof.verify(wiring.judge(loaded, home), file), as_json=as_json)

    @app.command("restore")
    def bring_back(file: _File, *, as_json: _Json = False) -> None:
        """Brings a backup back into an empty home; nothing may run on it meanwhile."""
        home = find_home()
        restore.require_file(file)
        with locked(home, wait_s=wiring.LOCK_WAIT_S):
            restore.settings(home, file)
            loaded = configuration.load(home)
            clock = SystemClock()
            target = restore.Target(
                wiring.backup_source(loaded, home, clock),
                lambda: wiring.reopened(loaded, home, clock),
                grants.own().principal.actor,
            )
            cli.show(restore.restore(wiring.judge(loaded, home), target, file), as_json=as_json)

    return app
