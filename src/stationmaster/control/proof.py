"""The proof chain of what was done, from the audit's events alone: from the delivery to the comment (GW-R-229).

Pure: it is given events as `audit` tells them and never looks elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

CHAIN = ("deliveryId", "taskId", "sessionKey", "threadId", "turnRef", "turnId", "commentId")

_KINDS = {"status": "receipt", "final": "answer", "ask": "question", "fallback": "fallback answer"}
_SEEN = {"comment.sent": "sent", "comment.confirmed": "read back", "reply.confirm": "read back, ends the task"}

Event = dict[str, Any]


@dataclass(slots=True)
class Proof:
    """Collects events in their order; `lines` words what they prove."""

    ids: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in CHAIN})
    _words: dict[tuple[str, str], str] = field(default_factory=dict)
    _states: dict[str, list[str]] = field(default_factory=dict)
    _kinds: dict[str, str] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Takes one event."""
        for name, values in self.ids.items():
            value = event[name]
            known = value is None or value in values or (name == "turnId" and value == event["turnRef"])
            if not known:
                values.append(value)
        data, action = event["metadata"], event["action"]
        if data.get("machine") == "gitea_task":
            self._states.setdefault(data["entity"], []).append(event["toState"])
        elif action == "webhook.accept":
            by = f"{event['timestamp']}, {event['actor']}"
            self._words["deliveryId", str(event["deliveryId"])] = f"accepted {by}"
            self._words["commentId", str(event["commentId"])] = "the mention"
        elif action in _SEEN and event["commentId"]:
            self._comment(event["commentId"], str(data.get("key", "")), _SEEN[action])
        elif action == "turn.end":
            self._words["turnRef", str(event["turnRef"])] = str(data.get("outcome", ""))

    def lines(self) -> list[tuple[str, str, str]]:
        """Returns for every id of the chain its name, the id and what the history says of it."""
        for task_id, states in self._states.items():
            self._words["taskId", task_id] = " → ".join(states)
        return [
            (
                name.removesuffix("Id").removesuffix("Key").lower().replace("turnref", "turn ref"),
                value,
                self._of(name, value),
            )
            for name, values in self.ids.items()
            for value in values
        ]

    def _comment(self, comment_id: str, key: str, seen: str) -> None:
        kind = next((word for part, word in _KINDS.items() if f":{part}" in key), "")
        self._kinds[comment_id] = kind or self._kinds.get(comment_id, "answer")
        self._words["commentId", comment_id] = f"{self._kinds[comment_id]}, {seen}"

    def _of(self, name: str, value: str) -> str:
        return self._words.get((name, value), "")
