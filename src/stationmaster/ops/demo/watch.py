"""Tells what happens while it happens: the product's audit in words, and what the agent's tools returned."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from stationmaster.control import audit, look
from stationmaster.control.socket import Door
from stationmaster.errors import Unavailable
from stationmaster.ops.demo.product import Product

Json = dict[str, Any]
Say = Callable[[str], None]

RESTING = frozenset(
    {
        "waiting_user",
        "blocked_workspace",
        "succeeded",
        "succeeded_with_rest_fallback",
        "failed",
        "failed_reply",
        "cancelled",
        "aborted",
    }
)
_PAUSE_S = 0.1
_WITHIN_S = 180.0
_PAGE = 1000


class Watch:
    """Follows one product's audit from where the last look ended."""

    def __init__(self, product: Product, door: Door, say: Say, steps: Callable[[], list[str]]) -> None:
        """Takes `steps`, which returns everything that the agent's tools have returned so far, oldest first."""
        self._product = product
        self._door = door
        self._say = say
        self._steps = steps
        self._seq = self._told = 0
        self._began = time.monotonic()

    def until_rest(self, delivered: Callable[[], str | None]) -> Json:
        """Tells everything until the task that `delivered` names rests; returns the task as `task show` gives it.

        Raises Unavailable when the product ends or nothing comes of it in time.
        """
        self._began = time.monotonic()
        task_id = None
        while True:
            self._tell()
            task_id = task_id or delivered()
            if task_id is not None:
                found: Json = self._door.call(look.task, {"taskId": task_id})
                if found["task"]["state"] in RESTING and found["task"]["leaseId"] is None:
                    self._tell()
                    return found
            if not self._product.running:
                raise Unavailable(f"The product ended: {self._product.last_words()}", code="demo_failed")
            if time.monotonic() - self._began > _WITHIN_S:
                where = "no task was made" if task_id is None else f"the task is {found['task']['state']}"
                raise Unavailable(f"After {_WITHIN_S:.0f} s {where}.", code="demo_failed")
            time.sleep(_PAUSE_S)

    def again(self, found: Json) -> Json:
        """Returns a task as it is shown now."""
        now: Json = self._door.call(look.task, {"taskId": found["task"]["taskId"]})
        return now

    def seconds(self) -> float:
        """Returns how long the present watch has lasted."""
        return round(time.monotonic() - self._began, 2)

    def _tell(self) -> None:
        steps = self._steps()
        for step in steps[self._told :]:
            self._say(f"  {self.seconds():6.2f} s    agent: {step}")
        self._told = len(steps)
        while True:
            page = self._door.call(audit.audit, {"cursor": str(self._seq), "limit": _PAGE})
            for event in page["events"]:
                self._seq = event["seq"]
                words = line(self.seconds(), event)
                if words is not None:
                    self._say(words)
            if page["nextCursor"] is None:
                return


_WORDS = {
    "webhook.accept": "the webhook is answered: the mention is a task now",
    "author.permission_from_payload": "the person may ask (the signed event says: {may})",
    "git.clone.result": "the repository is cloned",
    "git.fetch.result": "the repository is fetched",
    "git.branch.result": "the task branch stands at {head:.10}",
    "comment.confirmed": "the {what} is posted, and was read back from the thread",
    "thread.start.result": "Codex began a conversation",
    "thread.resume.result": "Codex continues the same conversation",
    "turn.bound": "the agent works",
    "git.push.result": "the branch is pushed: {branch} at {sha:.10}",
    "pull.create.result": "the pull request is open: #{number}",
    "turn.end": "the agent's processes are gone, its tree is saved ({outcome})",
    "reply.verify.result": "the answer was looked for in the thread: {outcome}",
    "lease.release": "the repository is free again",
}
_GOOD = frozenset({None, "done", "found"})


def line(seconds: float, event: Json) -> str | None:
    """Words one event, or returns None for a step that only bookkeepers want to see."""
    data = event["metadata"]
    if event["kind"] == "move" and data["machine"] == "gitea_task" and event["fromState"]:
        words = f"task: {event['fromState']} → {event['toState']}"
    elif event["action"] == "git.commit.result" and data.get("changed"):
        words = f"the host committed what the agent left: {data['after']:.10}"
    elif event["action"] in _WORDS and data.get("kind") != "duty":
        known = _Known(data, outcome=event["outcome"] or data.get("outcome"), what=_what(data.get("key", "")))
        words = _WORDS[event["action"]].format_map(known)
    elif event["kind"] == "refusal" or event["outcome"] not in _GOOD:
        words = f"{event['action']}: {event['outcome']}"
    else:
        return None
    return f"  {seconds:6.2f} s  {words}"


def _what(key: str) -> str:
    return "answer" if ":final:" in key else "question" if ":ask:" in key else "receipt"


class _Known(dict[str, Any]):
    """What is known of an event; a gap in the words is a gap, not an error."""

    def __missing__(self, key: str) -> str:
        """Returns what stands for something unknown."""
        return "?"
