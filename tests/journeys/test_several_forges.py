"""One product that works for two forges: each hears its own, and one that hangs or is gone holds up nobody else."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from stationmaster.control import look
from stationmaster.standins.forge import Forge, ForgeAdmin
from tests.journeys.rig import CHANGE, REPO, Rig, rule
from tests.support import eventually

LINK = "link"
OTHER_BOT = "helper"


@dataclass
class Second:
    """A Forgejo beside the rig's forge, with a repository of the same name."""

    rig: Rig
    forge: Forge
    admin: ForgeAdmin
    secret: str
    section: dict[str, Any]
    hook: int = 0

    def start(self) -> None:
        """Starts the product for both forges."""
        self.rig.start()
        if not self.hook:
            self.hook = self.admin.hook(self.address, repo=REPO, secret=self.secret)
        self.admin.hook_settings(self.hook, url=self.address)

    @property
    def address(self) -> str:
        return f"{self.rig.webhook}/{LINK}"

    def mention(self, text: str = "please change it") -> int:
        return self.admin.comment(REPO, 1, "alice", f"@{OTHER_BOT} {text}")

    def key(self) -> str:
        return f"{LINK}:{REPO}"

    def tasks(self) -> list[dict[str, Any]]:
        """Returns the tasks of this forge."""
        return [row for row in self.rig.tasks() if row["repoKey"] == self.key()]

    def said(self) -> list[str]:
        return [row["body"] for row in self.admin.comments(REPO, 1) if row["user"]["login"] == OTHER_BOT]


@contextmanager
def both(folder: Path, *rules: Any, max_runs: int = 4) -> Iterator[tuple[Rig, Second]]:
    """Makes a product for two forges; nothing of it runs yet."""
    with (
        Rig.made(folder, *rules) as rig,
        Forge(folder / "second") as forge,
        ForgeAdmin(forge.url) as admin,
    ):
        admin.settings(dialect="forgejo")
        admin.org("acme")
        admin.user("alice")
        admin.bot(OTHER_BOT)
        files = {"README.md": "# Other widgets\n"}
        admin.repo("acme", "widgets", files, collaborators={"alice": "write", OTHER_BOT: "admin"})
        admin.issue(REPO, "alice", "Another thing", "It is another forge.")
        token, secret = secrets.token_hex(20), secrets.token_hex(20)
        admin.token(OTHER_BOT, scopes=["write:issue", "write:repository", "read:user"], value=token)
        section: dict[str, Any] = {"base_url": forge.url, "bot_login": OTHER_BOT, "catchup": {"settle_s": 0.0}}
        for key, value in (("token_ref", token), ("webhook_secret_ref", secret)):
            path = folder / f"second-{key}"
            path.write_text(value)
            section[key] = f"file:{path}"
        second = Second(rig, forge, admin, secret, section)
        rig.configure({"worker": {"max_runs": max_runs}}, instances={LINK: section})
        yield rig, second


def test_each_forge_gets_its_own_answers_and_deliveries_of_another_are_refused(tmp_path: Path) -> None:
    # GW-R-011, GW-R-012, GW-R-048, GW-R-235
    with both(tmp_path) as (rig, second):
        second.start()
        here = rig.accepted(rig.mention())
        second.mention()
        [there] = eventually(second.tasks, 30)
        rig.proves(rig.rests(here))
        found = rig.rests(there["taskId"])
        assert found["task"]["state"] == "succeeded"
        assert (rig.task(here)["task"]["repoKey"], found["task"]["repoKey"]) == (f"default:{REPO}", f"{LINK}:{REPO}")
        # A receipt and an answer each, and nobody hears of the other's.
        assert len(rig.said()) == len(second.said()) == 2
        assert there["taskId"] not in "".join(rig.said())
        assert here not in "".join(second.said())
        for admin, name in ((rig.admin, "widgets"), (second.admin, "widgets")):
            [pull] = admin.pulls(REPO)
            assert name in pull["html_url"]
        rig.leaves_nothing()
        # What one forge signed is nothing to the other, nor is an address that no forge has.
        delivery = second.admin.deliveries()[-1]
        headers = {k: v for k, v in delivery["request"]["headers"].items() if k.lower() != "content-length"}
        before = len(rig.tasks())
        for address, status in ((rig.webhook, 401), (f"{rig.webhook}/nobody", 404), (second.address, 200)):
            answer = httpx.post(address, content=delivery["payload"].encode(), headers=headers, trust_env=False)
            assert answer.status_code == status, answer.text
        assert len(rig.tasks()) == before
        # A key names one repository, though both forges have one of that name.
        done = rig.product.command_line("repo", "disable", second.key(), "--reason", "try", "--json")
        assert done.returncode == 0, done.stderr
        states = {row["repoKey"]: row["status"] for row in rig.door().call(look.repositories, {})["repositories"]}
        assert states == {f"default:{REPO}": "active", second.key(): "disabled"}


def test_a_forge_that_hangs_holds_up_nobody_else(tmp_path: Path) -> None:
    with both(tmp_path, CHANGE, max_runs=2) as (rig, second):
        # Every request to the first hangs from before the start on; somebody asked at the second meanwhile.
        rig.admin.add_fault("delay", match={"path": "/api/v1/|git-upload-pack|info/refs"}, count=None, seconds=60)
        missed = second.mention()
        second.start()
        [found] = eventually(second.tasks, 30)
        assert found["commentId"] == missed
        assert rig.get("/readyz").json()["silentForges"] == ["default"]
        hanging = [rig.accepted(rig.mention()) for _ in range(2)]
        assert rig.rests(found["taskId"])["task"]["state"] == "succeeded"
        second.mention()
        eventually(lambda: len(second.tasks()) == 2, 30)
        for task in second.tasks():
            assert rig.rests(task["taskId"])["task"]["state"] == "succeeded"
        # The first has not been heard of, and what was asked there is kept.
        assert rig.get("/readyz").json()["ready"] is True
        assert rig.said() == []
        assert "succeeded" not in {rig.task(task)["task"]["state"] for task in hanging}
        rig.admin.set_faults([])


def test_tasks_of_a_forge_that_is_not_configured_any_more_stay_as_they_are(tmp_path: Path) -> None:
    with both(tmp_path, rule("please wait", {"hold": "gate"}, "Never."), CHANGE) as (rig, second):
        second.start()
        second.mention("please wait")
        [there] = eventually(second.tasks, 30)
        rig.rests_in(there["taskId"], "running")
        rig.product.kill()
        rig.configure()
        rig.start()
        # The first forge is worked for as ever; the other's task stands where it stood, and the log says so once.
        rig.proves(rig.rests(rig.accepted(rig.mention())))
        left = rig.task(there["taskId"])["task"]
        assert left["state"] == "running"
        log = rig.product.log.read_text()
        assert log.count("forge.not_configured") == 1
        assert f"instance={LINK}" in log
        assert len(second.said()) == 1
        refused = rig.product.command_line("task", "abort", there["taskId"], "--reason", "no", "--json")
        assert refused.returncode != 0
        assert f"The forge {LINK} of this task is not configured." in refused.stdout + refused.stderr
        # Configured again, it goes on.
        rig.product.stop()
        rig.configure(instances={LINK: second.section})
        second.start()
        eventually(lambda: rig.task(there["taskId"])["task"]["state"] != "running", 60)
