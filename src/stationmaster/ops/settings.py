"""The shape of the configuration: one frozen class a section, with the range of every value.

Defaults live in `default.toml` only. Nothing here reads a file or the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from stationmaster.redact import Secret

_YEAR = 31_536_000.0
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Between:
    """The inclusive range of a number."""

    low: float
    high: float


Seconds = Annotated[float, Between(0.001, _DAY)]
Days = Annotated[float, Between(1.0, 36500.0)]


@dataclass(frozen=True, slots=True)
class Lease:
    """`[gitea.lease]`: the reservation of a repository (GW-R-119)."""

    ttl_s: Seconds
    heartbeat_s: Seconds
    max_loss_s: Seconds


@dataclass(frozen=True, slots=True)
class Retry:
    """`[gitea.retry]`."""

    delay_s: Annotated[float, Between(0.0, _DAY)]


@dataclass(frozen=True, slots=True)
class Abort:
    """`[gitea.abort]`."""

    timeout_s: Seconds


@dataclass(frozen=True, slots=True)
class Verify:
    """`[gitea.verify]`."""

    settle_s: Annotated[float, Between(0.0, 600.0)]


@dataclass(frozen=True, slots=True)
class Catchup:
    """`[gitea.catchup]`: how the forge is read for what no webhook brought."""

    every_s: Annotated[float, Between(5.0, _DAY)]
    overlap_s: Annotated[float, Between(1.0, _DAY)]
    first_look_back_s: Annotated[float, Between(0.0, _YEAR)]
    settle_s: Annotated[float, Between(0.0, 3600.0)]


@dataclass(frozen=True, slots=True)
class Mcp:
    """`[gitea.mcp]`: the bridge of official mode."""

    command: str
    handshake_timeout_s: Seconds


Count = Annotated[int, Between(0, 10**15)]


@dataclass(frozen=True, slots=True)
class Limits:
    """`[gitea.limits]`: how much may be begun and used; 0 is no limit."""

    author_per_hour: Count
    repo_per_hour: Count
    all_per_hour: Count
    task_turns: Count
    task_tokens: Count
    task_wall_s: Annotated[float, Between(0.0, _YEAR)]
    repo_day_turns: Count
    repo_day_tokens: Count
    repo_day_wall_s: Annotated[float, Between(0.0, _YEAR)]
    day_turns: Count
    day_tokens: Count
    day_wall_s: Annotated[float, Between(0.0, _YEAR)]
    turn_steps: Count


@dataclass(frozen=True, slots=True)
class Gitea:
    """`[gitea]`, or one `[gitea.instances.<id>]` with what it inherits: a forge and who may ask there."""

    base_url: str
    host_ref: str
    token_ref: Secret | None
    webhook_secret_ref: Secret | None
    webhook_secret_old_ref: Secret | None
    bot_login: str
    disabled_repo_policy: Literal["reject", "ignore"]
    reply_mode: Literal["scoped", "official"]
    push: Literal["off", "branch", "pull_request"]
    allow: Literal["write", "read", "admin", "list"]
    allow_list: tuple[str, ...]
    triggers: tuple[Literal["comment", "edit", "issue_body", "pull_body", "review", "code_comment"], ...]
    language: Literal["zh", "en"]
    steering: bool
    live_receipt: bool
    timeout_s: Seconds
    lease: Lease
    retry: Retry
    abort: Abort
    verify: Verify
    mcp: Mcp
    catchup: Catchup
    limits: Limits

    @property
    def secrets(self) -> tuple[Secret | None, ...]:
        """Every secret of this forge."""
        return self.token_ref, self.webhook_secret_ref, self.webhook_secret_old_ref


@dataclass(frozen=True, slots=True)
class Workspace:
    """`[workspace]`."""

    root: Path


@dataclass(frozen=True, slots=True)
class GitLimits:
    """`[git]`."""

    timeout_s: Seconds
    lock_wait_s: Annotated[float, Between(0.0, _DAY)]


@dataclass(frozen=True, slots=True)
class Codex:
    """`[codex]`; `command` is None for the packaged binary."""

    command: Path | None
    home: Path
    api_key: Secret | None
    model: str
    reasoning_effort: Literal["", "minimal", "low", "medium", "high", "xhigh"]
    developer_instructions: str
    sandbox: Literal["workspace-write", "danger-full-access"]
    request_timeout_s: Seconds
    turn_timeout_s: Seconds
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Agents:
    """`[agents]`."""

    isolation: Literal["required", "codex_only"]
    mounts: tuple[Path, ...]
    repo_instructions: bool


@dataclass(frozen=True, slots=True)
class Worker:
    """`[worker]`."""

    max_runs: Annotated[int, Between(0, 1000)]
    dead_after_s: Annotated[float, Between(1.0, _YEAR)]


@dataclass(frozen=True, slots=True)
class Database:
    """`[database]`; `url` is None for SQLite in the home folder."""

    url: Secret | None


@dataclass(frozen=True, slots=True)
class Web:
    """`[web]`."""

    host: str
    port: Annotated[int, Between(0, 65535)]
    public_url: str
    webhook_max_bytes: Annotated[int, Between(1024, 1024**3)]
    session_idle_s: Annotated[float, Between(1.0, _YEAR)]
    session_max_s: Annotated[float, Between(1.0, _YEAR)]
    metrics: Literal["key", "loopback", "off"]


@dataclass(frozen=True, slots=True)
class Retention:
    """`[retention]`."""

    delivery_days: Days
    event_days: Days
    payload_days: Days
    file_days: Days
    thread_days: Days


@dataclass(frozen=True, slots=True)
class Log:
    """`[log]`."""

    level: Literal["debug", "info", "warning", "error"]
    format: Literal["keyvalue", "json"]


@dataclass(frozen=True, slots=True)
class Config:
    """The effective configuration of one home; `source` is the file a sentence should name."""

    source: Path
    # The forge `default`, and what the others inherit.
    gitea: Gitea
    instances: Mapping[str, Gitea]
    workspace: Workspace
    git: GitLimits
    codex: Codex
    agents: Agents
    worker: Worker
    database: Database
    web: Web
    retention: Retention
    log: Log

    def secrets(self) -> tuple[Secret, ...]:
        """Every secret that is referred to."""
        forges = (self.gitea, *self.instances.values())
        found = [secret for forge in forges for secret in forge.secrets]
        return tuple(secret for secret in (*found, self.codex.api_key, self.database.url) if secret is not None)
