"""Takes one delivery: verified bytes in, an HTTP answer out; one transaction, nothing outside it (GW-R-001, GW-R-053).

It starts no agent and runs no git. A bad signature leaves one audit row per source address and minute and nothing else
(GW-R-028).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from stationmaster import canonical
from stationmaster.clock import MICROS
from stationmaster.command import Cmd, LedgerPort
from stationmaster.errors import Stale, Unavailable
from stationmaster.gitea import closing, codes, intake, looks, normalise, signature, store
from stationmaster.gitea.closed_event import Closed
from stationmaster.gitea.model import Delivery, Task
from stationmaster.gitea.normalise import Ignored, Normalised, Outcome, Rejected, Rules, Unread
from stationmaster.gitea.settings import GiteaSettings
from stationmaster.gitea.store import Q
from stationmaster.inbox import actions as inbox
from stationmaster.ledger.tx import Reader, Tx

_log = structlog.get_logger("stationmaster.gitea")

_DAY = 86_400 * MICROS
_MINUTE = 60 * MICROS
_MOST_RIVALS = 10


@dataclass(frozen=True, slots=True)
class Reply:
    """What the forge is told; `task_id` is set when something may be claimable now."""

    status: int
    body: dict[str, Any]
    task_id: str | None = None
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a delivery beside its content."""

    key: str
    payload_hash: str
    settings: GiteaSettings


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a delivery came to, as it is stored and told."""

    status: str
    http_status: int
    body: dict[str, Any]
    reason: str | None
    task_id: str | None = None


class Webhook:
    """The door for deliveries of one forge."""

    def __init__(self, port: LedgerPort, settings: GiteaSettings) -> None:
        self._port = port
        self._settings = settings
        self._hosts = frozenset(host for host in (normalise.host_of(settings.base_url),) if host)
        self.bot_id: int | None = None
        # Refusals already told to the audit in this minute, per address.
        self._told: dict[tuple[str, str], int] = {}

    async def __call__(self, headers: Mapping[str, str], body: bytes, source: str) -> Reply:
        """Answers one delivery; `source` is the sender's address."""
        secrets = [secret.reveal().encode() for secret in self._settings.webhook_secrets]
        content = signature.verified(headers, body, secrets)
        if content is None:
            await self._tell(source, codes.INVALID_SIGNATURE)
            return Reply(401, {"error": codes.INVALID_SIGNATURE})
        if len(secrets) > 1 and signature.secret_of(headers, body, secrets) != 0:
            await self._tell(source, codes.OLD_SECRET)
        rules = Rules(
            self._hosts,
            self._settings.bot_login,
            self.bot_id,
            self._settings.instance_id,
            self._settings.triggers,
        )
        said = normalise.normalise(headers, content, rules)
        cause = f"delivery:{said.delivery_id or 'unnamed'}"
        cmd = Cmd("webhook.take", _actor(said), cause, refs=_refs(said))
        with structlog.contextvars.bound_contextvars(**cmd.refs):
            answer = await self._taken(cmd, said, canonical.sha256(body))
            _log.debug("webhook.answered", status=answer.status, task=answer.task_id)
            return answer

    async def _taken(self, cmd: Cmd, said: Outcome, payload_hash: str) -> Reply:
        for _ in range(_MOST_RIVALS):
            try:
                return await self._port.do(cmd, take, said, payload_hash, self._settings)
            except Stale:
                # Another delivery made the same repository, session, task or follow-up at this very moment, which only
                # PostgreSQL lets happen; seen from after it, that is the ordinary course.
                continue
        raise Unavailable(
            "The delivery lost against others every time.", code=codes.STORE_UNAVAILABLE, hint="Send it again."
        )

    async def too_large(self, source: str, limit: int) -> Reply:
        """Answers a body over the limit (GW-R-049); it was not read to its end, so there is nothing to verify."""
        await self._tell(source, codes.PAYLOAD_TOO_LARGE)
        return Reply(413, {"error": codes.PAYLOAD_TOO_LARGE, "message": f"The limit is {limit} bytes."})

    async def _tell(self, source: str, code: str) -> None:
        """Tells the audit of a delivery that was refused, or taken by the old secret; once a minute for an address."""
        minute = await self._port.read(_minute)
        if self._told.get((source, code)) == minute:
            return
        # The receipt makes it one row also for many at once; what is kept here only spares the command.
        cmd = Cmd("webhook.refuse", "system", f"address:{source}", f"{code}:{source}:{minute}")
        await self._port.do(cmd, _told, code, source)
        self._told = {known: at for known, at in self._told.items() if at == minute}
        self._told[source, code] = minute


def _minute(reader: Reader) -> int:
    return reader.now // _MINUTE


def _told(tx: Tx, code: str, source: str) -> None:
    if code == codes.OLD_SECRET:
        tx.event("webhook.old_secret", source=source)
        return
    action = "webhook.bad_signature" if code == codes.INVALID_SIGNATURE else "webhook.reject"
    tx.refusal(action, code, source=source)


def _actor(said: Outcome) -> str:
    login = said.actor.login if isinstance(said, Normalised) else ""
    login = said.actor if isinstance(said, Ignored | Unread) else login
    return f"gitea:user:{login}" if login else "system"


def _refs(said: Outcome) -> dict[str, str]:
    found = {"delivery": said.delivery_id} if said.delivery_id else {}
    if isinstance(said, Normalised):
        found |= {"repo": said.repo_key, "resource": said.resource_key, "session": said.resource_key}
    elif isinstance(said, Ignored | Unread) and said.repo_key:
        found["repo"] = said.repo_key
    return found


def take(tx: Tx, said: Outcome, payload_hash: str, settings: GiteaSettings) -> Reply:
    """Stores a delivery with everything it starts, or answers it as the first time (GW-R-052, GW-R-059)."""
    if not said.delivery_id:
        code = said.code if isinstance(said, Rejected) else codes.INVALID_PAYLOAD
        tx.refusal("webhook.reject", code)
        return Reply(400, {"error": code, "message": "The delivery has no id."})
    known = _Known(normalise.delivery_key(settings.instance_id, said.delivery_id), payload_hash, settings)
    seen = store.delivery(tx, known.key)
    if seen is not None:
        return _again(tx, seen, payload_hash)
    inbox.take(tx, source="gitea", event_id=known.key, payload_hash=payload_hash, disposition="taken")
    return _store(tx, said, known, _answer(tx, said, known))


def _answer(tx: Tx, said: Outcome, known: _Known) -> _Answer:
    if isinstance(said, Normalised):
        return _accept(tx, said, known)
    if isinstance(said, Closed):
        return _closed(tx, said, known)
    if isinstance(said, Unread):
        return _unread(tx, said)
    if isinstance(said, Ignored):
        tx.event("webhook.ignore", reason=said.reason, event_type=said.event_type)
        return _ignored(said.reason)
    tx.refusal("webhook.reject", said.code, event_type=said.event_type)
    return _Answer("rejected", 400, {"error": said.code, "message": said.message}, said.code)


def _again(tx: Tx, seen: Delivery, payload_hash: str) -> Reply:
    if seen.payload_hash != payload_hash:
        tx.refusal("webhook.duplicate", codes.DELIVERY_MISMATCH, first=seen.payload_hash, now=payload_hash)
    else:
        tx.event("webhook.duplicate", first_status=seen.status)
    body = canonical.load(seen.response_body)
    if seen.task_id is None or seen.status == "rejected":
        # GW-R-068: an ignored or refused delivery is answered as it was.
        return Reply(seen.http_status, body)
    task = store.task(tx, seen.task_id)
    return Reply(200, _duplicate(seen.delivery_id, task))


def _duplicate(delivery_id: str, task: Task) -> dict[str, Any]:
    return {"deliveryId": delivery_id, "taskId": task.id, "state": task.state, "status": "duplicate"}


def _ignored(reason: str) -> _Answer:
    return _Answer("ignored", 200, {"status": "ignored", "reason": reason}, reason)


def _accept(tx: Tx, said: Normalised, known: _Known) -> _Answer:
    try:
        taken = intake.admit(tx, said, known.settings)
    except intake.RepositoryDisabled:
        code = codes.REPOSITORY_DISABLED
        tx.refusal("webhook.reject", code)
        return (
            _ignored(code)
            if known.settings.disabled_repo_policy == "ignore"
            else _Answer("rejected", 409, {"error": code}, code)
        )
    if isinstance(taken, intake.Ordered):
        return _ordered(tx, said, taken)
    task = taken.task
    if taken.how == "known":
        # GW-R-022: another hook or a replay brought the same comment under another id.
        tx.event("webhook.duplicate", refs={"task": task.id}, reason="content")
        body = _duplicate(said.delivery_id, task)
        return _Answer("duplicate", 200, body, codes.DUPLICATE_DELIVERY, task.id)
    about = {"task": task.id, "comment": str(said.comment.id)}
    tx.event("webhook.accept", refs=about, author=said.comment.author_login)
    body = {"deliveryId": said.delivery_id, "taskId": task.id, "state": "queued"}
    return _Answer("accepted", 202, body, None, task.id)


def _ordered(tx: Tx, said: Normalised, taken: intake.Ordered) -> _Answer:
    body = {"deliveryId": said.delivery_id, "order": taken.word}
    if taken.how == "known":
        tx.event("webhook.duplicate", reason="content")
        return _Answer("duplicate", 200, {**body, "status": "duplicate"}, codes.DUPLICATE_DELIVERY)
    tx.event("webhook.accept", refs={"comment": str(said.comment.id)}, author=said.comment.author_login)
    return _Answer("accepted", 202, {**body, "state": "asked"}, None)


def _unread(tx: Tx, said: Unread) -> _Answer:
    looks.ask(
        tx,
        instance_id=said.instance_id,
        repo=said.repo,
        kind=said.kind,
        number=said.number,
        reason=f"{said.event_type}.{looks.EDITED}" if said.edited else said.event_type,
        delivery_id=said.delivery_id,
    )
    return _Answer("accepted", 202, {"deliveryId": said.delivery_id, "state": "to_be_read"}, None)


def _closed(tx: Tx, said: Closed, known: _Known) -> _Answer:
    stopped = closing.close(tx, said, known.settings)
    if not stopped:
        tx.event("webhook.ignore", reason=codes.NOT_A_COMMENT, event_type=said.event_type)
        return _ignored(codes.NOT_A_COMMENT)
    body = {"deliveryId": said.delivery_id, "state": "closed", "tasks": [task.id for task in stopped]}
    return _Answer("accepted", 202, body, None)


def _store(tx: Tx, said: Outcome, known: _Known, answer: _Answer) -> Reply:
    tx.run(
        Q.add_delivery,
        delivery_key=known.key,
        delivery_id=said.delivery_id,
        event_type=said.event_type,
        received_at=tx.now,
        normalized=int(isinstance(said, Normalised)),
        status=answer.status,
        reason_code=answer.reason,
        http_status=answer.http_status,
        response_body=canonical.dump(answer.body),
        payload_hash=known.payload_hash,
        task_id=answer.task_id,
        expires_at=tx.now + int(known.settings.delivery_days * _DAY),
    )
    return Reply(answer.http_status, answer.body, answer.task_id if answer.status == "accepted" else None)
