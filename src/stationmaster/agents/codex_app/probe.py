"""The proof that the walls stand on this machine: a command is run through Codex's sandbox inside ours.

An exit status proves nothing here, so what the command did is looked at.
"""

from __future__ import annotations

import secrets
import subprocess
import tempfile
from pathlib import Path

from stationmaster import bubblewrap
from stationmaster import command as commands
from stationmaster.agents import isolation
from stationmaster.agents.codex_app import home
from stationmaster.agents.codex_app.settings import CodexSettings, RunSpec
from stationmaster.agents.isolation import Isolation

_TIMEOUT_S = 60.0
_RUN_ID = "probe"


def probe(settings: CodexSettings, scratch: Path, *, mode: Isolation = "required") -> str | None:
    """Tells why agents cannot be isolated on this machine, or None when they can.

    `scratch` is a folder of ours that is not mounted into runs. The command must write in its worktree, must not write
    in CODEX_HOME nor read the login, and inside our walls must not see a file beside the run.
    """
    commands.assert_outside("the isolation probe")
    if mode == "required" and (reason := bubblewrap.available(settings.bwrap)):
        return f"bubblewrap does not work: {reason}."
    with tempfile.TemporaryDirectory(prefix="probe-", dir=scratch) as name:
        return _probe_in(Path(name).resolve(), settings, mode)


def _probe_in(folder: Path, settings: CodexSettings, mode: Isolation) -> str | None:
    spec = RunSpec(_RUN_ID, folder / "tree", folder / "bare", folder / "home", folder / "temp", isolation=mode)
    for room in (spec.worktree, spec.bare, spec.run_temp):
        room.mkdir()
    plain = CodexSettings(home=folder, command=settings.command, bwrap=settings.bwrap)
    token, login, outside = (secrets.token_hex(16) for _ in range(3))
    (folder / home.LOGIN_FILE).write_text(login)
    (folder / "outside").write_text(outside)
    home.prepare(plain, spec)
    _give_profile(plain, spec)
    script = (
        f"echo {token} > made; cat made; touch {spec.codex_home}/made;"
        f" cat {spec.codex_home}/{home.LOGIN_FILE} {folder}/outside"
    )
    try:
        done = subprocess.run(
            isolation.wrap(mode, home.rooms(plain, spec), _argv(plain, script), bwrap=settings.bwrap),
            cwd=spec.worktree,
            env=home.environment(plain, spec),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"Codex's sandbox could not be tried: {type(error).__name__}."
    output = done.stdout.decode(errors="replace").split()
    if token not in output or _text(spec.worktree / "made") != token:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        return f"A command in Codex's sandbox did not run: {words[-1][:300] if words else 'it said nothing'}."
    if login in output or (spec.codex_home / "made").exists():
        return "Codex's sandbox let a command reach into CODEX_HOME."
    if outside in output and mode == "required":
        return "bubblewrap let a command read a file outside of its run."
    return None


def _argv(settings: CodexSettings, script: str) -> list[str]:
    return [str(settings.command), "sandbox", "-P", home.PROFILE, "--", "/bin/sh", "-c", script]


def _give_profile(settings: CodexSettings, spec: RunSpec) -> None:
    # `codex sandbox` takes no thread configuration: the same tables go into the file.
    config = spec.codex_home / "config.toml"
    with config.open("a", encoding="utf-8") as file:
        file.write(home.toml({"permissions": home.thread_config(settings, spec)["permissions"]}))


def _text(path: Path) -> str:
    return path.read_text().strip() if path.is_file() else ""
