"""A scripted app-server in the place of Codex, for tests of the driver."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stationmaster.agents.codex_app import settings as codex_settings
from stationmaster.agents.codex_app.session import CodexRun
from tests.agents.codex_app import fake_app_server
from tests.agents.codex_app.rig import Rig

Plan = dict[str, Any]
IDS = {"threadId": "th-1", "turnId": "tu-1"}


def item(phase: str, name: str, **more: Any) -> Plan:
    return {"method": f"item/{phase}", "params": {**IDS, "item": {"type": "commandExecution", "id": name, **more}}}


def ended(status: str = "completed", turn: str = "tu-1", error: Any = None) -> Plan:
    return {
        "method": "turn/completed",
        "params": {"threadId": "th-1", "turn": {"id": turn, "status": status, "error": error}},
    }


def error(number: int, words: str) -> Plan:
    return {"error": {"code": number, "message": words}}


@dataclass
class Fake:
    """A rig whose Codex is the scripted one; no walls, for it needs this Python."""

    rig: Rig
    settings: codex_settings.CodexSettings
    log: Path

    def spec(self, **changes: Any) -> codex_settings.RunSpec:
        return self.rig.spec(isolation="codex_only", **changes)

    def launch(self, **changes: Any) -> Awaitable[CodexRun]:
        return CodexRun.launch(self.settings, self.spec(**changes), on_tool=self.rig.on_tool)

    def heard(self) -> list[Plan]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def told(self) -> dict[str, Plan]:
        """The parameters of the last message of each method."""
        return {message["method"]: message.get("params", {}) for message in self.heard() if "method" in message}

    def methods(self) -> list[str]:
        return [message["method"] for message in self.heard() if "method" in message]


MakeFake = Callable[..., Fake]


@pytest.fixture
def fake(tmp_path: Path) -> MakeFake:
    def make(plan: Plan | None = None, **changes: Any) -> Fake:
        rig, log, script, called = Rig(tmp_path), tmp_path / "log", tmp_path / "plan.json", tmp_path / "codex"
        script.write_text(json.dumps({"log": str(log), **(plan or {})}))
        program = shlex.join([sys.executable, str(Path(fake_app_server.__file__)), str(script)])
        called.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        called.chmod(0o700)
        changes = {"command": called, "request_timeout_s": 20.0, "close_grace_s": 5.0, **changes}
        return Fake(rig, rig.settings(**changes), log)

    return make
