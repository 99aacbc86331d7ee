"""Processes under a run mark: found, killed, and proven gone."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from stationmaster import ids, redact
from stationmaster.agents import process
from stationmaster.agents.process import AgentProcess
from stationmaster.command import inside_command
from stationmaster.errors import Bug, Invalid, Unavailable
from tests.support import eventually

ENV = {"PATH": "/usr/bin:/bin"}


def start(script: str, run_id: str, cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sh", "-c", script], env={**ENV, process.MARK: run_id}, cwd=cwd)


def test_only_the_runs_own_processes_are_found_and_killed(tmp_path: Path) -> None:
    mine, other = ids.new("run"), ids.new("run")
    theirs = start("exec sleep 600", other, tmp_path)
    ours = start("setsid sleep 600 & setsid sh -c 'sleep 600; :' & touch up; wait", mine, tmp_path)
    try:
        eventually((tmp_path / "up").exists)
        eventually(lambda: len(process.marked(mine)) >= 4)
        assert process.marked(other) == [theirs.pid]
        assert process.sweep(mine) >= 4
        assert process.marked(mine) == []
        assert ours.wait(timeout=20) < 0
        assert process.marked(other) == [theirs.pid]
    finally:
        process.sweep(other)
        process.sweep(mine)
        ours.wait(timeout=20)
        theirs.wait(timeout=20)


def test_a_child_that_dropped_the_mark_is_found_by_its_parent(tmp_path: Path) -> None:
    run_id = ids.new("run")
    child = start("env -i sleep 600 & wait", run_id, tmp_path)
    try:
        eventually(lambda: len(process.marked(run_id)) == 2)
        assert process.sweep(run_id) == 2
    finally:
        process.sweep(run_id)
        child.wait(timeout=20)


def test_processes_that_breed_are_caught(tmp_path: Path) -> None:
    run_id = ids.new("run")
    (tmp_path / "breed").write_text("#!/bin/sh\n[ -e stop ] || setsid ./breed &\n")
    (tmp_path / "breed").chmod(0o700)
    child = start("./breed; touch up", run_id, tmp_path)
    try:
        eventually((tmp_path / "up").exists)
        with contextlib.suppress(Unavailable):
            process.sweep(run_id, timeout_s=2)
        (tmp_path / "stop").touch()
        process.sweep(run_id)
        assert process.marked(run_id) == []
    finally:
        (tmp_path / "stop").touch()
        child.wait(timeout=20)


@pytest.mark.parametrize("run_id", ["", "a b", "run_1\0", "run=1", "../x"])
def test_a_mark_that_could_match_others_is_refused(run_id: str) -> None:
    with pytest.raises(Invalid):
        process.sweep(run_id)


def test_nothing_is_done_inside_a_command() -> None:
    with inside_command(), pytest.raises(Bug):
        process.marked("run_1")


async def test_the_error_stream_is_kept_redacted_and_private(tmp_path: Path) -> None:
    redact.register("s3cret-in-stderr")
    log = tmp_path / "stderr"
    script = "echo s3cret-in-stderr >&2; echo plain >&2; read x; exit 5"
    agent = await AgentProcess.spawn(
        ["sh", "-c", script], env=ENV, cwd=tmp_path, run_id=ids.new("run"), isolated=False, log=log
    )
    await agent.close(grace_s=20)
    assert agent.returncode == 5
    assert agent.words() == "[redacted]\nplain"
    assert log.read_text() == "[redacted]\nplain\n"
    assert log.stat().st_mode & 0o777 == 0o600


async def test_an_agent_that_ignores_the_end_of_its_input_is_killed(tmp_path: Path) -> None:
    agent = await AgentProcess.spawn(
        ["sh", "-c", "trap '' TERM INT; exec sleep 600"], env=ENV, cwd=tmp_path, run_id=ids.new("run"), isolated=False
    )
    await agent.close(grace_s=0.1)
    assert agent.returncode == -9


async def test_a_log_that_is_a_link_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    run_id = ids.new("run")
    with pytest.raises(Unavailable) as caught:
        await AgentProcess.spawn(
            ["sleep", "600"], env=ENV, cwd=tmp_path, run_id=run_id, isolated=False, log=tmp_path / "log"
        )
    assert caught.value.code == "run_log_unwritable"
    assert process.marked(run_id) == []
    assert not (tmp_path / "elsewhere").exists()
