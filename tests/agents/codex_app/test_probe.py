"""The isolation probe, on the real programs and on broken ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stationmaster.agents.codex_app.probe import probe
from stationmaster.agents.codex_app.settings import CodexSettings
from stationmaster.agents.isolation import Isolation


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return path


@pytest.mark.parametrize("mode", ["required", "codex_only"])
def test_it_works_here_and_leaves_nothing(tmp_path: Path, mode: Isolation) -> None:
    assert probe(CodexSettings(home=tmp_path / "codex"), tmp_path, mode=mode) is None
    assert list(tmp_path.iterdir()) == []


def test_bubblewrap_that_does_not_work_is_said(tmp_path: Path) -> None:
    settings = CodexSettings(home=tmp_path / "codex", bwrap="no-such-bwrap")
    assert probe(settings, tmp_path) == "bubblewrap does not work: no-such-bwrap is not installed."


def test_an_exit_status_alone_convinces_nobody(tmp_path: Path) -> None:
    quiet = CodexSettings(home=tmp_path / "codex", command=program(tmp_path / "quiet", "exit 0"))
    assert probe(quiet, tmp_path) == "A command in Codex's sandbox did not run: it said nothing."
    failing = replace(quiet, command=program(tmp_path / "failing", "echo 'bwrap: no namespaces' >&2; exit 1"))
    assert probe(failing, tmp_path) == "A command in Codex's sandbox did not run: bwrap: no namespaces."


def test_a_sandbox_that_is_none_is_noticed(tmp_path: Path) -> None:
    # Runs the command it was given without any walls of its own.
    open_door = program(tmp_path / "open", 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    settings = CodexSettings(home=tmp_path / "codex", command=open_door)
    assert probe(settings, tmp_path) == "Codex's sandbox let a command reach into CODEX_HOME."
