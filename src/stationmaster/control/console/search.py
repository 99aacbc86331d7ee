"""What a search form asks for, from the address of its page: strict, so that a wrong word is told and not ignored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from stationmaster.clock import MICROS
from stationmaster.control import views
from stationmaster.control.commands import Input
from stationmaster.control.console import reads
from stationmaster.errors import Invalid
from stationmaster.gitea.machine import TASK

PAGE = 50
_LONGEST_NUMBER = 15
# In the order in which a task goes through them.
STATES = tuple(state for state in (
    "queued", "preparing", "running", "verifying_reply", "waiting_user", "retry_wait", "blocked_workspace", "aborting",
    "succeeded", "succeeded_with_rest_fallback", "failed", "failed_reply", "cancelled", "aborted",
) if state in TASK.states)  # fmt: skip

I = TypeVar("I", bound=Input)  # noqa: E741 - the input


def address(query: Mapping[str, str], **more: str) -> str:
    """Returns the query of an address with some of it changed."""
    kept = {name: value for name, value in query.items() if name not in {"did", "asked"}} | more
    return urlencode({name: value for name, value in kept.items() if value})


def inputs(kind: type[I], given: Mapping[str, str]) -> I:
    """Makes the input of a command; raises Invalid."""
    try:
        return msgspec.convert(dict(given), kind, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"The search is wrong: {error}.", code="invalid_request") from None


def tasks(query: Mapping[str, str]) -> reads.Sought:
    """Returns which tasks are looked for; raises Invalid."""
    state = query.get("state", "")
    if state and state not in TASK.states:
        raise Invalid("state is not one of a task's states.", code="invalid_request")
    repo, kind, number = query.get("repo", "").strip(), "", 0
    if thread := query.get("thread", "").strip():
        repo, kind, number = _thread(thread, repo)
    before = views.position(query.get("before") or None)
    return reads.Sought(
        words=query.get("q", "").strip()[:200],
        state=state,
        repo_key=repo,
        kind=kind,
        number=number,
        author=query.get("author", "").strip(),
        since=_day(query.get("since", ""), 0),
        until=_day(query.get("until", ""), reads.DAY) or reads.Sought().until,
        before=before if query.get("before") else reads.Sought().before,
        limit=PAGE,
    )


def _thread(thread: str, repo: str) -> tuple[str, str, int]:
    key, _, rest = thread.partition(":issue:")
    kind = "issue"
    if not rest:
        key, _, rest = thread.partition(":pull_request:")
        kind = "pull_request"
    if not rest.isascii() or not rest.isdecimal() or len(rest) > _LONGEST_NUMBER:
        raise Invalid("Write a thread as default:owner/name:issue:7.", code="invalid_request")
    return key or repo, kind, int(rest)


def _day(text: str, later: int) -> int:
    if not text:
        return 0
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise Invalid("Write a day as 2026-01-31.", code="invalid_request") from None
    return int(day.timestamp()) * MICROS + later
