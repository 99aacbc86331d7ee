"""What people asked while nobody listened is answered after the start, though the product is killed on the way."""

from __future__ import annotations

import json
from pathlib import Path

from tests.journeys.rig import BOT, REPO, Rig, reply, rule
from tests.support import eventually

ANSWER = rule("please look", reply("I looked."), "Said.")


def test_three_mentions_of_an_absence_become_three_tasks(tmp_path: Path) -> None:
    # GW-R-022: a comment, a new issue's text in a repository never seen before, a review
    with Rig.made(tmp_path, ANSWER, catchup={"settle_s": 0.0, "every_s": 600.0}) as rig:
        rig.admin.collaborator(REPO, BOT, "admin")
        rig.start()
        eventually(lambda: any(event["action"] == "catchup.done" for event in rig.audit()))
        rig.product.kill()

        comment = rig.mention("please look")
        files = {"README.md": "# Gadgets\n"}
        rig.admin.repo("acme", "gadgets", files, collaborators={"alice": "write", BOT: "admin"})
        rig.admin.issue("acme/gadgets", "alice", "It is slow", f"@{BOT} please look")
        rig.admin.commit(REPO, "alice", {"new.txt": "new\n"}, branch="feature")
        pull = rig.admin.pull(REPO, "alice", head="feature", title="A feature")
        rig.admin.review(REPO, pull, "alice", body=f"@{BOT} please look")
        eventually(lambda: rig.admin.on_their_way() == 0)

        rig.start("catchup.admitted")
        rig.dies()
        rig.start()
        eventually(lambda: len(rig.tasks()) == 3)
        assert {task["resourceKey"] for task in rig.tasks()} == {
            "default:acme/widgets:issue:1",
            f"default:acme/widgets:pull_request:{pull}",
            "default:acme/gadgets:issue:1",
        }
        assert comment in {task["commentId"] for task in rig.tasks()}
        for task in rig.tasks():
            assert rig.rests(task["taskId"])["task"]["state"] == "succeeded"
        told = rig.audit()
        assert len([event for event in told if event["action"] == "reading.accept"]) == 3
        assert [event for event in told if event["action"] == "catchup.gap" and event["metadata"]["reason"] == "start"]

        done = rig.product.command_line("catchup", "--reason", "to be sure", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["taken"] == 0
        assert len(rig.tasks()) == 3
