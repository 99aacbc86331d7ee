"""The whole product as a user has it: a forge, a scripted model and the daemon as a process that can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import httpx

from stationmaster.agents import process
from stationmaster.control import look
from stationmaster.control.follow import events
from stationmaster.control.socket import Door
from stationmaster.gitea import marker
from stationmaster.ops.demo.product import Product, Running, scripted_model
from stationmaster.standins.forge import Forge, ForgeAdmin
from stationmaster.standins.responses_model import ResponsesModel
from tests import warm
from tests.journeys.record import Recorder
from tests.support import eventually

Json = dict[str, Any]

REPO = "acme/widgets"
BOT = "codebot"
RESTING = frozenset(
    {
        "waiting_user",
        "blocked_workspace",
        "succeeded",
        "succeeded_with_rest_fallback",
        "failed",
        "failed_reply",
        "cancelled",
        "aborted",
    }
)
WITHIN_S = 90.0
EDIT = {"shell": "echo better >> README.md; echo new > new.txt"}


def reply(body: str) -> Json:
    """The model's call of `reply`."""
    return {"call": {"name": "reply", "args": {"body": body}}}


def ask(body: str) -> Json:
    """The model's call of `ask`."""
    return {"call": {"name": "ask", "args": {"body": body}}}


def rule(user: str, *steps: Any) -> Json:
    """What the model does when somebody says `user`: the next step is chosen by how many tools have answered."""
    return {"when": {"user": user}, "advance": "tool", "steps": list(steps)}


CHANGE = rule("please change", EDIT, reply("Changed it."), "Done.")
# What any agent does when it is told that its answer is not in the thread.
AGAIN = rule("Your answer for .* is not there", reply("Changed it."), "Posted.")
QUESTION = rule("what did you", reply("I made the README better."), "Said.")


@dataclass
class Rig:
    """One forge, one model, one home; `alice` owns acme/widgets, the bot may write there, issue 1 is open."""

    folder: Path
    forge: Forge
    admin: ForgeAdmin
    model: ResponsesModel
    product: Product
    bot_id: int
    token: str
    hook_secret: str
    hooks: list[int] = field(default_factory=list)
    settings: Json = field(default_factory=dict)
    # When the product was started and ready, and when it died of itself or of us, in seconds.
    starts: list[tuple[float, float]] = field(default_factory=list)
    deaths: list[float] = field(default_factory=list)
    recorder: ClassVar[Recorder | None] = None
    _entered: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _door: tuple[int, Door] | None = None

    @classmethod
    @contextlib.contextmanager
    def made(cls, folder: Path, *rules: Json, **gitea: Any) -> Iterator[Rig]:
        """Makes everything and starts nothing of the product yet."""
        scenario = {"rules": [*(rules or (CHANGE, QUESTION)), AGAIN], "default": ["Nothing to do."]}
        with Forge(folder / "forge") as forge, ForgeAdmin(forge.url) as admin, ResponsesModel(scenario) as model:
            admin.org("acme")
            for login in ("alice", "bob"):
                admin.user(login)
            bot_id = admin.bot(BOT)
            files = {"README.md": "# Widgets\n"}
            admin.repo("acme", "widgets", files, collaborators={"alice": "write", "bob": "read", BOT: "write"})
            token, hook_secret = secrets.token_hex(20), secrets.token_hex(20)
            admin.token(BOT, scopes=["write:issue", "write:repository", "read:user"], value=token)
            admin.issue(REPO, "alice", "It could be better", "The README is too short.")
            # What is measured is what a user waits for: imports too.
            product = _Warm(folder / "home") if cls.recorder is None else Product(folder / "home")
            rig = cls(folder, forge, admin, model, product, bot_id, token, hook_secret)
            rig.configure(**gitea)
            try:
                yield rig
                if cls.recorder is not None:
                    cls.recorder.take(rig)
            finally:
                rig._entered.close()
                product.kill()
                for run_id in rig.run_ids():
                    process.sweep(run_id)

    def configure(self, sections: Json | None = None, **gitea: Any) -> None:
        """Writes the home's settings: everything short, so that nothing waits for long."""
        self.settings = {
            "gitea": {
                "base_url": self.forge.url,
                "bot_login": BOT,
                "language": "en",
                "timeout_s": 2.0,
                # A restart frees the leases of the process before it, so they may outlast a busy machine.
                "lease": {"ttl_s": 20.0, "heartbeat_s": 4.0, "max_loss_s": 30.0},
                "retry": {"delay_s": 0.2},
                "abort": {"timeout_s": 5.0},
                "verify": {"settle_s": 2.0},
                # What is read brings no rights with it, and this bot may not ask for them: deliveries go first.
                "catchup": {"settle_s": 300.0},
                **gitea,
            },
            "git": {"lock_wait_s": 1.0},
            "web": {"port": 0},
            "worker": {"max_runs": 4},
            "codex": {"config": scripted_model(self.model.base_url)},
            **(sections or {}),
        }
        self.product.configure(self.settings, token=self.token, webhook_secret=self.hook_secret)

    # --- the product's life ---

    def start(self, *faults: str) -> None:
        """Starts the daemon, to be killed at the named fault points, and points the forge's hooks at it."""
        began = time.time()
        self.product.start(**({"STATIONMASTER_FAULT": ",".join(faults)} if faults else {}))
        self.starts.append((began, time.time()))
        if not self.hooks:
            self.add_hook()
        for hook in self.hooks:
            self.admin.hook_settings(hook, url=self.webhook)

    def add_hook(self) -> int:
        """Adds a hook of the repository, as an administrator of it would."""
        self.hooks.append(self.admin.hook(self.webhook, repo=REPO, secret=self.hook_secret))
        return self.hooks[-1]

    @property
    def webhook(self) -> str:
        """Where deliveries go."""
        return f"{self.product.web}/api/gitea/webhook"

    def dies(self) -> None:
        """Waits until the daemon has killed itself at its fault point."""
        try:
            eventually(lambda: not self.product.running, WITHIN_S)
        except AssertionError:
            raise AssertionError(f"It lives.\n{self.tasks()}\n{self.product.log.read_text()}") from None
        assert self.product.process is not None
        assert self.product.process.returncode == -signal.SIGKILL, self.product.last_words()
        self.deaths.append(time.time())
        self.product.kill()

    def restart(self, *faults: str) -> None:
        """Kills the daemon as a power cut would and starts it again."""
        self.product.kill()
        self.deaths.append(time.time())
        self.start(*faults)

    # --- what people do ---

    def mention(self, text: str = "please change it", *, author: str = "alice", number: int = 1) -> int:
        """Lets somebody mention the bot; returns the comment's id."""
        return self.admin.comment(REPO, number, author, f"@{BOT} {text}")

    def delivered(self, comment: int) -> list[Json]:
        """Waits until no delivery is on its way and returns those of a comment."""
        eventually(lambda: self.admin.on_their_way() == 0)
        return [
            row for row in self.admin.deliveries() if json.loads(row["payload"]).get("comment", {}).get("id") == comment
        ]

    def accepted(self, comment: int) -> str:
        """Returns the task that a comment became; a delivery that nobody answered 2xx is sent again, as a person would.

        The forge itself sends once only.
        """
        while True:
            rows = self.delivered(comment)
            bodies = [json.loads(row["response"]["body"]) for row in rows if row["succeeded"]]
            if bodies:
                return str(bodies[0]["taskId"])
            self.admin.replay(rows[-1]["id"])

    # --- what the product says ---

    def door(self) -> Door:
        """Returns the door to the running daemon; one for each of its lives."""
        pid = self.product.address["pid"]
        if self._door is None or self._door[0] != pid:
            self._entered.close()
            self._door = (pid, self._entered.enter_context(self.product.door()))
        return self._door[1]

    def task(self, task_id: str) -> Json:
        """Returns a task as `task show` gives it."""
        return dict(self.door().call(look.task, {"taskId": task_id}))

    def tasks(self) -> list[Json]:
        """Returns every task."""
        return list(self.door().call(look.tasks, {})["tasks"])

    def rests(self, task_id: str, *states: str) -> Json:
        """Waits until a task rests and nobody holds its repository; returns it as it is shown."""
        wanted = frozenset(states) or RESTING

        def at_rest() -> Json | None:
            assert self.product.running, self.product.last_words()
            found = self.task(task_id)
            return found if found["task"]["state"] in wanted and found["task"]["leaseId"] is None else None

        try:
            found = eventually(at_rest, WITHIN_S)
        except AssertionError:
            found = self.task(task_id)
            raise AssertionError(f"{found}\n{self.product.log.read_text()}") from None
        assert found is not None
        return found

    def rests_in(self, task_id: str, state: str) -> Json:
        """Waits until a task is in a state, held or not."""
        eventually(lambda: self.task(task_id)["task"]["state"] == state, WITHIN_S)
        return self.task(task_id)

    def audit(self, **wire: Any) -> list[Json]:
        """Returns the audit, all of it or what a filter leaves."""
        return list(events(self.door(), wire))

    def chain(self, task_id: str) -> dict[str, list[str]]:
        """Returns the proof chain that the command line prints."""
        done = self.product.command_line("audit", "--task", task_id, "--json")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout.strip().splitlines()[-1])["chain"])

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Asks the daemon over TCP."""
        return httpx.get(f"{self.product.web}{path}", headers=headers, trust_env=False)

    # --- what is true at the forge and on the machine ---

    def said(self, number: int = 1) -> list[str]:
        """Returns what the bot wrote on an issue, as it truly is."""
        rows = self.admin.comments(REPO, number)
        return [row["body"] for row in rows if row["user"]["id"] == self.bot_id]

    def answers(self, task_id: str, number: int = 1) -> list[str]:
        """Returns the bot's comments that carry the final mark of a task."""
        found = []
        for body in self.said(number):
            mark = marker.only(body)
            if mark is not None and mark.task_id == task_id:
                found.append(body)
        return found

    def receipts(self, task_id: str, state: str = "running", number: int = 1) -> list[str]:
        """Returns the bot's receipts for a state of a task."""
        key = f"{task_id}:status:{state}"
        return [body for body in self.said(number) if marker.is_receipt(body, comment_key=key)]

    def run_ids(self) -> list[str]:
        """Returns every run that the ledger knows, also while no daemon runs."""
        database = self.product.home / "stationmaster.db"
        if not database.exists():
            return []
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as ledger:
            return [row[0] for row in ledger.execute("SELECT id FROM run")]

    def orphans(self) -> list[int]:
        """Returns the processes that carry the mark of a run."""
        return [pid for run_id in self.run_ids() for pid in process.marked(run_id)]

    def trees(self) -> list[Path]:
        """Returns every worktree."""
        return sorted((self.product.home / "workspaces" / "repositories").glob("*/trees/*"))

    def dirt(self) -> list[str]:
        """Returns what is not committed in the worktrees."""
        return [line for tree in self.trees() for line in git(tree, "status", "--porcelain").splitlines()]

    def proves(self, found: Json, *, number: int = 1, state: str = "succeeded") -> None:
        """Asserts what must hold of a task that succeeded, whatever happened on the way."""
        task_id = found["task"]["taskId"]
        assert found["task"]["state"] == state, f"{json.dumps(found, indent=1)}\n{self.product.log.read_text()}"
        assert len(self.answers(task_id, number)) == 1
        assert len(self.receipts(task_id, number=number)) <= 1
        # GW-R-229: the history alone tells the whole story.
        told = self.audit(taskId=task_id)
        for name in ("deliveryId", "taskId", "sessionKey", "threadId", "turnId", "commentId"):
            assert any(event[name] for event in told), name
        self.leaves_nothing()

    def leaves_nothing(self) -> None:
        """Asserts that no process of a run lives and no worktree is dirty."""
        assert self.orphans() == []
        assert self.dirt() == []
        assert [lock for tree in self.trees() for lock in tree.parent.parent.rglob("*.lock")] == []


class _Warm(Product):
    """The product's process, started without its imports."""

    def _begin(self, words: list[str], env: Mapping[str, str], log: BinaryIO) -> Running:
        return warm.Process(words, env, stderr=log.fileno())


def git(tree: Path, *args: str) -> str:
    """Runs git in a worktree as a person would."""
    env = {"PATH": os.environ["PATH"], "HOME": str(tree.parent), "GIT_OPTIONAL_LOCKS": "0"}
    return subprocess.run(["git", *args], cwd=tree, env=env, check=True, capture_output=True, text=True).stdout


def fault_points() -> list[str]:
    """Returns the name of every fault point in the code."""
    package = Path(process.__file__).parent.parent
    named = re.compile(r"faults\.point\(\"([\w.]+)\"\)")
    return sorted({name for path in package.rglob("*.py") for name in named.findall(path.read_text())})
