"""Follows the history as it grows: counts what happens, and tells the log once of each refusal and alert.

It begins at the newest row and reads on in windows of bounded size, so neither a long history nor a long absence makes
a scrape slow. What happened while this process did not run is in the history and not in its counts.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import structlog

from stationmaster import canonical
from stationmaster.clock import MICROS
from stationmaster.command import LedgerPort
from stationmaster.ledger import history, queries
from stationmaster.ledger.tx import Reader
from stationmaster.measure import Spread
from stationmaster.ops.metrics.figures import Figures, label

Q = queries.load("stationmaster.ops.metrics", "figures.sql")

WINDOW = 500
_START_RECEIPT = ":status:running"
_SHOWN_REFS = ("task", "delivery", "repo", "turn", "request")
_LONGEST_WORD = 200

_log = structlog.get_logger("stationmaster.history")


@dataclass(frozen=True, slots=True)
class _Window:
    """One stretch of the history: up to which number, how much is left behind it, and its rows."""

    below: int
    behind: int
    moves: list[dict[str, Any]]
    answers: list[dict[str, Any]]
    turns: list[dict[str, Any]]
    comments: list[dict[str, Any]]
    events: list[dict[str, Any]]
    refs: dict[int, dict[str, list[str]]]


class Follower:
    """Counts the history into `figures`; one for each process."""

    def __init__(self, port: LedgerPort, figures: Figures) -> None:
        self.behind = 0
        self._port = port
        self._figures = figures
        self._after: int | None = None
        # A scrape and the duty may want to read on at the same moment.
        self._alone = asyncio.Lock()

    async def begin(self) -> None:
        """Takes the newest row as the place to begin after; called before anything works."""
        self._after = await self._port.read(history.horizon)

    async def tick(self, now: int) -> int:
        """Counts the next window; returns 1 while more is left, else 0."""
        _ = now
        async with self._alone:
            if self._after is None:
                await self.begin()
                return 0
            window = await self._port.read(_window, self._after)
            self._count(window)
            self._after, self.behind = window.below, window.behind
        return int(window.behind > 0)

    async def catch_up(self, windows: int) -> None:
        """Counts on until nothing is left, or a number of windows was read."""
        for _ in range(windows):
            if not await self.tick(0):
                return

    def _count(self, window: _Window) -> None:
        figures = self._figures
        for row in window.moves:
            figures.moves.add(row["to_state"])
            spread = self._spread_of(row)
            if spread is not None and row["since"] is not None:
                spread.add(_seconds(row["since"], row["at"]))
        for row in window.answers:
            figures.answer_s.add(_seconds(row["asked_at"], row["at"]))
        for row in window.turns:
            figures.turn_s.add(row["to_state"], _seconds(row["started_at"], row["at"]))
        for row in window.comments:
            figures.comments.add(row["kind"], row["to_state"])
            if row["to_state"] == "confirmed" and row["entity"].endswith(_START_RECEIPT):
                figures.receipt_s.add(_seconds(row["asked_at"], row["at"]))
        for row in window.events:
            self._event(row, window.refs.get(row["seq"], {}))

    def _spread_of(self, row: dict[str, Any]) -> Spread | None:
        if row["from_state"] == "queued":
            return self._figures.claim_wait_s if row["to_state"] == "preparing" else None
        figures = self._figures
        return {"preparing": figures.preparation_s, "verifying_reply": figures.verification_s}.get(row["from_state"])

    def _event(self, row: dict[str, Any], refs: dict[str, list[str]]) -> None:
        figures, action = self._figures, str(row["action"])
        data = {} if row["data"] is None else canonical.load(row["data"])
        figures.events.add(label(action))
        if row["kind"] == "result":
            figures.outcomes.add(label(action.removesuffix(".result")), label(row["outcome"]))
            figures.unknown_outcomes += int(row["outcome"] == "unknown")
        elif row["kind"] == "refusal":
            figures.refusals.add(label(action), label(row["outcome"]))
            # Whoever tried a move that does not exist has told the log already.
            if action != "illegal_transition":
                _say(action, row["command_name"], data | {"code": row["outcome"]}, refs)
        elif action.startswith("alert."):
            figures.alerts.add(label(action.removeprefix("alert.")))
            _say(action, row["command_name"], data, refs)
        elif action == "catchup.gap":
            figures.gaps.add(label(str(data.get("reason", ""))))
            figures.gap_taken.add(by=int(data.get("taken", 0)))
        elif action == "task.held":
            figures.limits.add(label(str(data.get("code", ""))))
        elif action == "reply.missing":
            figures.replies_missing += 1
        elif action.endswith(".duplicate_observed"):
            figures.duplicate_answers += 1
        elif action == "recovery.adopt":
            figures.recovered.add(label(str(data.get("state", ""))))


def _window(reader: Reader, after: int) -> _Window:
    newest = history.horizon(reader)
    below = min(newest, after + WINDOW)
    if below <= after:
        return _Window(after, 0, [], [], [], [], [], {})
    span = {"after": after, "below": below}
    events = reader.many(Q.events, **span)
    told = [row for row in events if row["kind"] == "refusal" or row["action"].startswith("alert.")]
    refs = {row["seq"]: history.refs(reader, row["command"]) | history.refs(reader, row["seq"]) for row in told}
    return _Window(
        below,
        newest - below,
        reader.many(Q.moves, **span),
        reader.many(Q.answers, **span),
        reader.many(Q.turns, **span),
        reader.many(Q.comments, **span),
        events,
        refs,
    )


def _say(action: str, command: str, data: dict[str, Any], refs: dict[str, list[str]]) -> None:
    """Writes the one line of a refusal or alert; a name that is its own is never overwritten by what a row holds."""
    about = {kind: refs[kind][0] for kind in _SHOWN_REFS if refs.get(kind)}
    plain = {name: value for name, value in data.items() if name in {"code", "reason", "how", "source", "sentence"}}
    words = {name: str(value)[:_LONGEST_WORD] for name, value in {**plain, **about}.items() if value is not None}
    _log.warning(action, command=command, **words)


def _seconds(since: int, at: int) -> float:
    # The clock never runs backwards within a ledger, but two writers of a shared one may differ by a little.
    return max(at - since, 0) / MICROS
