"""The audit: the one history, read as events with their correlation ids (sections 16 and 17 of the specification).

Nothing else is read: what is told here is what the database itself wrote down, and can be told from that alone
(GW-R-229).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from stationmaster.clock import from_iso, iso
from stationmaster.command import LedgerPort
from stationmaster.control.commands import Answer, Input, Site, Text, command
from stationmaster.control.grants import Read
from stationmaster.errors import Invalid
from stationmaster.gitea.machine import TASK
from stationmaster.ledger import history
from stationmaster.ledger.history import Entry
from stationmaster.ledger.tx import Reader

# The wire name of each correlation id, and the kinds of reference that carry it.
REFS: Mapping[str, tuple[str, ...]] = {
    "deliveryId": ("delivery",),
    "taskId": ("task",),
    "repoKey": ("repo", "gitea.repo"),
    "resourceKey": ("resource",),
    "sessionKey": ("session",),
    "threadId": ("thread",),
    "turnId": ("turn",),
    "commentId": ("comment",),
    "leaseId": ("lease",),
    "requestId": ("request",),
}
# A lease names what it is held for as its subject: of a repository's, that is the task.
_LOOKED_UP = {"taskId": ("task", "subject")}
_HELD = "gitea.repo"
_CHUNK = 500
# A filter that matches little must not hold a reader for long; the cursor goes on from where it stopped.
_MOST_CHUNKS = 20
_SLICE = "gitea_"
_TASK = TASK.table
_RUN = "run_"
_CODES = ("code", "error_code")

Filter = Text | None


class Query(Input, frozen=True, kw_only=True):
    """Which events, from where on, and in which form."""

    task_id: Annotated[Filter, msgspec.Meta(description="Only events of this task")] = None
    delivery_id: Annotated[Filter, msgspec.Meta(description="… of this webhook delivery")] = None
    repo_key: Annotated[Filter, msgspec.Meta(description="… of this repository")] = None
    resource_key: Annotated[Filter, msgspec.Meta(description="… of this issue or pull request")] = None
    session_key: Annotated[Filter, msgspec.Meta(description="… of this conversation")] = None
    thread_id: Annotated[Filter, msgspec.Meta(description="… of this thread of the agent")] = None
    turn_id: Annotated[Filter, msgspec.Meta(description="… of this turn of the agent")] = None
    comment_id: Annotated[Filter, msgspec.Meta(description="… of this comment")] = None
    lease_id: Annotated[Filter, msgspec.Meta(description="… of this lease")] = None
    request_id: Annotated[Filter, msgspec.Meta(description="… of this control request")] = None
    actor: Annotated[Filter, msgspec.Meta(description="… by this actor, such as `system` or `admin:ann`")] = None
    action: Annotated[Filter, msgspec.Meta(description="… whose action begins with this")] = None
    since: Annotated[Filter, msgspec.Meta(description="… from this time on (ISO 8601 with zone)")] = None
    until: Annotated[Filter, msgspec.Meta(description="… before this time")] = None
    cursor: Annotated[Filter, msgspec.Meta(description="`nextCursor` of the page before")] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000, description="Events a page")] = 200
    format: Annotated[
        Literal["json", "ndjson"], msgspec.Meta(description="`ndjson`: everything from the cursor on, one event a line")
    ] = "json"


@command("audit", "GET", "/api/gitea-workflow/audit")
async def audit(site: Site, grant: Read, given: Query) -> Answer:
    """Reads the audit in the order in which things happened."""
    _ = grant
    found = _Filter(given)
    after = _after(given.cursor)
    if given.format == "ndjson":
        return Answer(_everything(site.port, found, after), lines=True)
    events, following = await site.port.read(page, found, after, given.limit)
    return Answer({"events": events, "nextCursor": following})


async def _everything(port: LedgerPort, found: _Filter, after: int) -> AsyncIterator[dict[str, Any]]:
    following: str | None = str(after)
    while following is not None:
        events, following = await port.read(page, found, int(following), _CHUNK)
        for event in events:
            yield event


class _Filter:
    """The filters of a query, in the form in which entries are compared."""

    def __init__(self, given: Query) -> None:
        self.refs = {
            name: value
            for name, field in (
                (field.encode_name, field.name) for field in msgspec.structs.fields(Query) if field.encode_name in REFS
            )
            if (value := getattr(given, field)) is not None
        }
        self.actor = given.actor
        self.action = given.action
        self.since = _time("since", given.since)
        self.until = _time("until", given.until)

    def wants(self, entry: Entry, refs: Mapping[str, list[str]]) -> bool:
        """Tells whether an entry is asked for."""
        return (
            entry.kind != "command"
            and (self.actor is None or entry.actor == self.actor)
            and (self.action is None or action_of(entry).startswith(self.action))
            and (self.since is None or entry.at >= self.since)
            and (self.until is None or entry.at < self.until)
            and all(value in _values(refs, name) for name, value in self.refs.items())
        )


def of_task(task_id: str) -> _Filter:
    """Returns the filter of everything about one task."""
    return _Filter(Query(task_id=task_id))


def page(reader: Reader, found: _Filter, after: int, limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """Returns up to `limit` events after a seq, and the cursor of the next page, or None at the end."""
    events: list[dict[str, Any]] = []
    of_command: dict[int, dict[str, list[str]]] = {}
    for _ in range(_MOST_CHUNKS):
        chunk = _chunk(reader, found, after)
        for entry in chunk:
            after = entry.seq
            refs = _refs(reader, entry, of_command)
            if found.wants(entry, refs):
                events.append(_event(entry, refs))
                if len(events) == limit:
                    return events, str(after)
        if len(chunk) < _CHUNK:
            return events, None
    return events, str(after)


def _chunk(reader: Reader, found: _Filter, after: int) -> list[Entry]:
    if not found.refs:
        return history.page(reader, after=after, limit=_CHUNK)
    name, value = next(iter(found.refs.items()))
    return carrying(reader, name, value, after=after, limit=_CHUNK)


def carrying(reader: Reader, name: str, value: str, *, after: int, limit: int) -> list[Entry]:
    """Returns the entries that carry a correlation id, in order, after a seq; a task's own moves always carry its."""
    # The same row may carry the id under two kinds.
    rows = {
        entry.seq: entry
        for kind in _LOOKED_UP.get(name, REFS[name])
        for entry in history.by_ref(reader, kind, value, after=after, limit=limit)
    }
    if name == "taskId":
        # Whoever claims does not know beforehand which task that will be, so the command cannot name it.
        rows |= {entry.seq: entry for entry in history.by_entity(reader, _TASK, value) if entry.seq > after}
    return [rows[seq] for seq in sorted(rows)][:limit]


def _refs(reader: Reader, entry: Entry, of_command: dict[int, dict[str, list[str]]]) -> dict[str, list[str]]:
    if entry.command not in of_command:
        of_command[entry.command] = history.refs(reader, entry.command)
    refs = dict(of_command[entry.command])
    if entry.machine == _TASK and entry.entity is not None:
        refs["task"] = [entry.entity]
    if entry.kind not in {"command", "move"}:
        for kind, values in history.refs(reader, entry.seq).items():
            refs[kind] = [*values, *(value for value in refs.get(kind, ()) if value not in values)]
    if _HELD in refs and "subject" in refs:
        refs.setdefault("task", refs["subject"])
    return refs


def _values(refs: Mapping[str, list[str]], name: str) -> list[str]:
    return [value for kind in REFS[name] for value in refs.get(kind, ())]


def action_of(entry: Entry) -> str:
    """Returns the action's name: an event's own, or `<thing>.<verb>` of a move."""
    if entry.kind != "move":
        return entry.name
    return f"{(entry.machine or '').removeprefix(_SLICE)}.{entry.name}"


def _event(entry: Entry, refs: Mapping[str, list[str]]) -> dict[str, Any]:
    data = dict(entry.data or {})
    if entry.kind == "move":
        data |= {"machine": entry.machine, "entity": entry.entity, "stateVersion": entry.rev}
    code = next((data[name] for name in _CODES if isinstance(data.get(name), str)), None)
    event: dict[str, Any] = {
        "seq": entry.seq,
        "eventId": f"event-{entry.seq}",
        "timestamp": iso(entry.at),
        "kind": entry.kind,
        "action": action_of(entry),
        "actor": entry.actor,
        "cause": entry.cause,
        "fromState": entry.from_state or None,
        "toState": entry.to_state,
        "intentId": None if entry.intent is None else f"event-{entry.intent}",
        "outcome": entry.outcome,
        "errorCode": entry.outcome if entry.kind == "refusal" else code,
        "metadata": data | {"command": entry.command_name},
    }
    ids = {name: next(iter(_values(refs, name)), None) for name in REFS}
    return event | ids | _turn(refs)


def _turn(refs: Mapping[str, list[str]]) -> dict[str, str | None]:
    """Tells our own id of a turn from the agent's, where an event carries both (GW-R-148)."""
    values = _values(refs, "turnId")
    ours = next((value for value in values if value.startswith(_RUN)), None)
    return {"turnRef": ours, "turnId": next((value for value in values if value != ours), ours)}


def _after(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdecimal() or len(cursor) > len(str(2**63)) - 1:
        raise Invalid("cursor is not one of ours.", code="invalid_request", hint="Use `nextCursor` as it was given.")
    return int(cursor)


def _time(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return from_iso(text)
    except ValueError:
        raise Invalid(
            f"{name} is not a time.", code="invalid_request", hint="Write it as 2026-01-31T12:00:00Z."
        ) from None
