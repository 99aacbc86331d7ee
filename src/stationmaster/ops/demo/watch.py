"""Tells what the product writes down while it happens: the audit, one line an event, through the control socket."""

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
_SHORT = 46


class Watch:
    """Follows one product's audit from where the last look ended."""

    def __init__(self, product: Product, door: Door, say: Say) -> None:
        self._product = product
        self._door = door
        self._say = say
        self._seq = 0
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
        while True:
            page = self._door.call(audit.audit, {"cursor": str(self._seq), "limit": _PAGE})
            for event in page["events"]:
                self._seq = event["seq"]
                self._say(line(self.seconds(), event))
            if page["nextCursor"] is None:
                return


def line(seconds: float, event: Json) -> str:
    """Words one event: when, what, and what it is about."""
    moved = f"{event['fromState'] or '·'} → {event['toState']}" if event["toState"] else ""
    about = moved or _detail(event)
    return f"  {seconds:6.2f} s  {event['action']:<26} {about}".rstrip()


def _detail(event: Json) -> str:
    data = event["metadata"]
    parts = [str(event["outcome"])] if event["outcome"] else []
    for name in ("branch", "sha", "tool", "native_id", "kind", "code", "reason"):
        value = data.get(name)
        if value and str(value) not in parts:
            parts.append(f"{name}={value}")
    return " ".join(parts)[:_SHORT]
