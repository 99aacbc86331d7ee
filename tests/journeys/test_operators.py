"""What an operator does at the command line of a running product, and what comes of it."""

from __future__ import annotations

import json

from tests.journeys.rig import REPO, Rig, git


def said(rig: Rig, *words: str, code: int = 0) -> str:
    """Runs a command line and returns what it printed."""
    done = rig.product.command_line(*words)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_a_blocked_task_goes_on_once_its_workspace_is_put_right(rig: Rig) -> None:
    # GW-R-221, GW-R-100, GW-R-245 AC-06
    rig.proves(rig.rests(rig.accepted(rig.mention())))
    [tree] = rig.trees()
    note = tree / "note.txt"
    note.write_bytes(b"somebody's own\r\n")
    before = git(tree, "rev-parse", "HEAD")

    task_id = rig.accepted(rig.mention("what did you change"))
    rig.rests(task_id, "blocked_workspace")
    watched = said(rig, "task", "watch", task_id, code=13)
    assert "note.txt" in watched
    assert "note.txt" in rig.task(task_id)["error"]["detail"]
    assert watched.splitlines()[-1] == f"{task_id} is blocked_workspace."
    refused = said(rig, "task", "unblock", task_id, "--reason", "try", code=6)
    assert "note.txt" in refused
    assert (note.read_bytes(), git(tree, "rev-parse", "HEAD")) == (b"somebody's own\r\n", before)

    note.unlink()
    queued = json.loads(said(rig, "task", "unblock", task_id, "--reason", "moved it away", "--json"))
    assert queued["state"] == "queued"
    watched = said(rig, "task", "watch", task_id)
    assert watched.splitlines()[-1] == f"{task_id} is succeeded."
    assert "blocked_workspace → queued" in watched
    rig.proves(rig.rests(task_id))
    assert rig.task(task_id)["task"]["unblockAttempt"] == 1


def test_a_request_outlives_the_daemon_that_took_it(rig: Rig) -> None:
    # GW-R-224, GW-R-190: killed when it had accepted, killed again when it had looked.
    rig.proves(rig.rests(rig.accepted(rig.mention())))
    [tree] = rig.trees()
    (tree / "note.txt").write_text("somebody's own")
    task_id = rig.accepted(rig.mention("what did you change"))
    rig.rests(task_id, "blocked_workspace")
    (tree / "note.txt").unlink()
    unblock = ("task", "unblock", task_id, "--reason", "moved", "--request-id", "once", "--json")

    rig.product.stop()
    rig.start("operate.accepted", "unblock.looked")
    assert "did not answer" in said(rig, *unblock, code=8)
    rig.dies()
    rig.start("unblock.looked")
    rig.dies()
    assert "still in progress" in said(rig, *unblock, code=7)
    rig.start()
    found = rig.rests(task_id, "succeeded")
    assert json.loads(said(rig, *unblock))["state"] == "queued"
    assert found["task"]["unblockAttempt"] == 1
    rig.proves(found)


def test_a_paused_product_takes_mentions_and_works_on_none(rig: Rig) -> None:
    # GW-R-253 AC-14, GW-R-125, GW-R-218
    said(rig, "pause", "--reason", "upgrade")
    task_id = rig.accepted(rig.mention())
    rig.restart()
    assert "globalPaused  yes" in said(rig, "overview")
    assert rig.task(task_id)["task"]["state"] == "queued"
    assert rig.said() == []
    said(rig, "resume", "--reason", "done")
    rig.proves(rig.rests(task_id))
    readable(rig, task_id)

    said(rig, "repo", "disable", f"default:{REPO}", "--reason", "quiet")
    comment = rig.mention("please change it again")
    [row] = rig.delivered(comment)
    assert json.loads(row["response"]["body"]) == {"error": "repository_disabled"}
    said(rig, "repo", "enable", f"default:{REPO}", "--reason", "again")
    assert said(rig, "task", "list", "--state", "succeeded").count("gitea-task-") == 1


def readable(rig: Rig, task_id: str) -> None:
    """Asserts that the chain can be read at a glance."""
    # GW-R-229, GW-R-255 AC-16
    proof = said(rig, "audit", "--task", task_id).partition("Proof, from this history alone:\n")[2]
    names = [row.split()[0] for row in proof.splitlines()]
    assert names[:4] == ["delivery", "task", "session", "thread"]
    assert "→ verifying_reply → succeeded" in proof
    for words in ("the mention", "receipt, read back", "answer, read back"):
        assert words in proof
