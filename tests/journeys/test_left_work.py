"""Half the work is done when something ends the run: it goes on, or ends, without an administrator (K10)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stationmaster.agents import process
from tests.journeys.rig import REPO, Rig, git, reply, rule
from tests.support import eventually

NESTED = "echo better >> README.md; mkdir sub; cd sub; git init -q .; echo two > two.txt"
HALF = rule("please change", {"shell": NESTED}, [{"hold": "gate"}, "Never said."])
AGAIN = rule("may have partially completed", reply("It was done already."), "Done.")


@pytest.fixture
def half(tmp_path: Path) -> Iterator[tuple[Rig, str]]:
    """A product whose agent has changed two files, one of them in a repository of its own, and goes on working."""
    with Rig.made(tmp_path, AGAIN, HALF) as rig:
        rig.start()
        task_id = rig.accepted(rig.mention())
        eventually(lambda: any((tree / "sub" / "two.txt").exists() for tree in rig.trees()), 60)
        eventually(lambda: rig.task(task_id)["task"]["turnId"], 60)
        yield rig, task_id


def committed(rig: Rig, path: str) -> str:
    [tree] = rig.trees()
    return git(tree, "show", f"HEAD:{path}")


def test_a_kill_loses_nothing_and_the_task_goes_on(half: tuple[Rig, str]) -> None:
    # GW-R-251 AC-12, GW-R-184, GW-R-203
    rig, task_id = half
    rig.restart()
    found = rig.rests(task_id)
    assert found["task"]["attempt"] == 1
    rig.proves(found)
    assert committed(rig, "README.md") == "# Widgets\nbetter\n"
    assert committed(rig, "sub/two.txt") == "two\n"
    [branch] = found["branches"]
    assert rig.admin.file(REPO, branch["name"], "sub/two.txt") == "two\n"
    assert "nested repository set aside" in rig.answers(task_id)[0]


def test_an_abort_ends_it_with_the_work_on_its_branch(half: tuple[Rig, str]) -> None:
    # GW-R-253 AC-14, GW-R-178, GW-R-180
    rig, task_id = half
    done = rig.product.command_line("task", "abort", task_id, "--reason", "enough", "--json")
    assert done.returncode == 0, done.stderr
    found = rig.rests(task_id)
    assert (found["task"]["state"], found["task"]["errorCode"]) == ("aborted", "aborted_by_operator")
    rig.leaves_nothing()
    assert committed(rig, "sub/two.txt") == "two\n"
    assert len(rig.receipts(task_id, "aborted")) == 1  # GW-R-135
    assert rig.answers(task_id) == []


def test_stopping_in_order_saves_the_tree_and_a_start_goes_on(half: tuple[Rig, str]) -> None:
    rig, task_id = half
    assert rig.product.stop() == 0
    assert rig.orphans() == []
    assert rig.dirt() == []
    rig.start()
    rig.proves(rig.rests(task_id))


def test_a_persons_commit_on_the_task_branch_blocks_nothing(half: tuple[Rig, str]) -> None:
    rig, task_id = half
    rig.restart()
    rig.rests(task_id)
    [branch] = rig.task(task_id)["branches"]
    rig.admin.commit(REPO, "alice", {"person.txt": "mine\n"}, branch=branch["name"], message="By hand")
    found = rig.rests(rig.accepted(rig.mention("please change it. It may have partially completed")))
    rig.proves(found)
    assert committed(rig, "person.txt") == "mine\n"


def test_frozen_processes_are_gone_before_anything_runs_again(half: tuple[Rig, str]) -> None:
    # the app-server is stopped, the product killed, a new one started, and only then the old one is let go on
    rig, task_id = half
    old = rig.run_ids()[-1]
    frozen = process.marked(old)
    assert frozen
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    rig.restart()
    for pid in frozen:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            continue
    found = rig.rests(task_id)
    rig.proves(found)
    assert process.marked(old) == []
    swept_before(rig, task_id, old)
    assert committed(rig, "sub/two.txt") == "two\n"


def swept_before(rig: Rig, task_id: str, old: str) -> None:
    """Asserts by the history that the old run was ended and its tree saved before another turn began."""
    actions = [(event["action"], event["metadata"]) for event in rig.audit(taskId=task_id)]
    names = [name for name, _ in actions]
    adopted = names.index("recovery.adopt")
    saved = next(at for at, (name, data) in enumerate(actions) if name == "git.commit.result" and at > adopted)
    opened = [at for at, name in enumerate(names) if name == "turn.open"]
    assert opened[0] < adopted < saved < opened[1], (old, names)


def test_a_child_in_a_session_of_its_own_dies_with_its_run(tmp_path: Path) -> None:
    # product and app-server are killed while a command's child, in a session of its own, lives on
    child = "setsid sh -c 'while :; do date >> beat.txt; sleep 0.1; done' >/dev/null 2>&1 & sleep 1"
    stubborn = rule("please change", {"shell": child}, [{"hold": "gate"}, "Never said."])
    with Rig.made(tmp_path, AGAIN, stubborn) as rig:
        rig.start()
        task_id = rig.accepted(rig.mention())
        eventually(lambda: any((tree / "beat.txt").exists() for tree in rig.trees()), 60)
        old = rig.run_ids()[-1]
        rig.product.kill()
        for pid in process.marked(old)[:1]:
            os.kill(pid, signal.SIGKILL)
        rig.start()
        rig.proves(rig.rests(task_id))
        assert process.marked(old) == []
        assert beating() == []


def beating() -> list[str]:
    """Returns the processes that are that child, whatever became of its mark and its parent."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if b"beat.txt" in (folder / "cmdline").read_bytes():
                    found.append(folder.name)
    return found
