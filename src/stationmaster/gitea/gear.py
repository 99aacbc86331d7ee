"""What the work on a task uses: the ledger's port, the forge, git, the agent, and a hold on the repository."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Self, TypeVar

import structlog

from stationmaster.agents.codex_app.settings import CodexSettings
from stationmaster.command import Cmd, LedgerPort
from stationmaster.errors import Stale, StationmasterError
from stationmaster.gitea import actions, codes, registry, store
from stationmaster.gitea.client import Forge, Moved, RepoRef
from stationmaster.gitea.model import Repository, Task
from stationmaster.gitea.settings import GiteaSettings, Station
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.tx import Tx
from stationmaster.workspaces.git import Author, Git, GitCredential
from stationmaster.workspaces.paths import Layout

T = TypeVar("T")
_log = structlog.get_logger("stationmaster.gitea")


@dataclass(slots=True)
class _Who:
    id: int | None = None


@dataclass(frozen=True, slots=True)
class Gear:
    """Everything that lives as long as the daemon; one per forge."""

    port: LedgerPort
    settings: GiteaSettings
    station: Station
    forge: Forge
    git: Git
    layout: Layout
    codex: CodexSettings
    _who: _Who = field(default_factory=_Who)

    @property
    def credential(self) -> GitCredential:
        """Returns what git may offer to this forge, and to no other address."""
        return GitCredential(self.settings.base_url, self.settings.bot_login, self.settings.token)

    @property
    def author(self) -> Author:
        """Returns whose name the host's commits carry."""
        login = self.settings.bot_login
        return Author(login, f"{login}@noreply.stationmaster")

    async def bot_id(self) -> int:
        """Returns the bot's id at the forge; asked once, for it never changes. Raises what a read raises."""
        if self._who.id is None:
            self._who.id = (await self.forge.get_user()).id
        return self._who.id

    async def at(self, repository_id: str, act: Callable[[RepoRef], Awaitable[T]]) -> T:
        """Does something with a repository under its present name, and follows it once when it was renamed."""
        repository = await self.port.read(store.repository, repository_id)
        try:
            return await act(ref_of(repository))
        except Moved as moved:
            cmd = Cmd("repo.moved", "system", f"repository:{repository_id}", refs={"repo": repository.repo_key})
            repository = await self.port.do(cmd, registry.moved, repository_id, moved.owner, moved.name)
            return await act(ref_of(repository))


def ref_of(repository: Repository) -> RepoRef:
    """Returns how the client names a repository."""
    return RepoRef(repository.owner, repository.name, repository.native_id)


class Hold:
    """A worker's hold on one repository: it heartbeats until told to stop, and says when the lease is lost (K5).

    `lost` is set when the lease is lost or could not be renewed before its end: stop the run's processes at once, for
    the next holder may start when it expires (GW-R-118, GW-R-121).
    """

    def __init__(self, gear: Gear, task: Task, lease: Lease) -> None:
        self.task = task
        self.lease = lease
        self.lost = asyncio.Event()
        self._port = gear.port
        self._settings = gear.settings
        self._beat: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._beat = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._beat is not None:
            self._beat.cancel()
            await asyncio.gather(self._beat, return_exceptions=True)

    async def check(self) -> None:
        """Raises Stale (`lease_lost`) unless the lease is still ours: called just before every effect outside."""
        if self.lost.is_set():
            raise Stale("The repository lease is lost.", code=codes.LEASE_LOST, hint="Stop this run.")
        try:
            await self._port.read(leases.held, self.lease)
        except Stale:
            self.lost.set()
            raise

    async def _keep(self) -> None:
        every = self._settings.heartbeat_s
        loop = asyncio.get_running_loop()
        # Half a heartbeat before its end an unrenewed lease counts as lost: time to stop what runs under it.
        until = loop.time() + self._settings.ttl_s - every / 2
        while True:
            await asyncio.sleep(min(every, until - loop.time()))
            began = loop.time()
            if began >= until:
                break
            try:
                async with asyncio.timeout(until - began):
                    await self._port.hot(leases.heartbeat, self.lease, self._settings.ttl_s)
                until = began + self._settings.ttl_s - every / 2
            except Stale:
                break
            except (StationmasterError, TimeoutError):
                continue
        self.lost.set()
        try:
            cmd = actions.command("lease.lost", self.task, f"worker:{self.lease.owner}")
            await self._port.do(cmd, _renew_lost, self.lease)
        except StationmasterError as error:
            # It is lost all the same; whoever takes it next writes that it expired.
            _log.warning("lease.renew_lost", task=self.task.id, error=str(error))


def _renew_lost(tx: Tx, lease: Lease) -> None:
    tx.event("lease.renew_lost", refs={"lease": lease.lease_id}, term=lease.term)
