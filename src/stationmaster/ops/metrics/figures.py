"""What is counted while this process runs; a new process begins at zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stationmaster.gitea import codes
from stationmaster.gitea.actions import ACTIVE
from stationmaster.gitea.machine import TASK
from stationmaster.measure import REQUEST, WORK, Spread, Tally

# What is written for an operator to see.
ALERTS = ("question_unknown", "reply_failed", "reply_unknown")
LIMITS = (
    codes.AUTHOR_RATE_REACHED,
    codes.REPO_RATE_REACHED,
    codes.RATE_REACHED,
    codes.TASK_BUDGET_SPENT,
    codes.REPO_BUDGET_SPENT,
    codes.DAY_BUDGET_SPENT,
)
# What an answer to a delivery may say it came to; anything else is told by the HTTP status alone.
_STATES = frozenset({"accepted", "ignored", "duplicate", "rejected"})
_CREATED = 202
_FIRST_ERROR = 400
_FIRST_FAILURE = 500
_LONGEST_LABEL = 64


class Spreads:
    """Spreads of one kind by a label."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.by: dict[str, Spread] = {}

    def add(self, label: str, value: float) -> None:
        """Counts a value under a label."""
        spread = self.by.get(label)
        if spread is None:
            # Of two threads that come first at once one may lose a single value; nothing else is at stake.
            spread = self.by.setdefault(label, Spread(self._bounds))
        spread.add(value)


class Figures:
    """Every count of this process and of the history that it followed."""

    def __init__(self) -> None:
        self.deliveries = Tally()
        self.responses = Tally()
        self.response_s = Spreads(REQUEST)
        self.moves = Tally()
        self.claim_wait_s = Spread(WORK)
        self.preparation_s = Spread(WORK)
        self.turn_s = Spreads(WORK)
        self.verification_s = Spread(WORK)
        self.receipt_s = Spread(WORK)
        self.answer_s = Spread(WORK)
        self.comments = Tally()
        self.outcomes = Tally()
        self.events = Tally()
        self.refusals = Tally()
        self.alerts = Tally()
        self.limits = Tally()
        self.gaps = Tally()
        self.gap_taken = Tally()
        self.recovered = Tally()
        self.deliveries_failed = 0
        self.unknown_outcomes = 0
        self.replies_missing = 0
        self.duplicate_answers = 0
        # A rate over a series that appears with its first event misses that event: what is watched begins at zero.
        for state in sorted(TASK.states):
            self.moves.add(state, by=0)
        for state in sorted(ACTIVE):
            self.recovered.add(state, by=0)
        for alert in ALERTS:
            self.alerts.add(alert, by=0)
        for code in LIMITS:
            self.limits.add(code, by=0)

    def delivery(self, instance: str, status: int, body: Mapping[str, Any]) -> None:
        """Counts the answer to a webhook delivery by what it came to (GW-R-069); nothing of it is a stranger's word."""
        said = str(body.get("status", ""))
        if said in _STATES:
            state = said
        elif status >= _FIRST_ERROR:
            state = "rejected"
        else:
            state = "accepted" if status == _CREATED else "other"
        why = body.get("state") if state == "accepted" else body.get("reason") or body.get("error")
        reason = str(why or "")
        self.deliveries.add(instance, state, label(reason))

    def response(self, door: str, status: int, seconds: float) -> None:
        """Counts an answer over HTTP."""
        self.responses.add(door, str(status))
        if door == "webhook" and status >= _FIRST_FAILURE:
            # GW-R-069: the forge does not send it again.
            self.deliveries_failed += 1
        self.response_s.add(door, seconds)


def label(text: str) -> str:
    """Returns a word of our own as a label; what does not look like one is `other`, so that labels stay few."""
    fine = len(text) <= _LONGEST_LABEL and all(char.isascii() and (char.isalnum() or char in "_.-") for char in text)
    return text if fine else "other"
