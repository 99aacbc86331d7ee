"""The operator's own login to Codex: made and shown by the real program, kept in `codex.home` alone.

Nothing here reads the login itself.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from stationmaster import command as commands
from stationmaster.agents.codex_app import home
from stationmaster.agents.codex_app.settings import CodexSettings
from stationmaster.errors import Unavailable

Account = Literal["chatgpt", "api_key", "none"]
_TIMEOUT_S = 30.0
# A keyring of the desktop would not be there for the daemon.
_FILE_STORE = ("-c", 'cli_auth_credentials_store="file"', "-c", "check_for_update_on_startup=false")


@dataclass(frozen=True, slots=True)
class LoginStatus:
    """What Codex says about the stored login; `words` holds no part of it."""

    account: Account
    words: str


def login(settings: CodexSettings, *, env: Mapping[str, str], args: Sequence[str] = ()) -> int:
    """Runs `codex login` in the foreground on this terminal and returns its exit status.

    `args` are its own, such as `--device-auth`; `env` is the caller's environment, for the browser it opens.
    """
    commands.assert_outside("codex login")
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    argv = [str(settings.command), "login", *_FILE_STORE, *args]
    try:
        status = subprocess.run(argv, env={**env, "CODEX_HOME": str(settings.home)}, check=False).returncode
    except OSError as error:
        raise _unreachable(error) from None
    stored = settings.home / home.LOGIN_FILE
    if stored.is_file():
        stored.chmod(0o600)
    return status


def login_status(settings: CodexSettings) -> LoginStatus:
    """Asks Codex whether a login is stored in `codex.home`."""
    commands.assert_outside("codex login status")
    if not settings.home.is_dir():
        return LoginStatus("none", "not logged in")
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(settings.home)}
    try:
        done = subprocess.run(
            [str(settings.command), "login", *_FILE_STORE, "status"],
            env={**env, "CODEX_HOME": str(settings.home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unreachable(error) from None
    said = (done.stdout + done.stderr).decode(errors="replace").lower()
    if done.returncode != 0:
        return LoginStatus("none", "not logged in")
    if "chatgpt" in said:
        return LoginStatus("chatgpt", "logged in with ChatGPT")
    # Codex prints a part of the key here; it goes no further.
    return LoginStatus("api_key", "logged in with an API key")


def _unreachable(error: Exception) -> Unavailable:
    return Unavailable(
        f"Codex could not be run: {type(error).__name__}.",
        code="app_server_unreachable",
        hint="Run `stationmaster doctor`.",
    )
