"""The product as a process of its own, with a home, settings and secrets of its own; for the demo and for tests."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

from stationmaster.control import socket as control
from stationmaster.control.socket import Door
from stationmaster.errors import Unavailable
from stationmaster.ops import config, config_text

_READY_S = 60.0
_STOP_S = 60.0
_OWN = "STATIONMASTER_"
_COMMAND = (sys.executable, "-m", "stationmaster.ops.main")


class Running(Protocol):
    """A process that was started, as `subprocess.Popen` shows it."""

    @property
    def pid(self) -> int:
        """Returns its id."""

    @property
    def stdout(self) -> IO[bytes] | None:
        """Returns its standard output."""

    @property
    def returncode(self) -> int | Any:
        """Returns how it ended, if it is known to have ended."""

    def poll(self) -> int | None:
        """Returns how it ended, or None."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end."""

    def send_signal(self, sig: int) -> None:
        """Sends it a signal."""

    def kill(self) -> None:
        """Ends it."""


def scripted_model(base_url: str) -> dict[str, Any]:
    """Returns `[codex.config]` for a scripted model."""
    provider = {
        "name": "scripted",
        "base_url": base_url,
        "wire_api": "responses",
        "requires_openai_auth": False,
        "request_max_retries": 0,
        "stream_max_retries": 0,
    }
    return {"model": "scripted-model", "model_provider": "scripted", "model_providers": {"scripted": provider}}


class Product:
    """One home and the process that runs on it; the process can be ended and started again."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.log = home / "product.log"
        self.address: dict[str, Any] = {}
        self.process: Running | None = None

    def configure(self, settings: Mapping[str, Any], *, token: str, webhook_secret: str) -> None:
        """Writes the home: its settings, and each secret in a file of its own."""
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        secrets = {"token_ref": ("token", token), "webhook_secret_ref": ("webhook-secret", webhook_secret)}
        refs = {}
        for key, (name, value) in secrets.items():
            path = self.home / name
            path.touch(mode=0o600)
            path.write_text(value)
            refs[key] = f"file:{path}"
        given = {**settings, "gitea": {**settings.get("gitea", {}), **refs}}
        (self.home / "stationmaster.toml").write_text(config_text.toml(given))

    @property
    def web(self) -> str:
        """Returns the address of the running process."""
        return str(self.address["web"])

    @property
    def running(self) -> bool:
        """Tells whether the process lives."""
        return self.process is not None and self.process.poll() is None

    def start(self, **extra: str) -> None:
        """Starts the process and waits until it says that it is ready; raises Unavailable with its words otherwise."""
        kept = {name: value for name, value in config.environment().items() if not name.startswith(_OWN)}
        with self.log.open("ab") as log:
            self.process = self._begin(["--home", str(self.home), "up", "--json"], {**kept, **extra}, log)
        line = _first_line(self.process)
        if not line:
            self.kill()
            raise Unavailable(f"The product did not start: {self.last_words()}", code="demo_failed")
        self.address = json.loads(line)

    def _begin(self, words: list[str], env: Mapping[str, str], log: BinaryIO) -> Running:
        return subprocess.Popen(
            [*_COMMAND, *words],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            # Ctrl-C at a terminal is for whoever started it, who then stops it in order.
            start_new_session=True,
        )

    def stop(self) -> int:
        """Ends the process in order and returns its exit status; one that does not end is killed."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.process.returncode
        finally:
            self._close()

    def kill(self) -> None:
        """Ends the process as a power cut would."""
        if self.process is not None:
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait()
            self._close()

    def _close(self) -> None:
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()

    @contextlib.contextmanager
    def door(self) -> Iterator[Door]:
        """Opens the control socket."""
        with control.opened(self.home / "control.sock", _nobody) as door:
            yield door

    def command_line(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs one command line on this home."""
        return subprocess.run(
            [*_COMMAND, "--home", str(self.home), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_READY_S,
            check=False,
        )

    def last_words(self) -> str:
        """Returns the last line of the log."""
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return lines[-1] if lines else "it said nothing"


def _first_line(process: Running) -> bytes:
    out = process.stdout
    if out is None:
        return b""
    descriptor, end, said = out.fileno(), time.monotonic() + _READY_S, b""
    while not said.endswith(b"\n"):
        readable, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        part = os.read(descriptor, 4096) if readable else b""
        if not part:
            return b""
        said += part
    return said


def _nobody() -> contextlib.AbstractAsyncContextManager[Any]:
    raise Unavailable("The product does not listen.", code="daemon_unreachable", hint="Look at its log.")
