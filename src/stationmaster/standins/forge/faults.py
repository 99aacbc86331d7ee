"""What goes wrong on purpose: rules that match a request, a read comment or a webhook delivery.

A rule is `{"name", "match": {…regular expressions}, "skip": 0, "count": 1, "action": {"kind", …}}`; `count` null means
for ever. Rules and their counters are durable; the first that matches acts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stationmaster.standins.forge.store import Row, Store
from stationmaster.standins.forge.wire import Request, Response

Action = dict[str, Any]

KINDS = {
    # on a request; all of them take `seconds` (wait) and `when` ("before" or "after" the effect)
    "drop_before": "closes the connection; nothing happened",
    "drop_after": "closes the connection; it happened, nobody says so",
    "drop_midway": "closes the connection in the middle of the answer",
    "delay": "waits `seconds`, then goes on: with `when` before, the effect comes late, perhaps after the caller left",
    "answer": "answers `status`, `body` (blank), `headers`, `content_type`; `effect` true lets it happen first",
    "cut": "sends half of the body as if it were all",
    "garble": "sends something else in place of the JSON",
    "redirect": "answers 301 to `location`",
    # on reading comments
    "hide_comment": "leaves the comment out; with `honest_count` X-Total-Count still counts it",
    "alter_comment": "shows `body` + `append`, or with `pattern` the body with `replace` in its place",
    # on writing a comment
    "double_comment": "stores it twice",
    # on a delivery
    "lose": "never sends it",
    "duplicate": "sends it `times` more, with the same UUID unless `new_uuid`",
    "postpone": "sends it `seconds` later; others pass",
    "hold": "sends it when `until` later ones of the hook are done, or after `at_most` seconds",
    "garble_payload": "sends half of the JSON",
    "bad_signature": "spoils the signatures",
}
"""Every kind of action with what it does."""

READ_KINDS = frozenset({"hide_comment", "alter_comment"})
WRITE_KINDS = frozenset({"double_comment"})
DELIVERY_KINDS = frozenset({"lose", "duplicate", "postpone", "hold", "garble_payload", "bad_signature"})
HTTP_KINDS = frozenset(KINDS) - READ_KINDS - WRITE_KINDS - DELIVERY_KINDS
MATCH_KEYS = frozenset({"method", "path", "body", "login", "event", "event_type", "hook", "comment", "where"})


class BadFault(ValueError):
    """A rule that cannot be understood."""


class Faults:
    """The live rules of one forge."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def load(self, file: Path) -> None:
        """Replaces all rules by those of a JSON file: a list, or an object with the list under `faults`."""
        content = json.loads(file.read_text())
        self.replace(content["faults"] if isinstance(content, dict) else content)

    def replace(self, specs: Iterable[dict[str, Any]]) -> None:
        """Replaces all rules."""
        checked = list(specs)
        for spec in checked:
            _check(spec)
        with self.store.tx():
            self.clear()
            for spec in checked:
                self.add(spec)

    def add(self, spec: dict[str, Any]) -> int:
        """Adds one rule and returns its id."""
        _check(spec)
        return self.store.insert(
            "fault",
            name=str(spec.get("name", spec["action"]["kind"])),
            spec=json.dumps({"match": spec.get("match", {}), "action": spec["action"]}),
            skip=int(spec.get("skip", 0)),
            remaining=spec.get("count", 1),
            hits=0,
        )

    def clear(self, name: str | None = None) -> None:
        """Removes the rules with that name, or all."""
        self.store.run("DELETE FROM fault WHERE ?1 IS NULL OR name=?1", name)

    def listed(self) -> list[dict[str, Any]]:
        """Returns every rule with its counters."""
        rows = self.store.many("SELECT * FROM fault ORDER BY id")
        return [{**row, "spec": None, **json.loads(row["spec"])} for row in rows]

    def on_request(self, request: Request, login: str) -> tuple[str, Action] | None:
        """Takes the first rule for this request; returns its name and action."""
        if not self._live(HTTP_KINDS):
            return None
        facts = {
            "method": request.method,
            "path": request.target,
            "body": request.body.decode(errors="replace"),
            "login": login,
        }
        return self._take(HTTP_KINDS, facts)

    def on_create(self, request: Request, login: str) -> Action | None:
        """Takes the first rule about writing this comment."""
        facts = {"path": request.target, "body": request.body.decode(errors="replace"), "login": login}
        taken = self._take(WRITE_KINDS, facts)
        return taken[1] if taken else None

    def on_delivery(self, delivery: Row) -> Action | None:
        """Takes the first rule for this webhook delivery."""
        facts = {
            "event": delivery["event"],
            "event_type": delivery["event_type"],
            "hook": str(delivery["hook_id"]),
            "body": delivery["payload"],
        }
        taken = self._take(DELIVERY_KINDS, facts)
        return taken[1] if taken else None

    def on_read(self, comments: list[Row], logins: dict[int, str], where: str) -> tuple[list[Row], int]:
        """Returns the comments as this read shows them and how many it says there are; a rule counts reads."""
        secret = 0
        for kind in sorted(READ_KINDS):
            for rule_id, match, action in self._live(frozenset({kind})):
                hit = {
                    row["id"]
                    for row in comments
                    if _matches(match, {
                        "body": row["body"],
                        "login": logins[row["id"]],
                        "comment": str(row["id"]),
                        "where": where,
                    })
                }  # fmt: skip
                if hit and self._use(rule_id):
                    shown = [seen for row in comments if (seen := _seen(row, hit, action)) is not None]
                    secret += len(comments) - len(shown) if action.get("honest_count") else 0
                    comments = shown
        return comments, len(comments) + secret

    def _live(self, kinds: frozenset[str]) -> list[tuple[int, dict[str, str], Action]]:
        found = []
        for row in self.store.many("SELECT * FROM fault WHERE remaining IS NULL OR remaining > 0 ORDER BY id"):
            spec = json.loads(row["spec"])
            if spec["action"]["kind"] in kinds:
                found.append((int(row["id"]), spec["match"], {**spec["action"], "name": row["name"]}))
        return found

    def _take(self, kinds: frozenset[str], facts: dict[str, str]) -> tuple[str, Action] | None:
        for rule_id, match, action in self._live(kinds):
            if _matches(match, facts) and self._use(rule_id):
                return str(action["name"]), action
        return None

    def _use(self, rule_id: int) -> bool:
        with self.store.tx():
            row = self.store.get("fault", rule_id)
            if row["remaining"] == 0:
                return False
            if row["skip"] > 0:
                self.store.update("fault", rule_id, skip=row["skip"] - 1)
                return False
            left = None if row["remaining"] is None else row["remaining"] - 1
            self.store.update("fault", rule_id, remaining=left, hits=row["hits"] + 1)
            return True


def _check(spec: dict[str, Any]) -> None:
    kind = spec.get("action", {}).get("kind")
    if kind not in KINDS:
        raise BadFault(f"A fault has no action kind {kind!r}; there are {', '.join(sorted(KINDS))}.")
    unknown = set(spec) - {"name", "match", "skip", "count", "action"} | set(spec.get("match", {})) - MATCH_KEYS
    if unknown:
        raise BadFault(f"A fault has no key {', '.join(sorted(unknown))}.")


def _matches(match: dict[str, str], facts: dict[str, str]) -> bool:
    return all(key in facts and re.search(str(pattern), facts[key]) for key, pattern in match.items())


def _seen(row: Row, hit: set[int], action: Action) -> Row | None:
    if row["id"] not in hit:
        return row
    if action["kind"] == "hide_comment":
        return None
    if "pattern" in action:
        return {**row, "body": re.sub(action["pattern"], action.get("replace", ""), row["body"])}
    return {**row, "body": action.get("body", "") + action.get("append", "")}


def damaged(response: Response, action: Action) -> Response:
    """Returns the answer as a rule of kind `answer`, `cut`, `garble` or `redirect` leaves it."""
    kind = action["kind"]
    if kind == "answer":
        body = str(action.get("body", "")).encode()
        headers = [("Content-Type", str(action.get("content_type", "text/html; charset=utf-8")))] if body else []
        return Response(int(action["status"]), body, headers + [tuple(pair) for pair in action.get("headers", [])])
    if kind == "redirect":
        return Response(int(action.get("status", 301)), b"", [("Location", str(action["location"]))])
    if kind == "cut":
        return Response(response.status, response.body[: len(response.body) // 2], response.headers)
    if kind == "garble":
        return Response(response.status, b"<html>proxy error</html>" + response.body[:20], response.headers)
    return response
