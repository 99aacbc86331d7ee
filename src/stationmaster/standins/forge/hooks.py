"""Sends webhooks as Gitea does: once, within five seconds, in no promised order; keeps the history.

It must never retry: a delivery is marked as attempted before the request leaves.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import sqlite3
import threading
import time
import uuid
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

from stationmaster.standins.forge.faults import Action, Faults
from stationmaster.standins.forge.store import Row, Store, now

TIMEOUT_S = 5.0
RESPONSE_LIMIT = 1 << 20
MAX_REDIRECTS = 10
HOLD_S = 20.0
EVENT_OF = {
    "issues": "issues",
    "issue_comment": "issue_comment",
    "pull_request_comment": "issue_comment",
    "pull_request": "pull_request",
    "pull_request_sync": "pull_request",
    "pull_request_review_approved": "pull_request_approved",
    "pull_request_review_rejected": "pull_request_rejected",
    "pull_request_review_comment": "pull_request_comment",
}
"""X-Gitea-Event for an event type; all others are their own event."""


def signatures(secret: str, payload: bytes) -> tuple[str, str]:
    """Returns the SHA-1 and SHA-256 MACs of the JSON text; both empty when the hook has no secret."""
    if not secret:
        return "", ""
    key = secret.encode()
    return hmac.new(key, payload, hashlib.sha1).hexdigest(), hmac.new(key, payload, hashlib.sha256).hexdigest()


def headers_of(hook: Row, delivery: Row, target_type: str, *, forgejo: bool = False) -> dict[str, str]:
    """Returns the headers of a delivery in Gitea's spelling and order, or as Forgejo 11 sends them.

    Forgejo adds names of its own and says nothing of the kind of target.
    """
    sha1, sha256 = signatures(hook["secret"], str(delivery["payload"]).encode())
    form = hook["content_type"] == "form"
    ids = (("Delivery", delivery["uuid"]), ("Event", delivery["event"]), ("Event-Type", delivery["event_type"]))
    target = () if forgejo else (("Hook-Installation-Target-Type", target_type),)
    found = {
        "User-Agent": "Go-http-client/1.1",
        "Content-Type": "application/x-www-form-urlencoded" if form else "application/json",
        "Accept-Encoding": "gzip",
    }
    for family, parts in (
        *((("Forgejo", (*ids, ("Signature", sha256))),) if forgejo else ()),
        ("Gitea", (*ids, ("Signature", sha256), *target)),
        ("Gogs", (*ids, ("Signature", sha256))),
    ):
        found.update({f"X-{family}-{name}": value for name, value in parts})
    found.update({"X-Hub-Signature": f"sha1={sha1}", "X-Hub-Signature-256": f"sha256={sha256}"})
    found.update({f"X-GitHub-{name}": value for name, value in (*ids, *target)})
    return found


class Hooks:
    """The delivery queue: durable rows, one thread that starts them, one thread for each delivery on its way."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self.store = store
        self.faults = faults
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._slots = threading.Semaphore(4)
        self._threads: set[threading.Thread] = set()
        self._starter = threading.Thread(target=self._run, name="forge-hooks", daemon=True)

    def start(self) -> None:
        """Starts sending; deliveries whose attempt was cut off by a kill are never sent again."""
        self.store.run("UPDATE delivery SET state='interrupted' WHERE state='sending'")
        self._starter.start()

    def stop(self) -> None:
        """Stops sending; what waits stays in the queue for the next start."""
        self._stopping.set()
        self.wake()
        if self._starter.is_alive():
            self._starter.join(TIMEOUT_S)
        for thread in list(self._threads):
            thread.join(TIMEOUT_S + 1)

    def enqueue(self, hook: Row, event_type: str, payload: str, *, delivery_id: str = "") -> int:
        """Adds a delivery to the queue; the caller's transaction makes it durable, `wake` sends it."""
        return self.store.insert(
            "delivery",
            hook_id=hook["id"],
            uuid=delivery_id or str(uuid.uuid4()),
            event=EVENT_OF.get(event_type, event_type),
            event_type=event_type,
            payload=payload,
            state="waiting",
            created=now(),
            succeeded=0,
        )

    def replay(self, delivery_id: int) -> int:
        """Queues the same bytes again under a new UUID, as the button in Gitea's history does."""
        old = self.store.get("delivery", delivery_id)
        new = self.enqueue(self.store.get("hook", old["hook_id"]), old["event_type"], old["payload"])
        self.wake()
        return new

    def wake(self) -> None:
        """Tells the starter that the queue changed."""
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        while not self._stopping.is_set():
            delivery = self._next()
            if delivery is None:
                with self._changed:
                    self._changed.wait(0.5 if not self._waiting() else 0)
                continue
            thread = threading.Thread(target=self._deliver, args=(delivery,), name="forge-delivery", daemon=True)
            self._threads.add(thread)
            thread.start()

    @property
    def _forgejo(self) -> bool:
        return self.store.setting("dialect") == "forgejo"

    def _waiting(self) -> bool:
        return self.store.one("SELECT 1 FROM delivery WHERE state='waiting' LIMIT 1") is not None

    def _next(self) -> Row | None:
        order = "id"
        if self.store.setting("shuffle") and self._waiting():
            self._stopping.wait(0.05)
            order = "random()"
        with self.store.tx():
            row = self.store.one(f"SELECT * FROM delivery WHERE state='waiting' ORDER BY {order} LIMIT 1")
            if row:
                self.store.update("delivery", row["id"], state="sending")
        return row

    def _deliver(self, delivery: Row) -> None:
        try:
            action = self.faults.on_delivery(delivery) or {"kind": ""}
            if action["kind"] == "lose":
                self._finish(delivery, "lost")
                return
            if not self._held_back(delivery, action):
                return
            with self._slots:
                self._attempt(delivery, action)
            if action["kind"] == "duplicate":
                hook = self.store.get("hook", delivery["hook_id"])
                same = "" if action.get("new_uuid") else delivery["uuid"]
                for _ in range(int(action.get("times", 1))):
                    self.enqueue(hook, delivery["event_type"], delivery["payload"], delivery_id=same)
        except sqlite3.ProgrammingError:
            if not self._stopping.is_set():  # a receiver slower than the stop finds the state closed
                raise
        finally:
            self._threads.discard(threading.current_thread())
            self.wake()

    def _held_back(self, delivery: Row, action: Action) -> bool:
        """Waits as a rule asks; returns False when the server stops meanwhile."""
        if action["kind"] == "postpone":
            self._stopping.wait(float(action.get("seconds", 1)))
        elif action["kind"] == "hold":
            later = (
                "SELECT count(*) AS n FROM delivery WHERE hook_id=? AND id>? AND state NOT IN ('waiting', 'sending')"
            )
            end = time.monotonic() + float(action.get("at_most", HOLD_S))
            while not self._stopping.is_set() and time.monotonic() < end:
                if self.store.many(later, delivery["hook_id"], delivery["id"])[0]["n"] >= int(action.get("until", 1)):
                    break
                with self._changed:
                    self._changed.wait(0.2)
        if self._stopping.is_set():
            self.store.update("delivery", delivery["id"], state="waiting")
        return not self._stopping.is_set()

    def _attempt(self, delivery: Row, action: Action) -> None:
        hook = self.store.one("SELECT * FROM hook WHERE id=?", delivery["hook_id"])
        if hook is None or not hook["active"]:
            self._finish(delivery, "skipped")
            return
        headers = headers_of(hook, delivery, self._target_type(hook), forgejo=self._forgejo)
        payload = str(delivery["payload"])
        if action["kind"] == "bad_signature":
            headers = {name: value[:-4] + "0000" if "Signature" in name else value for name, value in headers.items()}
        if action["kind"] == "garble_payload":
            payload = payload[: len(payload) // 2]
        body = urlencode({"payload": payload}) if hook["content_type"] == "form" else payload
        request = {"url": hook["url"], "method": "POST", "headers": headers, "body": payload}
        self.store.update("delivery", delivery["id"], request=json.dumps(request))
        if hook["authorization"]:
            headers = {**headers, "Authorization": hook["authorization"]}
        try:
            response = _post(hook["url"], headers, body.encode())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._finish(delivery, "failed", {"status": 0, "headers": {}, "body": f"Delivery: {error}"})
            return
        succeeded = HTTPStatus.OK <= response["status"] < HTTPStatus.MULTIPLE_CHOICES
        self._finish(delivery, "delivered" if succeeded else "failed", response, succeeded=succeeded)

    def _finish(
        self, delivery: Row, state: str, response: dict[str, Any] | None = None, *, succeeded: bool = False
    ) -> None:
        answer = json.dumps(response) if response else None
        self.store.update("delivery", delivery["id"], state=state, response=answer, succeeded=int(succeeded))

    def _target_type(self, hook: Row) -> str:
        if hook["repo_id"] is not None:
            return "repository"
        if hook["owner_id"] is None:
            return "system"
        owner = self.store.one("SELECT is_org FROM account WHERE id=?", hook["owner_id"])
        return "organization" if owner and owner["is_org"] else "user"


def _post(url: str, headers: dict[str, str], body: bytes) -> dict[str, Any]:
    """Sends one request as Go's client does, redirects included: 301 to 303 lose method and body."""
    end, method = time.monotonic() + TIMEOUT_S, "POST"
    for _ in range(MAX_REDIRECTS):
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=max(end - time.monotonic(), 0.01))
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.putrequest(method, target, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            if method == "POST":
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body if method == "POST" else None)
            answer = connection.getresponse()
            text = answer.read(RESPONSE_LIMIT).decode(errors="replace")
        finally:
            connection.close()
        if time.monotonic() > end:
            raise TimeoutError("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")
        where = answer.headers.get("Location")
        if answer.status not in {301, 302, 303, 307, 308} or not where:
            return {"status": answer.status, "headers": dict(answer.headers.items()), "body": text}
        method = method if answer.status in {307, 308} else "GET"
        url = urljoin(url, where)
    raise ValueError(f"stopped after {MAX_REDIRECTS} redirects")
