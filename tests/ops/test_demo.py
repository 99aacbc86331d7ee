"""The demo as a user runs it: its exit status tells the truth, and it leaves nothing behind."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from stationmaster.ops.demo import stage, story
from tests.support import eventually

COMMAND = [sys.executable, "-m", "stationmaster.ops.main", "demo"]


@contextmanager
def _running(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, *words],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _holders(folder: Path) -> list[str]:
    """Every process that was started for something in `folder`, except for the demo itself."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(folder) in words:
            found.append(words)
    return found


def test_it_shows_two_mentions_and_proves_them(tmp_path: Path) -> None:
    with _running(tmp_path) as demo:
        out, err = demo.communicate(timeout=300)
    assert demo.returncode == 0, out + err
    told = json.loads(out.strip().splitlines()[-1])
    assert told["ok"] is True
    assert told["state"] == "succeeded"
    assert isinstance(told["commentId"], int)
    assert isinstance(told["pullRequest"], int)
    assert told["seconds"] > 0
    for name in ("deliveryId", "taskId", "threadId", "turnId", "commitSha"):
        assert isinstance(told[name], str), name
        assert told[name], name
    assert f"Commit {told['commitSha']} · #{told['pullRequest']}" in out
    assert out.count("giteabot: 已收到") == 2
    assert "<!--" not in out
    assert list(tmp_path.iterdir()) == []
    assert _holders(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_stops_it_finds_nothing_left(tmp_path: Path, number: signal.Signals) -> None:
    with _running(tmp_path) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "task: queued" in line:
                break
        demo.send_signal(number)
        out, _ = demo.communicate(timeout=120)
    assert demo.returncode == 130
    assert json.loads(out.strip().splitlines()[-1])["ok"] is False
    eventually(lambda: not _holders(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_it_stays_up_when_asked_to_and_tells_where_to_look(tmp_path: Path) -> None:
    with _running(tmp_path, "--keep") as demo:
        assert demo.stdout is not None
        told = "".join(itertools.takewhile(lambda line: "  log  " not in line, demo.stdout))
        found = re.search(r"product +(http\S+/overview) +\(Authorization: (Bearer \S+)\)", told)
        assert found is not None, told
        seen = httpx.get(found[1], headers={"Authorization": found[2]}, trust_env=False)
        assert seen.json()["tasks"] == {"succeeded": 2}
        page = re.search(r"issue page +(\S+)", told)
        assert page is not None
        assert "Greetings are too quiet" in httpx.get(page[1], trust_env=False).text
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=120)
    assert demo.returncode == 0
    assert list(tmp_path.iterdir()) == []
    eventually(lambda: not _holders(tmp_path))


def test_an_answer_that_never_comes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = tmp_path / "scenario.json"
    lazy.write_text(json.dumps({"default": ["I would rather not."]}))
    monkeypatch.setattr(stage, "scenario", lambda: lazy)
    said: list[str] = []
    assert story.play(said.append, keep=False) == 1
    told = json.loads(said[-1])
    assert told["ok"] is False
    assert told["state"] == "succeeded_with_rest_fallback"
    assert "published no branch" in told["error"]
