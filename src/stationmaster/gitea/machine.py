"""The machines of this slice: tables only (section 5 of the specification)."""

from __future__ import annotations

from dataclasses import replace

from stationmaster.machine import Machine

TASK = Machine(
    "gitea_task",
    (
        ("", "receive", "received"),
        ("received", "enqueue", "queued"),
        ("received", "ignore", "ignored"),
        ("received", "deduplicate", "duplicate"),
        ("received", "reject", "rejected"),
        ("queued", "claim", "preparing"),
        ("queued", "cancel", "cancelled"),
        ("preparing", "start", "running"),
        ("preparing", "block", "blocked_workspace"),
        ("preparing", "retry", "retry_wait"),
        ("preparing", "fail", "failed"),
        ("running", "wait", "waiting_user"),
        ("running", "verify", "verifying_reply"),
        ("running", "retry", "retry_wait"),
        ("running", "abort", "aborting"),
        ("running", "fail", "failed"),
        ("waiting_user", "follow_up", "queued"),
        ("waiting_user", "cancel", "cancelled"),
        ("waiting_user", "fail", "failed"),
        ("verifying_reply", "confirm", "succeeded"),
        ("verifying_reply", "retry", "retry_wait"),
        ("verifying_reply", "fail_reply", "failed_reply"),
        ("verifying_reply", "confirm_fallback", "succeeded_with_rest_fallback"),
        ("retry_wait", "claim", "preparing"),
        ("retry_wait", "resume_reply", "running"),
        ("retry_wait", "reverify", "verifying_reply"),
        ("retry_wait", "fail", "failed"),
        ("blocked_workspace", "unblock", "queued"),
        ("blocked_workspace", "cancel", "cancelled"),
        ("aborting", "stop", "aborted"),
        ("aborting", "fail", "failed"),
    ),
    terminal=frozenset(
        {
            "succeeded",
            "succeeded_with_rest_fallback",
            "failed",
            "failed_reply",
            "cancelled",
            "aborted",
            "ignored",
            "duplicate",
            "rejected",
        }
    ),
    moved=frozenset(
        {
            "attempt",
            "reply_attempt",
            "unblock_attempt",
            "next_retry_at",
            "retry_purpose",
            "error_code",
            "reply_failure",
            "updated_at",
        }
    ),
)

SESSION = Machine(
    "gitea_session",
    (
        ("", "open", "active"),
        # A thread is bound once; `replace_thread` needs an explicit loss or another tool set (GW-R-036).
        ("active", "bind_thread", "active"),
        ("active", "replace_thread", "active"),
        ("active", "wait", "waiting_user"),
        ("waiting_user", "resume", "active"),
        ("active", "close", "closed"),
        ("waiting_user", "close", "closed"),
        ("closed", "reopen", "active"),
    ),
    terminal=frozenset(),
    moved=frozenset({"thread_id", "tool_set", "updated_at"}),
)

_HERE = ("active", "disabled", "blocked")
REPOSITORY = Machine(
    "gitea_repository",
    (
        ("", "register", "active"),
        ("active", "disable", "disabled"),
        ("blocked", "disable", "disabled"),
        ("disabled", "enable", "active"),
        ("active", "block", "blocked"),
        ("blocked", "unblock", "active"),
        *((state, "rename", state) for state in _HERE),
        *((state, "settle", state) for state in _HERE),
    ),
    terminal=frozenset(),
    moved=frozenset({"owner", "name", "repo_key", "clone_url", "default_branch", "home_worker", "updated_at"}),
)

BRANCH = Machine(
    "gitea_branch",
    (
        ("", "cut", "current"),
        ("current", "publish", "current"),
        ("current", "retire", "retired"),
    ),
    terminal=frozenset({"retired"}),
    moved=frozenset({"published_sha", "pull_number", "updated_at"}),
)

COMMENT = Machine(
    "gitea_comment",
    (
        ("", "intend", "pending"),
        ("pending", "deliver", "sent"),
        ("pending", "confirm", "confirmed"),
        ("sent", "confirm", "confirmed"),
        ("pending", "fail", "failed"),
        ("sent", "fail", "failed"),
    ),
    terminal=frozenset({"confirmed", "failed"}),
    moved=frozenset({"native_id", "error_code", "updated_at"}),
)

CONTROL = Machine(
    "gitea_control",
    (
        ("", "install", "running"),
        ("running", "pause", "paused"),
        ("paused", "resume", "running"),
    ),
    terminal=frozenset(),
    moved=frozenset({"reason", "updated_by", "updated_at"}),
)

ORDER = Machine(
    "gitea_order",
    (
        ("", "ask", "asked"),
        ("asked", "refuse", "refused"),
        ("asked", "carry_out", "done"),
        # A stop whose tasks are not at their end yet.
        ("asked", "stand", "standing"),
        ("standing", "settle", "done"),
    ),
    terminal=frozenset({"done", "refused"}),
    moved=frozenset({"error_code", "updated_at"}),
)

# One life of everything that we post (GW-R-138).
NOTE = replace(COMMENT, table="gitea_note")

STEER = Machine(
    "gitea_steer",
    (
        ("", "hand_in", "waiting"),
        ("waiting", "send", "sent"),
        # Codex said no, so nothing was sent.
        ("sent", "return", "waiting"),
        ("sent", "take", "taken"),
        ("waiting", "queue", "queued"),
        ("sent", "queue", "queued"),
    ),
    terminal=frozenset({"taken", "queued"}),
    moved=frozenset({"task_after", "updated_at"}),
)

MACHINES = (TASK, SESSION, REPOSITORY, BRANCH, COMMENT, CONTROL, ORDER, NOTE, STEER)
