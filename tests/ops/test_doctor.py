"""The whole doctor as an operator runs it, on homes that are sound and homes that are not."""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from stationmaster.clock import SystemClock
from stationmaster.ledger.ledger import Ledger
from stationmaster.ops import wiring
from stationmaster.standins.forge import Forge, ForgeAdmin
from tests.ops.conftest import Daemon

Run = Callable[..., CompletedProcess[str]]
HOOK, KEY = "seeded-hook-secret-0815", "sk-seeded-api-key-0815"
NAMES = [
    "configuration", "secrets", "home", "daemon", "disk", "workspace", "port", "clock", "database", "integrity",
    "guards", "waiting", "bubblewrap", "git", "git locks", "codex", "isolation", "codex login", "forge",
    "forge clock", "token", "webhook", "permission",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Installation:
    """A forge with a bot, and a home that knows both; the secrets are in the environment."""

    home: Path
    admin: ForgeAdmin
    secrets: dict[str, str]
    port: int

    def config(self, old: str = "", new: str = "") -> None:
        file = self.home / "stationmaster.toml"
        file.write_text(file.read_text().replace(old, new))


@pytest.fixture
def sound(home: Path, tmp_path: Path) -> Iterator[Installation]:
    """An installation without a fault."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with Forge(tmp_path / "forge") as forge, ForgeAdmin(forge.url) as admin:
        admin.bot("ccweb-bot")
        (home / "stationmaster.toml").write_text(
            f'[gitea]\nbase_url = "{forge.url}"\ntoken_ref = "env:SM_TEST_TOKEN"\n'
            'webhook_secret_ref = "env:SM_TEST_HOOK"\n'
            f'[codex]\napi_key = "env:SM_TEST_KEY"\n[web]\nport = {port}\n'
        )
        Ledger.open(home / "stationmaster.db", wiring.SLICES, clock=SystemClock()).close()
        secrets = {"SM_TEST_TOKEN": admin.token("ccweb-bot"), "SM_TEST_HOOK": HOOK, "SM_TEST_KEY": KEY}
        yield Installation(home, admin, secrets, port)


def names(done: CompletedProcess[str]) -> list[str]:
    return [line[6:].partition(": ")[0] for line in done.stdout.splitlines()]


def failed(done: CompletedProcess[str]) -> list[str]:
    """The lines of what failed; there is at least one, and nothing else was said."""
    assert (done.returncode, done.stderr) == (1, "")
    return [line for line in done.stdout.splitlines() if line.startswith("fail")]


def contents(home: Path) -> dict[str, bytes]:
    """Every file and folder of a home, but SQLite's working files."""
    return {
        str(path): path.read_bytes() if path.is_file() else b""
        for path in home.rglob("*")
        if not path.name.endswith(("-wal", "-shm"))
    }


def test_a_sound_installation_is_said_to_be_so_and_left_as_it_is(run: Run, sound: Installation) -> None:
    before = contents(sound.home)
    done = run("doctor", **sound.secrets)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert names(done) == NAMES
    # How full the disk is and how steady the clock are this machine's own affairs.
    odd = [line for line in done.stdout.splitlines() if not line.startswith(("ok    ", "warn  disk", "warn  clock"))]
    assert odd == []
    assert contents(sound.home) == before


def test_it_works_beside_a_running_daemon(run: Run, sound: Installation, start: Callable[..., Daemon]) -> None:
    daemon = start(**sound.secrets)
    done = run("doctor", **sound.secrets)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    pid = daemon.process.pid
    assert f"ok    daemon: Process {pid} runs on this home and is ready." in done.stdout
    assert f"ok    port: 127.0.0.1 port {sound.port} is held by our daemon, process {pid}." in done.stdout
    assert daemon.stop()[0] == 0


def test_programs_get_an_object_for_each_check(run: Run, sound: Installation) -> None:
    sound.admin.repo("ccweb-bot", "tools", {})
    done = run("doctor", "--json", **{**sound.secrets, "SM_TEST_HOOK": ""})
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert {frozenset(row) for row in rows} == {frozenset({"status", "name", "message", "hint"})}
    assert [row["name"] for row in rows] == NAMES
    [fault] = [row for row in rows if row["status"] == "fail"]
    assert fault["message"] == "gitea.webhook_secret_ref refers to an empty secret (env:SM_TEST_HOOK)."
    assert all(row["hint"] for row in rows if row["status"] != "ok")


def test_a_wrong_configuration_is_named_and_the_rest_is_still_looked_at(run: Run, sound: Installation) -> None:
    sound.config("[web]", "[web]\ncolour = 1")
    done = run("doctor", **sound.secrets)
    [line] = failed(done)
    assert line.startswith(f"fail  configuration: {sound.home}/stationmaster.toml has an unknown key: web.colour. Mend")
    assert names(done) == ["configuration", "home", "daemon", "disk", "clock", "bubblewrap", "git"]


def test_a_forge_configured_by_half_is_named(run: Run, sound: Installation) -> None:
    sound.config('webhook_secret_ref = "env:SM_TEST_HOOK"\n', "")
    assert "gitea.webhook_secret_ref is not set in" in failed(run("doctor", **sound.secrets))[0]


def test_a_home_that_is_not_there_is_not_made(run: Run, tmp_path: Path) -> None:
    done = run("doctor", "--home", str(tmp_path / "none"))
    assert any("cannot be entered: No such file or directory. Run: mkdir -m 700 -p" in line for line in failed(done))
    assert "mistake of its own" not in done.stdout
    assert not (tmp_path / "none").exists()


def test_each_fault_has_its_own_line(run: Run, sound: Installation) -> None:
    connection = sqlite3.connect(sound.home / "stationmaster.db")
    [name] = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' LIMIT 1").fetchone()
    connection.execute(f'DROP TRIGGER "{name}"')
    connection.commit()
    connection.close()
    sound.home.chmod(0o750)
    sound.config("[codex]", '[codex]\ncommand = "/nowhere/codex"')
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", sound.port))
        taken.listen()
        done = run("doctor", **{**sound.secrets, "SM_TEST_TOKEN": "wrong-" + "0" * 34})
    said = {line[6:].partition(": ")[0]: line for line in failed(done)}
    assert list(said) == ["home", "port", "guards", "codex", "isolation", "codex login", "token"]
    assert f"The guard {name} is missing" in said["guards"]
    assert "chmod 700" in said["home"]
    assert f"port {sound.port} cannot be used: Address already in use" in said["port"]
    assert "/nowhere/codex cannot be run: No such file or directory" in said["codex"]
    assert "The forge refuses the bot" in said["token"]


def test_no_seeded_secret_is_said_or_kept(run: Run, sound: Installation) -> None:
    # GW-R-231
    wrong = "0123456789abcdef0123456789abcdef01234567"
    said = ""
    for token, form in ((sound.secrets["SM_TEST_TOKEN"], ["--json"]), (wrong, []), (f"{wrong} more", ["--json"])):
        done = run("doctor", *form, **{**sound.secrets, "SM_TEST_TOKEN": token})
        assert "codex login" in done.stdout
        said += done.stdout + done.stderr
    kept = b"".join(contents(sound.home).values()).decode(errors="replace")
    for secret in (*sound.secrets.values(), wrong):
        assert secret not in said + kept
