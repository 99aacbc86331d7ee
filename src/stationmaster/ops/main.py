"""The root of the command line: what runs or shows the installation; `control.cli` adds the commands of the API.

Every error is one sentence (with `--json` one object) on standard error and an exit code by its kind; a traceback never
reaches a user.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import traceback
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from stationmaster import redact
from stationmaster.agents.codex_app import login
from stationmaster.control import cli, follow
from stationmaster.control.registry import COMMANDS
from stationmaster.control.socket import Door, opened
from stationmaster.errors import Bug, StationmasterError
from stationmaster.ops import canon, config, config_text, daemon, guards, logs, standin, tell, wiring
from stationmaster.ops.backup import cli as backup
from stationmaster.ops.bench import main as bench
from stationmaster.ops.doctor import checks
from stationmaster.ops.home import Home, prepare
from stationmaster.ops.init import cli as init
from stationmaster.ops.settings import Config

_INTERRUPTED = 130

app = typer.Typer(
    name="stationmaster",
    help="Takes custody of work for coding agents, runs it once and proves the result.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
codex_app = typer.Typer(no_args_is_help=True, help="The agent's own account.")
config_app = typer.Typer(no_args_is_help=True, help="The effective configuration.")
app.add_typer(codex_app, name="codex")
app.add_typer(config_app, name="config")
app.add_typer(standin.app, name="standin")
app.add_typer(bench.app, name="bench")

_Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


class _Given:
    """What the root options said; one process runs one command line."""

    home: Path | None = None


@app.callback()
def _root(
    home: Annotated[
        Path | None,
        typer.Option(help="The home folder; else STATIONMASTER_HOME, else ~/.stationmaster."),
    ] = None,
) -> None:
    _Given.home = home
    # Until a command knows better: a log that nobody set up would write between the answers.
    logs.setup("warning", "keyvalue")


def _load() -> tuple[Home, Config]:
    home = prepare(config.home_path(_Given.home))
    return home, config.load(home)


@contextlib.contextmanager
def _door() -> Iterator[Door]:
    home, loaded = _load()
    logs.setup("warning", loaded.log.format)
    with opened(home.socket, lambda: wiring.local_app(loaded, home)) as door:
        yield door


@app.command()
def up(*, as_json: _Json = False) -> None:
    """Runs Stationmaster in the foreground until it is told to stop."""
    home, loaded = _load()
    logs.setup(loaded.log.level, loaded.log.format)
    config.check_secrets(loaded)
    config.arm_faults()

    def announce(address: daemon.Address) -> None:
        if as_json:
            typer.echo(json.dumps({"ready": True, **dataclasses.asdict(address)}))
        else:
            webhook = f"{address.web}/api/gitea/webhook" if address.forge else f"none: {loaded.source} names no forge"
            typer.echo(f"Stationmaster is ready.\n  webhook  {webhook}\n  console  {address.web}/console/")
            typer.echo(f"  control  {address.socket}\n  home     {address.home}")
        sys.stdout.flush()

    daemon.run(home, loaded, announce)


@config_app.command("show")
def config_show(*, as_json: _Json = False) -> None:
    """Shows the effective configuration; secrets are shown as references."""
    _, loaded = _load()
    values = config_text.plain(loaded)
    typer.echo(json.dumps(values) if as_json else config_text.toml(values), nl=as_json)


@codex_app.command("login", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def codex_login(context: typer.Context) -> None:
    """Logs in to Codex on this terminal and keeps the login in codex.home; --device-auth and the like are passed on."""
    _, loaded = _load()
    raise typer.Exit(login.login(wiring.codex_settings(loaded), env=config.environment(), args=context.args))


@app.command()
def doctor(
    *,
    as_json: _Json = False,
    spend: Annotated[
        bool, typer.Option("--spend", help="Also let the model answer once, which costs a little.")
    ] = False,
) -> None:
    """Looks at the whole installation, changes nothing, and says of each part whether it works and what to do."""
    logs.setup("error", "keyvalue")
    healthy = checks.examine(
        Home(config.home_path(_Given.home)),
        lambda finding: typer.echo(finding.json() if as_json else finding.line()),
        spend=spend,
    )
    raise typer.Exit(0 if healthy else 1)


@app.command("restore-guards")
def restore_guards(
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept in the history.")], *, as_json: _Json = False
) -> None:
    """Puts back the guards of the ledger that somebody changed by hand; look at what doctor says of them first."""
    home, loaded = _load()
    logs.setup("warning", loaded.log.format)
    faults = guards.restore(home, loaded, reason)
    if as_json:
        typer.echo(json.dumps({"restored": True, "faults": faults}))
    else:
        typer.echo("\n".join([*faults, f"The guards are those of this program; {len(faults)} faults."]))


@app.command()
def demo(*, keep: Annotated[bool, typer.Option("--keep", help="Stay up afterwards until Ctrl-C.")] = False) -> None:
    """Shows the whole life of a mention with a forge and a model of its own; needs no account and leaves nothing."""
    from stationmaster.ops.demo import story  # noqa: PLC0415 - the stand-ins are loaded only to be used

    raise typer.Exit(story.play(typer.echo, keep=keep))


@app.command()
def version(*, as_json: _Json = False) -> None:
    """Shows the version."""
    found = metadata.version("stationmaster")
    typer.echo(json.dumps({"version": found}) if as_json else f"stationmaster {found}")


cli.mount(app, COMMANDS, _door)
app.add_typer(backup.group(lambda: prepare(config.home_path(_Given.home)), _load, _door), name="backup")
follow.mount(app, _door)
canon.mount(app)
init.mount(app, lambda: prepare(config.home_path(_Given.home)), config.arm_faults)


def main() -> None:
    """Runs the command line and exits with the code of what happened."""
    sys.argv[1:] = _home_first(sys.argv[1:])
    as_json = tell.wants_json(sys.argv[1:])
    try:
        if as_json:
            sys.exit(tell.run(app))
        app()
    except StationmasterError as error:
        sys.exit(tell.error(error, as_json=as_json))
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except Exception:  # noqa: BLE001 - the last fence before the user
        sys.exit(tell.error(_unforeseen(), as_json=as_json))


def _home_first(argv: Sequence[str]) -> list[str]:
    """Moves `--home` to where the root expects it, so that people may write it anywhere."""
    for index, word in enumerate(argv):
        if word == "--":
            break
        if word == "--home" and index + 1 < len(argv):
            return ["--home", argv[index + 1], *argv[:index], *argv[index + 2 :]]
        if word.startswith("--home="):
            return [word, *argv[:index], *argv[index + 1 :]]
    return list(argv)


def _unforeseen() -> Bug:
    """Keeps the details of an unforeseen exception for whoever mends it, and words it for the user."""
    details = redact.clean(traceback.format_exc())
    note = config.home_path(_Given.home) / "last-error.txt"
    try:
        note.touch(mode=0o600)
        note.write_text(details)
        hint = f"The details are in {note}."
    except OSError:
        hint = f"It was: {details.strip().splitlines()[-1]}"
    return Bug("Stationmaster met a mistake of its own.", hint=hint)


if __name__ == "__main__":
    main()
