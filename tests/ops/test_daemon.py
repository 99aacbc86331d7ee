from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import httpx

from tests.ops.conftest import CONFIG, SECRETS, Daemon
from tests.support import eventually

Start = Callable[..., Daemon]
Run = Callable[..., CompletedProcess[str]]


def test_a_daemon_says_where_it_is_and_stops_in_order(start: Start, home: Path) -> None:
    daemon = start()
    assert daemon.ready["ready"] is True
    assert daemon.ready["home"] == str(home)
    assert httpx.get(f"{daemon.url}/readyz", trust_env=False).json()["status"] == "ready"
    status, log = daemon.stop()
    assert status == 0
    assert "daemon.stopped" in log
    assert not (home / "control.sock").exists()


def test_the_command_line_goes_through_the_daemon_that_holds_the_home(start: Start, run: Run, home: Path) -> None:
    daemon = start()
    key = json.loads(run("operator", "add", "ann", "--json").stdout)["key"]
    headers = {"Authorization": f"Bearer {key}"}
    address = f"{daemon.url}/api/stationmaster/operators"
    assert httpx.get(address, headers=headers, trust_env=False).status_code == 403
    assert run("operator", "revoke", "ann").returncode == 0
    assert httpx.get(address, headers=headers, trust_env=False).status_code == 401
    daemon.stop()
    # Without a daemon the same words work on the same ledger.
    listed = json.loads(run("operator", "list", "--json").stdout)["operators"]
    assert [(row["name"], row["state"]) for row in listed] == [("ann", "revoked")]


def test_without_a_forge_it_runs_and_says_that_nothing_will_happen(start: Start, home: Path) -> None:
    (home / "stationmaster.toml").write_text("[web]\nport = 0")
    daemon = start()
    assert httpx.post(f"{daemon.url}/api/gitea/webhook", json={}, trust_env=False).status_code == 404
    status, log = daemon.stop()
    assert status == 0
    assert len([line for line in log.splitlines() if "forge.none" in line]) == 1


def test_whether_runs_are_refused_is_told_with_the_readiness(start: Start, home: Path) -> None:
    nothing = home / "codex-is-not-here"
    (home / "stationmaster.toml").write_text(f'{CONFIG}[codex]\ncommand = "{nothing}"')
    daemon = start()
    address = f"{daemon.url}/readyz"
    said = eventually(lambda: "sandbox" in str(httpx.get(address, trust_env=False).json().get("runsRefused")))
    assert said
    assert httpx.get(address, trust_env=False).status_code == 200
    assert "agents.refused" in daemon.stop()[1]


def test_a_second_daemon_on_one_home_is_refused_with_one_sentence(start: Start, run: Run, home: Path) -> None:
    daemon = start()
    second = run("up")
    assert second.returncode == 7
    assert second.stderr.startswith(f"stationmaster: The home folder {home} is in use by process {daemon.process.pid}.")
    assert len(second.stderr.splitlines()) == 1
    assert httpx.get(f"{daemon.url}/readyz", trust_env=False).status_code == 200


def test_a_killed_daemon_leaves_nothing_that_stops_the_next(start: Start, home: Path) -> None:
    first = start()
    name = (home / "worker_id").read_text()
    first.stop(signal.SIGKILL)
    assert (home / "control.sock").exists()
    second = start()
    assert httpx.get(f"{second.url}/readyz", trust_env=False).status_code == 200
    assert (home / "worker_id").read_text() == name


def test_a_taken_port_is_one_sentence(run: Run, home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (home / "stationmaster.toml").write_text(CONFIG.replace("port = 0", f"port = {port}"))
        refused = run("up")
    assert refused.returncode == 2
    assert f"port {port} cannot be used" in refused.stderr
    assert "web.port" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_no_seeded_secret_is_said_or_stored(start: Start, run: Run, home: Path) -> None:
    # GW-R-231
    daemon = start()
    shown = run("config", "show").stdout
    key = json.loads(run("operator", "add", "ann", "--json").stdout)["key"]
    _, log = daemon.stop()
    kept = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    for secret in (*SECRETS.values(), key):
        assert secret not in shown + log
        assert secret.encode() not in kept
    assert "env:SM_TEST_TOKEN" in shown
