from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from stationmaster.command import inside_command
from stationmaster.errors import Bug, Busy, Unavailable
from stationmaster.redact import Secret
from stationmaster.workspaces import git as git_module
from stationmaster.workspaces import mirror
from stationmaster.workspaces.failures import Result
from stationmaster.workspaces.git import Git, GitCredential
from tests.support import eventually
from tests.workspaces.conftest import Place, picture
from tests.workspaces.http_remote import TOKEN, USER, HttpRemote


def credential(url: str) -> GitCredential:
    return GitCredential(url, USER, Secret("test:token", lambda: TOKEN))


def with_word(text: str) -> list[int]:
    """Finds living processes whose argument list holds `text`."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and text in (folder / "cmdline").read_text(errors="replace"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_git_never_runs_inside_a_command(place: Place) -> None:  # K6
    place.clone()
    with inside_command(), pytest.raises(Bug):
        place.git.bare(place.bare, "rev-parse", "--git-dir")


def test_the_machines_and_users_settings_do_not_count(ready: Place) -> None:  # GW-R-132
    listed = ready.git.tree(ready.bare, ready.tree, "config", "--list", "--show-scope").stdout
    assert {line.split("\t")[0] for line in listed.splitlines()} == {"local", "command"}
    for setting in ("core.hookspath=/dev/null", "protocol.allow=never", "http.followredirects=false", "gc.auto=0"):
        assert setting in listed
    assert "protocol.http" not in listed  # no transport at all without network


def test_only_named_transports_are_allowed(place: Place, tmp_path: Path) -> None:
    place.clone()
    strict = Git(timeout_s=30, lock_wait_s=0.1, home=tmp_path / "h")
    for address in (str(place.remote), f"file://{place.remote}", "ext::sh -c touch% /tmp/x", "ssh://h/x", "git://h/x"):
        place.git.bare(place.bare, "config", "remote.origin.url", address)
        with pytest.raises(Unavailable, match="not allowed"):
            strict.bare(place.bare, "ls-remote", "origin", network=True)


def test_the_version_is_read(place: Place) -> None:
    assert place.git.version() >= git_module.LEAST_VERSION


def test_no_picture_of_a_job_shows_the_environment(place: Place) -> None:
    box = place.git._box(cwd=place.root, network=True)
    job = place.git._job(box, ("fetch",), None, None, credential=credential("http://forge.example.test/"))
    assert TOKEN in job.env.values()
    assert TOKEN not in repr(job)


def test_hooks_do_not_run(ready: Place) -> None:  # GW-R-132
    mark = ready.bare / "hook-ran"
    for name in (
        "pre-commit",
        "post-commit",
        "post-checkout",
        "reference-transaction",
        "post-index-change",
        "pre-push",
    ):
        hook = ready.bare / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
        hook.chmod(0o755)
    (ready.tree / "new.txt").write_text("x")
    saved = ready.save()
    mirror.push(ready.git, ready.bare, None, saved.after, "stationmaster/issue-7")
    mirror.fetch(ready.git, ready.bare, None)
    assert not mark.exists()


def test_a_tree_command_sees_neither_network_nor_the_home_nor_other_worktrees(ready: Place) -> None:
    other = ready.layout.tree("repo_1", "issue-8")
    other.mkdir()
    (other / "secret").write_text("x")
    alias = f"alias.look=!test ! -e {other} && test ! -e {ready.remote} && test $(grep -c : /proc/net/dev) = 1"
    ready.git.tree(ready.bare, ready.tree, "-c", alias, "look")


def test_a_tree_command_cannot_change_config_or_hooks(ready: Place) -> None:
    before = picture(ready.bare / "config", ready.bare / "hooks")
    for name in ("config", "hooks/post-commit"):
        alias = f"alias.write=!echo x > {ready.bare / name}"
        with pytest.raises(Unavailable, match="Read-only"):
            ready.git.tree(ready.bare, ready.tree, "-c", alias, "write")
    assert picture(ready.bare / "config", ready.bare / "hooks") == before


def test_a_look_cannot_write_at_all(ready: Place) -> None:
    for folder in (ready.bare, ready.tree):
        with pytest.raises(Unavailable, match="Read-only"):
            ready.git.tree(ready.bare, ready.tree, "-c", f"alias.write=!touch {folder}/x", "write", write=False)


def test_planting_excludes_network(place: Place) -> None:
    with pytest.raises(Bug):
        place.git.bare(place.bare, "worktree", network=True, planting=place.tree)
    with pytest.raises(Bug):
        place.git.bare(place.bare, "gc", credential=credential("http://forge.example.test/"))


def test_a_command_that_takes_too_long_is_killed_whole(ready: Place) -> None:
    word = f"8{os.getpid()}.25"
    with pytest.raises(Unavailable) as late:
        ready.git.tree(
            ready.bare, ready.tree, "-c", f"alias.nap=!setsid sleep {word} & sleep {word}", "nap", timeout_s=0.5
        )
    assert late.value.code == "git_timeout"
    assert not with_word(word)


def test_every_child_dies_with_the_product(ready: Place, tmp_path: Path) -> None:
    word = f"9{os.getpid()}.25"
    script = textwrap.dedent(f"""
        from pathlib import Path
        from stationmaster.workspaces.git import Git
        git = Git(timeout_s=600, lock_wait_s=0.1, home=Path({str(tmp_path / "h")!r}))
        git.bare(Path({str(ready.bare)!r}), "-c", "alias.nap=!setsid sleep {word} & sleep {word}", "nap")
    """)
    product = subprocess.Popen([sys.executable, "-c", script])
    eventually(lambda: len([p for p in with_word(word) if _name(p) == "sleep"]) == 2)
    product.send_signal(signal.SIGKILL)
    product.wait()
    eventually(lambda: not with_word(word))


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def test_a_lock_that_goes_away_in_time_is_waited_for(ready: Place) -> None:
    patient = Git(timeout_s=30, lock_wait_s=20, home=ready.root / "h")
    lock = ready.bare / "worktrees" / "issue-7" / "index.lock"
    lock.touch()
    (ready.tree / "x.txt").write_text("x")
    tries = threading.Event()
    plain = patient._once

    def watched(job: git_module._Job) -> Result:
        result = plain(job)
        tries.set()
        return result

    patient._once = watched  # type: ignore[method-assign]
    ended: list[int] = []
    worker = threading.Thread(target=lambda: ended.append(patient.tree(ready.bare, ready.tree, "add", "--all").code))
    worker.start()
    assert tries.wait(20)
    lock.rename(ready.root / "moved-away")
    worker.join(20)
    assert ended == [0]


def test_a_lock_that_stays_is_reported_and_left(ready: Place) -> None:  # GW-R-128
    lock = ready.bare / "worktrees" / "issue-7" / "index.lock"
    lock.write_text("somebody")
    with pytest.raises(Busy) as busy:
        ready.git.tree(ready.bare, ready.tree, "add", "--all")
    assert busy.value.code == "git_locked"
    assert str(lock) in busy.value.message
    assert lock.read_text() == "somebody"


def test_the_in_process_lock_is_no_guarantee_anybody_needs(ready: Place) -> None:  # GW-R-123
    runners = [Git(timeout_s=60, lock_wait_s=30, home=ready.root / "h") for _ in range(4)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(3):
                name = f"stationmaster/w{number}-{step}"
                runners[number].bare(ready.bare, "branch", "--", name, "refs/remotes/origin/main")
                runners[number].bare(ready.bare, "config", f"test.w{number}-{step}", "1")
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert len(mirror.branches(ready.git, ready.bare, "stationmaster/w")) == 12


def test_a_missing_bubblewrap_is_said(ready: Place, tmp_path: Path) -> None:
    git = Git(timeout_s=5, lock_wait_s=0.1, home=tmp_path / "h", bwrap="no-such-bwrap")
    with pytest.raises(Unavailable, match="no-such-bwrap") as missing:
        git.bare(ready.bare, "rev-parse", "--git-dir")
    assert missing.value.code == "git_failed"


def test_a_missing_git_is_said(ready: Place, tmp_path: Path) -> None:
    git = Git(timeout_s=5, lock_wait_s=0.1, home=tmp_path / "h", search_path="/nonexistent")
    bwrap = subprocess.run(["sh", "-c", "command -v bwrap"], check=True, capture_output=True, text=True).stdout.strip()
    git._bwrap = bwrap
    with pytest.raises(Unavailable, match="git") as missing:
        git.bare(ready.bare, "rev-parse", "--git-dir")
    assert missing.value.code == "git_failed"


def test_the_token_is_in_no_argument_list_file_or_output(place: Place) -> None:  # GW-R-127
    with HttpRemote(place.remote.parent) as forge:
        git = Git(timeout_s=30, lock_wait_s=0.1, home=place.root / "h")
        who = credential(forge.url)
        mirror.ensure(git, place.bare, f"{forge.url}parcel.git", who)
        start = mirror.remote_tracking_tip(git, place.bare, "main")
        assert start is not None
        outcome = mirror.push(git, place.bare, who, start, "stationmaster/issue-7")
        assert outcome.kind == "done"
        lines = "\n".join(forge.command_lines)
    assert "git-remote-http" in lines  # the observer saw git at work
    assert TOKEN not in lines
    for path in [*place.bare.rglob("*"), *(place.root / "h").rglob("*")]:
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes(), path
    assert (place.bare / "config").read_text().count("url = http://127.0.0.1") == 1
    assert not list((place.root / "h").iterdir())


def test_the_environment_of_a_tree_command_holds_no_credential(ready: Place) -> None:
    shown = ready.git.tree(ready.bare, ready.tree, "-c", "alias.environment=!env", "environment").stdout
    assert git_module._WORD_VARIABLE not in shown
    assert "HOME=" + str(ready.root / "git-home") in shown
    assert not {line.split("=")[0] for line in shown.splitlines()} & {"GIT_ASKPASS", "SSH_ASKPASS", "http_proxy"}


def test_a_credential_is_offered_to_its_own_forge_only(place: Place) -> None:
    with HttpRemote(place.remote.parent) as ours, HttpRemote(place.remote.parent) as other:
        git = Git(timeout_s=30, lock_wait_s=0.1, home=place.root / "h")
        with pytest.raises(Unavailable) as refused:
            git.anywhere("ls-remote", f"{other.url}parcel.git", credential=credential(ours.url))
        assert refused.value.code == "git_auth_failed"
        assert not any(other.authorizations)


def test_waiting_for_the_lock_of_another_command_is_bounded_by_its_own_deadline(ready: Place) -> None:
    ended: list[float] = []

    def nap() -> None:
        try:
            ready.git.bare(ready.bare, "-c", "alias.nap=!sleep 30", "nap", timeout_s=1)
        except Unavailable:
            ended.append(time.monotonic())

    sleeper = threading.Thread(target=nap)
    sleeper.start()
    turn = ready.git._turns[ready.bare]
    eventually(turn.locked)
    ready.git.bare(ready.bare, "rev-parse", "--git-dir")
    sleeper.join(20)
    assert ended
