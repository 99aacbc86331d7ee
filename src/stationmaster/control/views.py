"""Reads the Gitea slice for the doors: one serializer from rows to the wire (camelCase, ISO times, `stateVersion`).

It may read every table and writes none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stationmaster.clock import iso
from stationmaster.errors import Invalid, NotFound
from stationmaster.gitea import codes, limits
from stationmaster.gitea.machine import TASK
from stationmaster.ledger import history, queries
from stationmaster.ledger.tx import Reader
from stationmaster.workspaces.paths import Layout

Q = queries.load("stationmaster.control", "views.sql")

_END = 2**63 - 1
_CURSOR = re.compile(r"(\d{1,18})\.([A-Za-z0-9_-]{1,100})", re.ASCII)
_RESOURCE = re.compile(r"(.+):(issue|pull_request):([1-9]\d{0,17})", re.ASCII)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which tasks a list shows."""

    repo_key: str | None
    resource_key: str | None
    state: str | None
    cursor: str | None
    limit: int


def overview(reader: Reader) -> Row:
    """Returns whether work is taken up, who works on what, and how many tasks are where (GW-R-214)."""
    row = reader.one(Q.pause) or {"state": "running", "rev": 0, "reason": None, "updated_by": None, "updated_at": None}
    paused = row["state"] == "paused"
    return {
        "globalPaused": paused,
        "pauseReason": row["reason"] if paused else None,
        "updatedBy": row["updated_by"],
        "updatedAt": _time(row["updated_at"]),
        "version": row["rev"],
        "activeLeases": [
            {
                "repoKey": lease["repo_key"],
                "leaseId": lease["lease_id"],
                "owner": lease["owner"],
                "taskId": lease["subject"],
                "fence": lease["term"],
                "expiresAt": iso(lease["expires_at"]),
            }
            for lease in reader.many(Q.leases, now=reader.now)
        ],
        "tasks": {row["state"]: row["tasks"] for row in reader.many(Q.states)},
        "catchup": [_reading(row) for row in reader.many(Q.reading)],
    }


def _reading(row: Row) -> Row:
    return {
        "instanceId": row["instance_id"],
        "lastReadAt": _time(row["round_at"]),
        "repositories": row["watched"],
        "unread": row["unread"],
        "openLooks": row["looks"],
        "errorCode": row["error_code"],
        "lastGap": None
        if row["gap_repo"] is None
        else {
            "repoKey": row["gap_repo"],
            "since": iso(row["gap_since"]),
            "until": iso(row["gap_until"]),
            "taken": row["gap_taken"],
        },
    }


def repositories(reader: Reader, cursor: str | None, limit: int, root: Path | None) -> tuple[list[Row], str | None]:
    """Returns repositories by key, and the cursor of the next page; `root` is the folder of this host's workspaces."""
    last, _, key = (cursor or "").partition("@")
    rows = reader.many(Q.repositories, repo_key=key, id=last, limit=limit)
    found = [
        {
            "repoKey": row["repo_key"],
            "repositoryId": row["id"],
            "instanceId": row["instance_id"],
            "owner": row["owner"],
            "name": row["name"],
            "cloneUrl": row["clone_url"],
            "workspacePath": None if root is None else str(Layout(root).repository(row["id"])),
            "defaultBranch": row["default_branch"],
            "status": row["state"],
            "homeWorker": row["home_worker"],
            "registeredAt": iso(row["registered_at"]),
            "updatedAt": iso(row["updated_at"]),
            "lastFetchAt": _time(row["last_fetch_at"]),
            "version": row["rev"],
        }
        for row in rows
    ]
    return found, f"{rows[-1]['id']}@{rows[-1]['repo_key']}" if len(rows) == limit else None


def tasks(reader: Reader, wanted: Wanted) -> tuple[list[Row], str | None]:
    """Returns tasks, newest first, and the cursor of the next page (GW-R-215)."""
    if wanted.state is not None and wanted.state not in TASK.states:
        raise Invalid(
            "state is not one of a task's states.",
            code="invalid_request",
            hint=f"They are: {', '.join(sorted(TASK.states))}.",
        )
    at, last = position(wanted.cursor)
    rows = _task_rows(reader, wanted, {"at": at, "id": last, "limit": wanted.limit})
    following = f"{rows[-1]['created_at']}.{rows[-1]['id']}" if len(rows) == wanted.limit else None
    return [_task(reader, row) for row in rows], following


def task(reader: Reader, task_id: str) -> Row:
    """Returns a task with its turns, comments, branches and error (GW-R-216)."""
    row = _found(reader, task_id)
    follow_ups = [
        {
            "deliveryKey": each["delivery_key"],
            "commentId": each["comment_id"],
            "author": each["author"],
            "instruction": each["body"],
            "at": iso(each["at"]),
        }
        for each in reader.many(Q.follow_ups, task_id=task_id)
    ]
    said = reader.one(Q.last_words, task_id=task_id)
    latest = reader.one(Q.latest_task, session_id=row["session_id"]) or {"id": task_id}
    last_turn = reader.one(Q.latest_turn, task_id=latest["id"])
    return {
        # What an operator needs when no answer could be proven in the thread.
        "finalText": None if said is None else said["body"],
        "task": _task(reader, row) | {"instruction": row["instruction"], "followUps": follow_ups},
        "error": _error(reader, row),
        "session": {
            "sessionKey": row["resource_key"],
            "kind": row["kind"],
            "number": row["number"],
            "threadId": row["thread_id"],
            "status": row["session_state"],
            "resourceKey": row["resource_key"],
            "lastTaskId": latest["id"],
            "lastTurnId": last_turn and last_turn["external_id"],
            "createdAt": iso(row["session_created_at"]),
            "updatedAt": iso(row["session_updated_at"]),
            "version": row["session_rev"],
        },
        "turns": [_turn(task_id, each) for each in reader.many(Q.turns, task_id=task_id)],
        "comments": [_comment(task_id, each) for each in reader.many(Q.comments, task_id=task_id)],
        "branches": [
            {
                "name": each["name"],
                "status": each["state"],
                "baseSha": each["base_sha"],
                "publishedSha": each["published_sha"],
                "pullRequest": each["pull_number"],
            }
            for each in reader.many(Q.branches, session_id=row["session_id"])
        ],
    }


def _error(reader: Reader, row: Row) -> Row | None:
    code = row["error_code"]
    if code is None:
        return None
    said: Row = {"code": code, "message": codes.text(code)}
    if row["state"] == "blocked_workspace":
        # What is in the way, and what to do about it, was told when the task was blocked.
        told = [each for each in history.by_ref(reader, "task", row["id"]) if each.name == "workspace.blocked"]
        said["detail"] = (told[-1].data or {}).get("sentence") if told else None
    return said


def task_state(reader: Reader, task_id: str) -> str:
    """Returns where a task stands."""
    return str(_found(reader, task_id)["state"])


def _found(reader: Reader, task_id: str) -> Row:
    row = reader.one(Q.task, id=task_id)
    if row is None:
        raise NotFound(
            f"There is no task {task_id}.",
            code="task_not_found",
            hint="`stationmaster task list` shows the tasks there are.",
        )
    return row


def _task_rows(reader: Reader, wanted: Wanted, page: Row) -> list[Row]:
    state = wanted.state or ""
    if wanted.resource_key is not None:
        parts = _RESOURCE.fullmatch(wanted.resource_key)
        if parts is None:
            raise Invalid(
                "resourceKey is not one.",
                code="invalid_request",
                hint="It is <instance>:<owner>/<repo>:issue:<number>.",
            )
        repo_key, kind, number = parts.groups()
        if wanted.repo_key is not None and wanted.repo_key.lower() != repo_key.lower():
            return []
        repository_id = _named(reader, repo_key)
        return reader.many(
            Q.tasks_of_resource, repository_id=repository_id, kind=kind, number=int(number), state=state, **page
        )
    if wanted.repo_key is not None:
        return reader.many(Q.tasks_of_repository, repository_id=_named(reader, wanted.repo_key), state=state, **page)
    if wanted.state is not None:
        return reader.many(Q.tasks_in_state, state=wanted.state, **page)
    return reader.many(Q.tasks, **page)


def _named(reader: Reader, repo_key: str) -> str:
    row = reader.one(Q.repository_named, repo_key=repo_key.lower())
    return "" if row is None else str(row["id"])


def _task(reader: Reader, row: Row) -> Row:
    turn = reader.one(Q.latest_turn, task_id=row["id"]) or {"id": None, "external_id": None}
    lease = reader.one(Q.lease_of_task, repository_id=row["repository_id"], task_id=row["id"], now=reader.now)
    return {
        "taskId": row["id"],
        "deliveryKey": row["delivery_key"],
        "deliveryId": row["delivery_id"],
        "repoKey": row["repo_key"],
        "resourceKey": row["resource_key"],
        "sessionKey": row["resource_key"],
        "commentId": row["comment_id"],
        "author": row["author"],
        "state": row["state"],
        "stateVersion": row["rev"],
        "attempt": row["attempt"],
        "replyAttempt": row["reply_attempt"],
        "unblockAttempt": row["unblock_attempt"],
        "retryPurpose": row["retry_purpose"],
        "nextRetryAt": _time(row["next_retry_at"]),
        "errorCode": row["error_code"],
        "replyFailure": row["reply_failure"],
        "threadId": row["thread_id"],
        "turnRef": turn["id"],
        "turnId": turn["external_id"],
        "leaseId": None if lease is None else lease["lease_id"],
        "hold": _hold(reader, row),
        "refs": None if row["base_ref"] is None else {"base": row["base_ref"], "head": row["head_ref"]},
        "createdAt": iso(row["created_at"]),
        "updatedAt": iso(row["updated_at"]),
    }


def _hold(reader: Reader, row: Row) -> Row | None:
    """Says which limit keeps a queued task back."""
    hold = limits.holding(reader, row["id"]) if row["state"] == "queued" else None
    if hold is None:
        return None
    return {"reason": hold.reason, "message": codes.text(hold.reason), "until": _time(hold.until_at)}


def _turn(task_id: str, row: Row) -> Row:
    return {
        "turnRef": row["id"],
        "turnId": row["external_id"],
        "taskId": task_id,
        "threadId": row["thread_id"],
        "kind": row["kind"],
        "status": row["state"],
        "eventSeq": row["event_seq"],
        "mcpCallObserved": bool(row["answered"] or row["bridged"]),
        "errorCode": row["error_code"],
        "startedAt": iso(row["started_at"]),
        "completedAt": _time(row["ended_at"]),
    }


def _comment(task_id: str, row: Row) -> Row:
    return {
        "commentKey": row["id"],
        "taskId": task_id,
        "kind": row["kind"],
        "resourceKey": row["resource_key"],
        "turnRef": row["run_id"],
        "commentId": row["native_id"],
        "bodyHash": row["body_hash"],
        "status": row["state"],
        "errorCode": row["error_code"],
        "createdAt": iso(row["created_at"]),
        "updatedAt": iso(row["updated_at"]),
    }


def position(cursor: str | None) -> tuple[int, str]:
    """Reads the cursor of a list of tasks; raises Invalid."""
    if cursor is None:
        return _END, ""
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise Invalid("cursor is not one of ours.", code="invalid_request", hint="Use `nextCursor` as it was given.")
    return int(found[1]), found[2]


def _time(micros: int | None) -> str | None:
    return None if micros is None else iso(micros)
