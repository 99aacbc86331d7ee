"""The server as a process: its first line, what survives a kill, what a stop leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from stationmaster.standins.forge import Forge, ForgeAdmin, ForgeAdminError
from tests.standins.forge.world import Receiver
from tests.support import eventually

START = "from pathlib import Path; from stationmaster.standins.forge import main; main({port}, Path({folder!r}))"


@contextmanager
def process(folder: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    words = [sys.executable, "-c", START.format(port=port, folder=str(folder))]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        yield child, json.loads(child.stdout.readline())
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def seeded(admin: ForgeAdmin) -> str:
    admin.user("alice")
    admin.repo("alice", "demo", {"a.txt": "a\n"})
    admin.issue("alice/demo", "alice", "Bug")
    return admin.token("alice")


def test_it_says_where_it_listens_and_ends_on_sigterm(tmp_path: Path) -> None:
    with process(tmp_path) as (child, first):
        assert first["event"] == "listening"
        assert httpx.get(f"{first['url']}/api/v1/version", trust_env=False).json() == {"version": "1.25.5"}
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0


def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    with process(tmp_path) as (child, first), ForgeAdmin(first["url"]) as admin:
        token = seeded(admin)
        url = f"{first['url']}/api/v1/repos/alice/demo/issues/1/comments"
        headers = {"Authorization": f"token {token}"}
        ids = [
            httpx.post(url, json={"body": str(index)}, headers=headers, trust_env=False).json()["id"]
            for index in range(20)
        ]
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    port = int(first["url"].rsplit(":", 1)[1])
    with process(tmp_path, port) as (_, again), ForgeAdmin(again["url"]) as admin:
        assert again["url"] == first["url"]
        assert [row["id"] for row in admin.comments("alice/demo", 1)] == ids
        assert admin.file("alice/demo", "main", "a.txt") == "a\n"
        assert admin.issue("alice/demo", "alice", "Next") == 2


def test_deliveries_are_sent_at_most_once_over_a_kill(tmp_path: Path, receiver: Receiver) -> None:
    receiver.release.clear()
    with process(tmp_path) as (child, first), ForgeAdmin(first["url"]) as admin:
        seeded(admin)
        admin.hook(receiver.url, repo="alice/demo")
        admin.comment("alice/demo", 1, "alice", "attempted")
        receiver.wait_for(1)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    receiver.release.set()
    with process(tmp_path) as (_, again), ForgeAdmin(again["url"]) as admin:
        eventually(lambda: admin.on_their_way() == 0)
        assert [row["state"] for row in admin.deliveries()] == ["interrupted"]
        admin.comment("alice/demo", 1, "alice", "second")
        receiver.wait_for(2)
    assert [hit.json["comment"]["body"] for hit in receiver.hits] == ["attempted", "second"]


def test_a_stop_leaves_no_thread_and_keeps_what_waits(tmp_path: Path, receiver: Receiver) -> None:
    with Forge(tmp_path) as forge, ForgeAdmin(forge.url) as admin:
        seeded(admin)
        admin.hook(receiver.url, repo="alice/demo")
        admin.add_fault("postpone", seconds=600)
        admin.comment("alice/demo", 1, "alice", "kept")
        eventually(lambda: [row["state"] for row in admin.deliveries()] == ["sending"])
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("forge")])
    assert receiver.hits == []
    with Forge(tmp_path) as forge:
        assert receiver.wait_for(1)[0].json["comment"]["body"] == "kept"


def test_admin_refusals_are_sentences(tmp_path: Path) -> None:
    with Forge(tmp_path) as forge, ForgeAdmin(forge.url) as admin:
        for verb, values, words in (
            ("user", {}, "missing 1 required positional argument"),
            ("issue", {"repo": "a/b", "author": "x", "title": "t"}, "no account 'a'"),
            ("destroy", {}, "no verb 'destroy'"),
            ("_permission", {}, "no verb"),
        ):
            with pytest.raises(ForgeAdminError, match=words):
                admin.call(verb, **values)
        admin.user("alice")
        with pytest.raises(ForgeAdminError, match="UNIQUE"):
            admin.user("Alice")
        with pytest.raises(ForgeAdminError, match="permission is one of"):
            admin.repo("alice", "demo", collaborators={"alice": "king"})


def test_no_web_page_reaches_the_admin_door(tmp_path: Path) -> None:
    with Forge(tmp_path) as forge:
        headers = {"Origin": "https://evil.example"}
        assert httpx.post(f"{forge.url}/__admin/status", headers=headers, trust_env=False).status_code == 404
        assert httpx.post(f"{forge.url}/__admin/status", trust_env=False).status_code == 200


def test_a_start_that_fails_leaves_nothing_open(tmp_path: Path) -> None:
    with Forge(tmp_path / "one") as forge, pytest.raises(OSError, match="in use"):
        Forge(tmp_path / "two", port=forge.port)
    wrong = tmp_path / "faults.json"
    wrong.write_text('[{"action": {"kind": "explode"}}]')
    with pytest.raises(ValueError, match="no action kind 'explode'"):
        Forge(tmp_path / "three", faults=wrong)


def test_times_in_the_zone_of_the_server(tmp_path: Path) -> None:
    with Forge(tmp_path) as forge, ForgeAdmin(forge.url) as admin:
        seeded(admin)
        assert admin.issues("alice/demo")[0]["created_at"].endswith("Z")
        admin.settings(utc_offset_minutes=120)
        assert admin.issues("alice/demo")[0]["created_at"].endswith("+02:00")


def test_seeded_files_may_be_links_and_programs(tmp_path: Path) -> None:
    with Forge(tmp_path) as forge, ForgeAdmin(forge.url) as admin:
        admin.user("alice", full_name="Alice A")
        files = {"run.sh": {"content": "#!/bin/sh\n", "mode": "100755"}, "up": {"content": "..", "mode": "120000"}}
        made = admin.repo("alice", "demo", {**files, "ü/naïve.txt": "x"})
        assert admin.files("alice/demo", "main") == ["run.sh", "up", "ü/naïve.txt"]
        modes = forge.views.bare(made["id"]).text("ls-tree", "main").splitlines()
        assert [line.split()[0] for line in modes] == ["100755", "120000", "040000"]
        (commit,) = admin.commits("alice/demo", "main")
        assert (commit["sha"], commit["author"], commit["message"]) == (made["tip"], "Alice A", "Initial commit\n")
        empty = admin.repo("alice", "empty")
        assert empty["tip"] is None
        assert admin.branches("alice/empty") == {}
