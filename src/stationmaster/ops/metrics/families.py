"""Every metric there is: its name, kind, labels and what it means. docs/metrics.md is made from this.

A metric `from history` is counted from the ledger's rows while this process runs; it holds what every process of the
ledger did, so of several processes look at one. One `in this process` begins at zero with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram"]
Source = Literal["ledger", "history", "process"]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. `name` goes without the suffix that Prometheus adds to counters (`_total`) and histograms."""

    name: str
    kind: Kind
    source: Source
    about: str
    labels: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The name as a query writes it."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


def _family(name: str, kind: Kind, source: Source, about: str, *labels: str) -> Family:
    return Family(f"stationmaster_{name}", kind, source, about, labels)


_FROM_LEDGER = (
    _family(
        "tasks", "gauge", "ledger", "Tasks that are not at their end, by state; at most 10000 are counted.", "state"
    ),
    _family(
        "queue_age_seconds",
        "gauge",
        "ledger",
        "How long the task that waits longest could have been claimed; what is held, disabled or behind another task of"
        " its conversation does not count. 0 when nothing waits.",
    ),
    _family("held_tasks", "gauge", "ledger", "Queued tasks that a limit keeps back, by the limit.", "reason"),
    _family("paused", "gauge", "ledger", "1 while an operator's pause keeps new work from being taken up."),
    _family("open_intents", "gauge", "ledger", "Effects that were begun and whose outcome is not known yet."),
    _family("open_intent_age_seconds", "gauge", "ledger", "Age of the oldest of them; 0 when there is none."),
    _family("open_comments", "gauge", "ledger", "Comments that are to be posted or proven."),
    _family("open_comment_age_seconds", "gauge", "ledger", "Age of the oldest of them; 0 when there is none."),
    _family("repository_leases", "gauge", "ledger", "Repositories that somebody works in."),
    _family("reading_age_seconds", "gauge", "ledger", "Time since the forge was last read through, by forge.", "forge"),
    _family("unread_repositories", "gauge", "ledger", "Repositories whose last reading failed, by forge.", "forge"),
    _family("open_looks", "gauge", "ledger", "Issues and pull requests that wait to be read, by forge.", "forge"),
    _family("database_bytes", "gauge", "ledger", "Size of the database."),
)

_FROM_HISTORY = (
    _family("task_moves", "counter", "history", "Moves of tasks, by the state they came to.", "to"),
    _family("claim_wait_seconds", "histogram", "history", "From when a task was queued until a worker took it."),
    _family("preparation_seconds", "histogram", "history", "From the claim until the workplace was ready or refused."),
    _family("turn_seconds", "histogram", "history", "What turns of the agent took, by how they ended.", "end"),
    _family(
        "verification_seconds", "histogram", "history", "From the end of a turn until its answer was proven or not."
    ),
    _family("receipt_seconds", "histogram", "history", "From a mention until its first receipt was proven."),
    _family("answer_seconds", "histogram", "history", "From what was asked last until its answer was proven."),
    _family("comments", "counter", "history", "Comments that came to their end, by kind and end.", "kind", "end"),
    _family(
        "outcomes",
        "counter",
        "history",
        "Outcomes of effects, by effect; `unknown` means that nobody can tell.",
        "effect",
        "outcome",
    ),
    _family(
        "unknown_outcomes", "counter", "history", "Effects of which nobody could tell at first whether they happened."
    ),
    _family(
        "replies_missing", "counter", "history", "Turns whose answer was not in the thread when it was looked for."
    ),
    _family("duplicate_answers", "counter", "history", "Comments of the bot beyond the one that a mark stands for."),
    _family("events", "counter", "history", "Everything that was written into the history, by action.", "action"),
    _family("refusals", "counter", "history", "What was refused, by action and code.", "action", "code"),
    _family("alerts", "counter", "history", "What asks for an operator, by alert.", "alert"),
    _family("limits_reached", "counter", "history", "Tasks that a limit began to keep back, by the limit.", "reason"),
    _family(
        "gaps_closed", "counter", "history", "Gaps that a reading of the forge closed, by why it was read.", "reason"
    ),
    _family("gap_taken", "counter", "history", "Mentions found in such gaps that no delivery had brought."),
    _family(
        "recovered", "counter", "history", "Tasks that recovery took over from somebody who died, by state.", "state"
    ),
    _family("history_behind", "gauge", "history", "Rows of the history that are not counted here yet."),
)

_IN_PROCESS = (
    _family(
        "deliveries",
        "counter",
        "process",
        "Webhook deliveries, by what they came to and why.",
        "forge",
        "status",
        "reason",
    ),
    _family(
        "deliveries_failed",
        "counter",
        "process",
        "Webhook deliveries that were answered 5xx: the forge does not send them again.",
    ),
    _family("http_responses", "counter", "process", "Answers over HTTP, by door and status.", "door", "code"),
    _family("http_seconds", "histogram", "process", "How long callers waited until an answer began, by door.", "door"),
    _family("forge_requests", "counter", "process", "Requests to a forge, by what came of them.", "forge", "outcome"),
    _family("forge_seconds", "histogram", "process", "What requests to a forge took.", "forge"),
    _family("commit_seconds", "histogram", "process", "What commits of the ledger took."),
    _family("commit_jobs", "histogram", "process", "How many writes shared a commit."),
    _family("commits_failed", "counter", "process", "Writes that the store could not keep."),
    _family(
        "ledger_writable", "gauge", "process", "0 from a write that the store could not keep until one that it could."
    ),
    _family("loop_ticks", "counter", "process", "Rounds of the background duties.", "loop"),
    _family("loop_done", "counter", "process", "What those rounds did; of recovery, the tasks that it moved.", "loop"),
    _family("loop_failures", "counter", "process", "Rounds that failed.", "loop"),
    _family("loop_age_seconds", "gauge", "process", "Time since a round of a duty last ended well.", "loop"),
    _family("live_runs", "gauge", "process", "Runs of the agent that this worker has under way."),
    _family("max_runs", "gauge", "process", "How many it may have."),
    _family("runs_refused", "gauge", "process", "1 while no agent may run on this machine; /readyz says why."),
    _family("log_bytes", "gauge", "process", "Size of SQLite's log beside the database."),
    _family("disk_free_bytes", "gauge", "process", "Free space where the ledger and where worktrees lie.", "place"),
    _family("disk_bytes", "gauge", "process", "Size of those disks.", "place"),
    _family("uptime_seconds", "gauge", "process", "Time since this process began."),
    _family("build_info", "gauge", "process", "Always 1.", "version", "python"),
)

FAMILIES = (*_FROM_LEDGER, *_FROM_HISTORY, *_IN_PROCESS)
