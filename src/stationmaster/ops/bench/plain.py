"""The rows of one accepted delivery in bare SQL: one transaction and one commit a request, nothing looked up.

A test holds these rows against what the ledger writes for the same delivery, table by table.
"""

from __future__ import annotations

from typing import Any

from stationmaster import canonical, clock, ids
from stationmaster.gitea.normalise import Normalised
from stationmaster.ops.bench.stores import Plain

_DAYS_30 = 30 * 86_400 * clock.MICROS


class PlainAccept:
    """Writes deliveries; numbers of the history come from a counter of its own."""

    def __init__(self, store: Plain) -> None:
        self._store = store
        self._seq = store.newest()
        self._clock = clock.SystemClock()
        self._texts: dict[tuple[str, ...], str] = {}
        self._repositories: dict[int, str] = {}

    def __call__(self, said: Normalised, payload_hash: str) -> dict[str, Any]:
        """Stores a delivery with its task and history; returns the answer for the forge."""
        self._store.begin()
        body = self._accept(said, payload_hash, self._clock.now())
        self._store.commit()
        return body

    def _accept(self, said: Normalised, payload_hash: str, now: int) -> dict[str, Any]:
        key, task = said.delivery_key, said.task_id
        command = self._command(said, now)
        row = {"event_id": key, "payload_hash": payload_hash, "disposition": "taken", "received_at": now}
        self._add("inbox", source="gitea", command=command, **row)
        repository = self._repository(said, command, now)
        session = self._session(said, repository, command, now)
        self._task(said, command, repository, session, now)
        self._add("gitea_instruction", task_id=task, body=said.instruction, asked_at=said.comment.updated_at)
        trigger = {"origin": "comment", "native_id": said.comment.id, "version": 0, "task_id": task}
        self._add("gitea_trigger", instance_id=said.instance_id, **trigger)
        self._ready(repository, now)
        about = {"task": task, "comment": str(said.comment.id)}
        self._event(command, now, "webhook.accept", about, {"author": said.comment.author_login})
        body = {"deliveryId": said.delivery_id, "taskId": task, "state": "queued"}
        self._add(
            "gitea_delivery",
            delivery_key=key,
            delivery_id=said.delivery_id,
            event_type=said.event_type,
            received_at=now,
            normalized=1,
            status="accepted",
            http_status=202,
            response_body=canonical.dump(body),
            payload_hash=payload_hash,
            task_id=task,
            expires_at=now + _DAYS_30,
        )
        return body

    def _command(self, said: Normalised, now: int) -> int:
        seq = self._next()
        self._add(
            "command",
            seq=seq,
            name="webhook.take",
            actor=f"gitea:user:{said.actor.login}",
            cause=f"delivery:{said.delivery_id}",
            args_hash=canonical.sha256(said.delivery_id),
            at=now,
            sealed=1,
        )
        refs = {"delivery": said.delivery_id, "repo": said.repo_key}
        self._refs(seq, refs | {"resource": said.resource_key, "session": said.resource_key})
        return seq

    def _repository(self, said: Normalised, command: int, now: int) -> str:
        known = self._repositories.get(said.repo.id)
        if known is not None:
            return known
        made = self._repositories[said.repo.id] = ids.new("repo")
        self._guarded(
            "gitea_repository",
            {"id": made, "state": "active", "rev": 0, "verb": "register", "command": command},
            instance_id=said.instance_id,
            native_id=said.repo.id,
            owner=said.repo.owner,
            name=said.repo.name,
            repo_key=said.repo_key,
            clone_url=said.repo.clone_url,
            default_branch=said.repo.default_branch,
            registered_at=now,
            updated_at=now,
        )
        self._event(command, now, "repo.register", {}, {"native_id": said.repo.id})
        return made

    def _session(self, said: Normalised, repository: str, command: int, now: int) -> str:
        made = ids.new("session")
        self._guarded(
            "gitea_session",
            {"id": made, "state": "active", "rev": 0, "verb": "open", "command": command},
            repository_id=repository,
            kind=said.resource.kind,
            number=said.resource.number,
            created_at=now,
            updated_at=now,
        )
        return made

    def _task(self, said: Normalised, command: int, repository: str, session: str, now: int) -> None:
        head = {"id": said.task_id, "state": "queued", "rev": 1, "verb": "enqueue", "command": command}
        self._journal("gitea_task", head | {"state": "received", "rev": 0, "verb": "receive"}, "")
        self._guarded(
            "gitea_task",
            head,
            "received",
            delivery_key=said.delivery_key,
            delivery_id=said.delivery_id,
            repository_id=repository,
            session_id=session,
            resource_key=said.resource_key,
            comment_id=said.comment.id,
            author=said.comment.author_login,
            author_id=said.comment.author_id,
            sender_may="write",
            attempt=0,
            reply_attempt=0,
            unblock_attempt=0,
            created_at=now,
            updated_at=now,
        )

    def _ready(self, repository: str, now: int) -> None:
        text = "INSERT INTO gitea_ready (repository_id, ready_at) VALUES (?, ?) ON CONFLICT (repository_id) DO NOTHING"
        self._store.run(text, (repository, now))

    def _guarded(self, table: str, head: dict[str, Any], origin: str = "", /, **values: Any) -> None:
        self._add(table, **head, **values)
        self._journal(table, head, origin)

    def _journal(self, table: str, head: dict[str, Any], origin: str) -> None:
        self._add(
            "journal",
            seq=self._next(),
            machine=table,
            entity=head["id"],
            rev=head["rev"],
            from_state=origin,
            verb=head["verb"],
            to_state=head["state"],
            command=head["command"],
        )

    def _event(self, command: int, now: int, action: str, about: dict[str, str], data: dict[str, Any]) -> None:
        seq, text = self._next(), canonical.dump(data)
        self._add("event", seq=seq, action=action, kind="observation", data=text, at=now, command=command)
        self._refs(seq, about)

    def _refs(self, seq: int, about: dict[str, str]) -> None:
        for kind, value in about.items():
            self._add("ref", kind=kind, value=value, seq=seq)

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    def _add(self, table: str, **values: Any) -> None:
        text = self._texts.get((table, *values))
        if text is None:
            text = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"
            self._texts[(table, *values)] = text
        self._store.run(text, tuple(values.values()))
