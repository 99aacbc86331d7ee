"""SIGKILL where an ordinary task does not pass: parts, orders, words into a turn, edits, an agent that posts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.gitea.bridges import NEEDS, program
from tests.journeys.rig import EDIT, REPO, Rig, reply, rule
from tests.support import eventually

WITHIN_S = 40.0
LONG = "\n".join(f"{number}: {'word ' * 20}" for number in range(1500))


def test_a_kill_after_the_first_part_of_a_long_answer(tmp_path: Path) -> None:
    # GW-R-251 AC-12: the answer stands, its other parts do not yet
    with Rig.made(tmp_path, rule("please change", EDIT, reply(LONG), "Done.")) as rig:
        rig.start("outbox.proven:2")
        task_id = rig.accepted(rig.mention())
        rig.dies()
        rig.start()
        rig.proves(rig.rests(task_id))
        eventually(lambda: len(rig.said()) == 4, WITHIN_S)
        assert [text[:13] for text in rig.said()[2:]] == ["(part 2 of 3)", "(part 3 of 3)"]


def test_a_kill_while_an_order_is_answered(tmp_path: Path) -> None:
    # GW-R-251 AC-12
    with Rig.made(tmp_path) as rig:
        rig.start("outbox.sent")
        rig.mention("help")
        rig.dies()
        rig.start()
        eventually(lambda: any(event["action"] == "note.confirmed" for event in rig.audit()), WITHIN_S)
        assert len(rig.said()) == 1
        assert rig.tasks() == []


def test_a_kill_after_words_were_said_into_a_turn(tmp_path: Path) -> None:
    # GW-R-251 AC-12, GW-R-060: both are asked again together, of one task
    both = rule(r"may have partially completed[\s\S]*also paint it", reply("Changed and painted."), "Done.")
    with Rig.made(tmp_path, both, rule("please change", EDIT, {"hold": "for ever"}), steering=True) as rig:
        rig.start("steering.said")
        task_id = rig.accepted(rig.mention())
        eventually(lambda: bool(rig.trees()) and (rig.trees()[0] / "new.txt").exists(), WITHIN_S)
        rig.mention("also paint it")
        rig.dies()
        rig.start()
        rig.proves(rig.rests(task_id))
        assert len(rig.tasks()) == 1
        assert any("Changed and painted." in text for text in rig.said())


def test_a_kill_while_a_receipt_is_edited(tmp_path: Path) -> None:
    # GW-R-251 AC-12: the edit is read back, and no second receipt comes of it
    with Rig.made(tmp_path, live_receipt=True) as rig:
        rig.start("live.edited")
        task_id = rig.accepted(rig.mention())
        rig.dies()
        rig.start()
        rig.proves(rig.rests(task_id))
        eventually(lambda: "· answered" in rig.said()[0], WITHIN_S)
        assert len(rig.said()) == 2


def test_a_kill_after_the_agent_posted_by_itself(tmp_path: Path) -> None:
    # GW-R-251 AC-12, GW-R-187: the forge shows the answer; the work is published without a second run
    args = {"method": "add_comment", "owner": "acme", "repo": "widgets", "issue_number": 1, "body": "Fixed.\n\n${1}"}
    post: dict[str, Any] = {"mcp": {"server": "gitea", "tool": "issue_write", "args": args}}
    posts = rule(r"Marker line: (<!-- ccweb [^>]* -->)[\s\S]*please change", EDIT, post, "Fixed.")
    bridge = {"command": str(program(tmp_path))}
    with Rig.made(tmp_path, posts) as rig:
        rig.configure({"agents": {"mounts": [str(folder) for folder in NEEDS]}}, reply_mode="official", mcp=bridge)
        rig.start("turn.processes_gone")
        task_id = rig.accepted(rig.mention())
        rig.dies()
        rig.start()
        found = rig.rests(task_id)
        rig.proves(found)
        assert len(found["turns"]) == 1
        [pull] = rig.admin.pulls(REPO)
        assert rig.admin.file(REPO, pull["head"]["ref"], "new.txt") == "new\n"
