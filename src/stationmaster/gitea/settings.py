"""What an operator chooses for this slice, and who this worker is; fixed while the daemon runs (GW-R-145)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stationmaster.gitea.codes import Language
from stationmaster.gitea.triggers import TRIGGERS, Trigger
from stationmaster.redact import Secret

Push = Literal["off", "branch", "pull_request"]
ReplyMode = Literal["scoped", "official"]
Allow = Literal["read", "write", "admin", "list"]


@dataclass(frozen=True, slots=True)
class CatchupSettings:
    """How the forge is read for what no delivery brought."""

    every_s: float = 600.0
    overlap_s: float = 60.0
    first_look_back_s: float = 3600.0
    settle_s: float = 10.0


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """How much may be begun and used; 0 is no limit. Times are seconds, days are those of UTC."""

    author_per_hour: int = 0
    repo_per_hour: int = 0
    all_per_hour: int = 0
    task_turns: int = 0
    task_tokens: int = 0
    task_wall_s: float = 0.0
    repo_day_turns: int = 0
    repo_day_tokens: int = 0
    repo_day_wall_s: float = 0.0
    day_turns: int = 0
    day_tokens: int = 0
    day_wall_s: float = 0.0
    turn_steps: int = 0


@dataclass(frozen=True, slots=True)
class GiteaSettings:
    """One forge: where it is, who the bot is there, and the limits; durations are seconds."""

    base_url: str
    host_ref: str
    token: Secret
    webhook_secrets: tuple[Secret, ...]
    bot_login: str
    instance_id: str = "default"
    disabled_repo_policy: Literal["reject", "ignore"] = "reject"
    reply_mode: ReplyMode = "scoped"
    push: Push = "pull_request"
    allow: Allow = "write"
    allow_list: tuple[str, ...] = ()
    triggers: frozenset[Trigger] = TRIGGERS
    language: Language = "zh"
    steering: bool = False
    live_receipt: bool = False
    ttl_s: float = 90.0
    heartbeat_s: float = 30.0
    retry_delay_s: float = 30.0
    abort_timeout_s: float = 60.0
    settle_s: float = 5.0
    turn_timeout_s: float = 3600.0
    forge_timeout_s: float = 30.0
    delivery_days: float = 30.0
    mcp_command: str = "gitea-mcp"
    mcp_handshake_timeout_s: float = 10.0
    catchup: CatchupSettings = CatchupSettings()
    limits: LimitSettings = LimitSettings()


@dataclass(frozen=True, slots=True)
class Station:
    """This worker: its durable id, this start of it, how many runs it may hold, where runs leave things."""

    worker_id: str
    incarnation: str
    max_runs: int
    runs: Path
    mounts: tuple[Path, ...] = ()
    isolation: Literal["required", "codex_only"] = "required"
    repo_instructions: bool = False
    api_key: Secret | None = None


_RANK = {"none": 0, "read": 1, "write": 2, "admin": 3, "owner": 4}


def allows(needed: Allow, may: str) -> bool:
    """Tells whether a right that somebody has on a repository is enough; unknown rights never are."""
    return needed != "list" and _RANK.get(may, -1) >= _RANK[needed]
