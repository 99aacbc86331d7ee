"""What this slice keeps, as frozen rows; a value that the code does not know fails the load (GW-R-025)."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from stationmaster.errors import Bug

TaskState = Literal[
    "received",
    "queued",
    "preparing",
    "running",
    "waiting_user",
    "verifying_reply",
    "retry_wait",
    "blocked_workspace",
    "aborting",
    "succeeded",
    "succeeded_with_rest_fallback",
    "failed",
    "failed_reply",
    "cancelled",
    "aborted",
    "ignored",
    "duplicate",
    "rejected",
]
Purpose = Literal["execution", "reply", "verification"]
Kind = Literal["issue", "pull_request"]
CommentKind = Literal["status", "mcp_final", "rest_fallback", "question"]
CommentState = Literal["pending", "sent", "confirmed", "failed"]
TurnKind = Literal["normal", "reply_retry"]
Word = Literal["stop", "retry", "status", "help"]

LEASE_KIND = "gitea.repo"

T = TypeVar("T")


class Repository(msgspec.Struct, frozen=True):
    """A repository of the forge; `native_id` is the forge's own number."""

    id: str
    state: Literal["active", "disabled", "blocked"]
    rev: int
    instance_id: str
    native_id: int
    owner: str
    name: str
    repo_key: str
    clone_url: str
    default_branch: str
    home_worker: str | None
    registered_at: int
    updated_at: int


class Session(msgspec.Struct, frozen=True):
    """The conversation of one issue or pull request; `tool_set` names the tools its thread was born with."""

    id: str
    state: Literal["active", "waiting_user", "closed"]
    rev: int
    repository_id: str
    kind: Kind
    number: int
    thread_id: str | None
    tool_set: str | None
    created_at: int
    updated_at: int


class Branch(msgspec.Struct, frozen=True):
    """A task branch; `published_sha` is the commit last proven to be at the forge."""

    id: str
    state: Literal["current", "retired"]
    rev: int
    session_id: str
    name: str
    base_sha: str
    published_sha: str | None
    pull_number: int | None
    created_at: int
    updated_at: int


class Task(msgspec.Struct, frozen=True):
    """One accepted instruction and where it stands (GW-R-038)."""

    id: str
    state: TaskState
    rev: int
    delivery_key: str
    delivery_id: str
    repository_id: str
    session_id: str
    resource_key: str
    comment_id: int
    author: str
    author_id: int
    sender_may: str | None
    base_ref: str | None
    head_ref: str | None
    attempt: int
    reply_attempt: int
    unblock_attempt: int
    next_retry_at: int | None
    retry_purpose: Purpose | None
    error_code: str | None
    reply_failure: str | None
    created_at: int
    updated_at: int


class Asker(msgspec.Struct, frozen=True):
    """Who gave an instruction; `may` is what the signed event said of their rights, None when it said nothing."""

    id: int
    login: str
    may: str | None


class FollowUp(msgspec.Struct, frozen=True):
    """A comment that continued a waiting task (GW-R-060)."""

    task_id: str
    number: int
    comment_id: int
    author: str
    author_id: int
    sender_may: str | None
    body: str
    at: int


class Delivery(msgspec.Struct, frozen=True):
    """What a delivery was answered (GW-R-026)."""

    delivery_key: str
    delivery_id: str
    event_type: str
    received_at: int
    normalized: int
    status: Literal["accepted", "ignored", "duplicate", "rejected"]
    reason_code: str | None
    http_status: int
    response_body: str
    payload_hash: str
    task_id: str | None
    expires_at: int


class Turn(msgspec.Struct, frozen=True):
    """Which task a run belongs to, and what it is for."""

    run_id: str
    task_id: str
    kind: TurnKind
    head_before: str | None


class Comment(msgspec.Struct, frozen=True):
    """A comment of ours (GW-R-041); `id` is the commentKey, `native_id` the forge's."""

    id: str
    state: CommentState
    rev: int
    task_id: str
    run_id: str | None
    kind: CommentKind
    repository_id: str
    resource_key: str
    number: int
    body_hash: str
    term: int | None
    native_id: int | None
    error_code: str | None
    created_at: int
    updated_at: int


class Control(msgspec.Struct, frozen=True):
    """Whether new work is taken up (GW-R-044)."""

    id: str
    state: Literal["running", "paused"]
    rev: int
    reason: str | None
    updated_by: str
    updated_at: int


class Order(msgspec.Struct, frozen=True):
    """A comment of one word that asks something of the product itself."""

    id: str
    state: Literal["asked", "standing", "done", "refused"]
    rev: int
    instance_id: str
    origin: str
    native_id: int
    version: int
    word: Word
    delivery_id: str
    repository_id: str
    resource_key: str
    kind: Kind
    number: int
    author: str
    author_id: int
    sender_may: str | None
    asked_at: int
    error_code: str | None
    created_at: int
    updated_at: int


class Note(msgspec.Struct, frozen=True):
    """What the product says about an order; `id` is its commentKey, `native_id` the forge's number."""

    id: str
    state: CommentState
    rev: int
    order_id: str
    repository_id: str
    resource_key: str
    number: int
    body: str
    native_id: int | None
    error_code: str | None
    created_at: int
    updated_at: int


class Stop(msgspec.Struct, frozen=True):
    """That a task is to stop, and why."""

    task_id: str
    code: str
    order_id: str | None
    at: int


class Steer(msgspec.Struct, frozen=True):
    """A comment that is to be said into the running turn of a task; `said` is the whole normalised comment."""

    id: str
    state: Literal["waiting", "sent", "taken", "queued"]
    rev: int
    task_id: str
    said: str
    task_after: str | None
    created_at: int
    updated_at: int


def read(row: dict[str, Any], kind: type[T]) -> T:
    """Turns a row into its type; raises Bug when the database holds what the code does not know (GW-R-025)."""
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError as error:
        raise Bug(f"BUG: a stored {kind.__name__} cannot be read: {error}.") from None
