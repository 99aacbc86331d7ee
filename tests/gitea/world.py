"""A forge with a person, a bot and an issue, and the product's ledger and gear beside it.

Every state of a task is reached by the real verbs; nothing is written past them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stationmaster.agents.codex_app.settings import CodexSettings
from stationmaster.clock import MICROS, SystemClock
from stationmaster.command import Cmd
from stationmaster.control.dispatch import Dispatch
from stationmaster.gitea import actions, claiming, normalise, store, webhook
from stationmaster.gitea.client import Forge
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import Comment, Task, TurnKind
from stationmaster.gitea.normalise import Normalised
from stationmaster.gitea.payload import Permissions
from stationmaster.gitea.settings import GiteaSettings, Station
from stationmaster.ledger import history
from stationmaster.ledger import lease as leases
from stationmaster.ledger.history import Entry
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.ledger import Ledger
from stationmaster.redact import Secret
from stationmaster.standins.forge import Forge as StandIn
from stationmaster.standins.forge import ForgeAdmin
from stationmaster.workspaces.git import Git
from stationmaster.workspaces.paths import Layout

REPO = "acme/widgets"
BOT = "codebot"
ASKER = "alice"
WORKER = "worker_one"


class MovableClock(SystemClock):
    """The real time, as the forge has it, that a test can move forward."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = 0

    def now(self) -> int:
        return super().now() + self._ahead

    def advance(self, seconds: float) -> None:
        """Lets `seconds` pass."""
        self._ahead += int(seconds * MICROS)


@dataclass
class World:
    """alice owns acme/widgets, the bot may write there, issue 1 is open; one worker with its gear."""

    standin: StandIn
    admin: ForgeAdmin
    ledger: Ledger
    port: Dispatch
    gear: Gear
    clock: MovableClock
    repo: dict[str, Any]
    asker_id: int
    bot_id: int
    issue: int
    _deliveries: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    # --- from a mention to a turn ---

    async def mention(
        self,
        text: str = "please fix it",
        *,
        number: int | None = None,
        kind: str = "issue",
        permissions: Permissions | None = None,
        author: str = ASKER,
    ) -> Task:
        """Lets somebody mention the bot and the webhook take it; returns the task, queued or continued."""
        at = self.issue if number is None else number
        comment = self.admin.comment(self.repo["full_name"], at, author, f"@{BOT} {text}")
        said = self.normalised(comment, at, kind, text, permissions, author)
        cmd = Cmd("webhook.take", f"gitea:user:{author}", f"delivery:{said.delivery_id}", refs={"task": said.task_id})
        answer = await self.port.do(cmd, webhook.take, said, "hash", self.gear.settings)
        assert answer.status == 202, answer
        return await self.task(answer.body["taskId"])

    def normalised(
        self, comment: int, number: int, kind: str, text: str, permissions: Permissions | None, author: str
    ) -> Normalised:
        """Returns the delivery of a comment as the webhook would see it."""
        owner, name = self.repo["full_name"].split("/")
        author_id = self.asker_id if author == ASKER else 9_999
        now = self.clock.now()
        return Normalised(
            instance_id="default",
            delivery_id=f"delivery-{next(self._deliveries)}",
            event_type="issue_comment",
            route="issue_comment" if kind == "issue" else "pull_request_comment",
            repo=normalise.Repo(self.repo["id"], owner, name, self.repo["clone_url"], "main", private=False),
            resource=normalise.Resource(kind, number, "A title", f"{self.standin.url}/{owner}/{name}/issues/{number}"),
            comment=normalise.Comment(comment, f"@{BOT} {text}", now, now, "", author_id, author),
            actor=normalise.Actor(author_id, author, is_bot=False),
            refs=None,
            permissions=permissions,
            instruction=text,
        )

    async def claim(self, task: Task, station: Station | None = None) -> Hold:
        """Claims the repository of a task for this worker; returns the hold, not beating."""
        at = station or self.gear.station
        cmd = actions.command("task.claim", task, f"worker:{at.worker_id}")
        got = await self.port.do(cmd, claiming.claim, task.repository_id, at, self.gear.settings)
        assert got is not None, "nothing was claimed"
        return Hold(self.gear, *got)

    async def turn(self, hold: Hold, kind: TurnKind = "normal") -> str:
        """Opens a turn of a claimed task and lets it run; returns its run id."""
        run_id = actions.new_run_id()
        await self.do("turn.open", hold.task, actions.open_turn, hold.task.id, hold.lease, run_id, WORKER,
                      kind=kind, head=None)  # fmt: skip
        if (await self.task(hold.task.id)).state == "preparing":
            await self.advance(hold, "start", error_code=None, next_retry_at=None, retry_purpose=None)
        return run_id

    async def end_turn(self, task: Task, run_id: str, text: str = "", verb: Any = "complete") -> None:
        """Ends a turn with the agent's last words."""
        await self.do("turn.end", task, actions.end_turn, task, run_id, verb, None, text)

    async def advance(self, hold: Hold, verb: str, **cols: Any) -> Task:
        """Moves a held task and keeps the lease."""
        moved: Task = await self.do(
            "task.advance", hold.task, actions.advance, hold.task.id, verb, hold.lease, self.gear.settings, **cols
        )
        return moved

    async def lose(self, hold: Hold) -> None:
        """Takes the lease away, as its expiry would."""
        await self.do("lease.release", hold.task, leases.release, hold.lease)

    # --- looking ---

    async def do(self, name: str, task: Task, body: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs one command about a task."""
        return await self.port.do(actions.command(name, task, "test:do"), body, *args, **kwargs)

    async def task(self, task_id: str) -> Task:
        """Returns a task as it is now."""
        return await self.port.read(store.task, task_id)

    async def comment(self, key: str) -> Comment:
        """Returns the row of a comment."""
        found = await self.port.read(store.comment, key)
        assert found is not None, f"no comment {key}"
        return found

    async def comments(self, task: Task) -> list[Comment]:
        """Returns the rows of a task's comments."""
        return await self.port.read(store.comments, task.id)

    async def lease(self, task: Task) -> Lease | None:
        """Returns who holds the task's repository now."""
        return await self.port.read(leases.current, "gitea.repo", task.repository_id)

    async def history(self, task: Task, name: str | None = None) -> list[Entry]:
        """Returns what is written about a task, in order; only the entries of one name when it is given."""
        found = await self.port.read(history.by_ref, "task", task.id)
        return [entry for entry in found if name in (None, entry.name)]

    def said(self, number: int | None = None) -> list[str]:
        """Returns what the bot truly said on an issue, oldest first."""
        rows = self.admin.comments(self.repo["full_name"], self.issue if number is None else number)
        return [str(row["body"]) for row in rows if row["user"]["login"] == BOT]

    def fault(self, kind: str, *, count: int | None = 1, skip: int = 0, match: Any = None, **action: Any) -> None:
        """Adds a fault to the forge."""
        self.admin.add_fault(kind, match=match, count=count, skip=skip, **action)


def settings_for(url: str, token: str, **given: Any) -> GiteaSettings:
    """Returns settings for a forge, quick to give up waiting."""
    fixed = {"settle_s": 0.3, "retry_delay_s": 0.0, "forge_timeout_s": 2.0, "language": "en"}
    return GiteaSettings(
        base_url=url,
        host_ref=url.removeprefix("http://"),
        token=Secret("test:token", lambda: token),
        webhook_secrets=(Secret("test:webhook", lambda: "webhook-secret"),),
        bot_login=BOT,
        **{**fixed, **given},
    )


def gear_for(port: Dispatch, settings: GiteaSettings, folder: Path, worker: str = WORKER) -> Gear:
    """Returns the gear of one worker; its forge is to be closed on the loop that used it."""
    for name in ("runs", "git", "codex", "work"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return Gear(
        port=port,
        settings=settings,
        station=Station(worker, f"{worker}_start", 4, folder / "runs"),
        forge=Forge(settings.base_url, settings.token, timeout_s=settings.forge_timeout_s),
        git=Git(timeout_s=60, lock_wait_s=1, home=folder / "git"),
        layout=Layout(root=folder / "work", runs=folder / "runs"),
        codex=CodexSettings(home=folder / "codex"),
    )
