"""What a child of bubblewrap sees, tried on the real program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stationmaster import bubblewrap
from stationmaster.bubblewrap import Box
from stationmaster.command import inside_command
from stationmaster.errors import Bug

ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


def run(box: Box, script: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        bubblewrap.argv(box, ["sh", "-c", script]),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**ENV, **env},
        stdin=subprocess.DEVNULL,
    )


def test_it_works_here() -> None:
    assert bubblewrap.available() is None


def test_a_missing_program_is_named() -> None:
    assert bubblewrap.available("no-such-bwrap") == "no-such-bwrap is not installed"


def test_a_program_that_fails_gives_its_last_words(tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    assert bubblewrap.available(str(fake)) == "bwrap: No permissions to create new namespace"


def test_it_is_refused_inside_a_command() -> None:
    with inside_command(), pytest.raises(Bug):
        bubblewrap.available()


def test_read_write_read_only_and_what_lies_over(tmp_path: Path) -> None:
    tree, mirror, outside = tmp_path / "tree", tmp_path / "mirror", tmp_path / "outside"
    for folder in (tree, mirror, outside):
        folder.mkdir()
    (tree / ".git").write_text("gitdir: elsewhere\n")
    (mirror / "HEAD").write_text("ref\n")
    (outside / "secret").write_text("s3cret\n")
    box = Box(cwd=tree, read_only=(mirror,), read_write=(tree,), read_only_over=(tree / ".git",))
    done = run(
        box,
        f"pwd; echo made > new; cat {mirror}/HEAD; echo x > {mirror}/HEAD; echo x > .git; rm -f .git; mv .git y;"
        f" ls {outside}; ls {tmp_path}",
    )
    assert done.stdout.split() == [str(tree), "ref", "mirror", "tree"]
    assert (tree / "new").read_text() == "made\n"
    assert (tree / ".git").read_text() == "gitdir: elsewhere\n"
    assert (mirror / "HEAD").read_text() == "ref\n"


def test_hidden_folders_and_files_are_empty(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_text("one")
    (tmp_path / "file").write_text("two")
    box = Box(cwd=tmp_path, read_write=(tmp_path,), hidden=(tmp_path / "folder", tmp_path / "file"))
    assert run(box, "ls folder; cat file").stdout == ""


@pytest.mark.parametrize("nested", [False, True])
def test_an_ordinary_user_alone_in_its_namespace(tmp_path: Path, nested: bool) -> None:
    box = Box(cwd=tmp_path, read_write=(tmp_path,), nested=nested)
    done = run(box, "id -u; ls /proc | grep -c '^[0-9]'; ls /tmp; cat /etc/shadow; grep CapEff /proc/self/status")
    words = done.stdout.split()
    assert words[0] == "1000"
    assert int(words[1]) <= 6
    assert words[-1] == "0" * 16


def test_without_network_there_is_only_a_dead_loopback(tmp_path: Path) -> None:
    script = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"
    assert run(Box(cwd=tmp_path, read_only=(tmp_path,)), script).stdout.split() == ["lo"]
    assert "--unshare-net" not in bubblewrap.argv(Box(cwd=tmp_path, network=True), ["true"])


def test_another_sandbox_works_inside_a_nested_box(tmp_path: Path) -> None:
    box = Box(cwd=tmp_path, read_write=(tmp_path,), nested=True)
    # A second /proc cannot be mounted in there; Codex's sandbox knows and does without.
    inner = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "echo", "inner"]
    done = subprocess.run(bubblewrap.argv(box, inner), capture_output=True, text=True, timeout=30, check=False, env=ENV)
    assert done.stdout == "inner\n", done.stderr


def test_the_environment_never_enters_the_argument_list(tmp_path: Path) -> None:
    words = bubblewrap.argv(Box(cwd=tmp_path, read_only=(tmp_path,)), ["true"])
    assert "--setenv" not in words
    assert run(Box(cwd=tmp_path, read_only=(tmp_path,)), "echo $MARK", MARK="seen").stdout == "seen\n"


def test_the_namespace_dies_with_its_first_process(tmp_path: Path) -> None:
    (tmp_path / "fifo").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "fifo")
    box = Box(cwd=tmp_path, read_write=(tmp_path,), nested=True)
    # The grandchild leaves its session and keeps the pipe open: end of file on it proves that it is gone.
    script = "setsid sh -c 'exec 3>fifo; echo up >&3; sleep 600' & wait"
    child = subprocess.Popen(
        bubblewrap.argv(box, ["sh", "-c", script]), env=ENV, stdin=subprocess.DEVNULL, start_new_session=True
    )
    with (tmp_path / "fifo").open() as pipe:
        assert pipe.readline() == "up\n"
        child.kill()
        assert pipe.readline() == ""
    child.wait(timeout=30)
