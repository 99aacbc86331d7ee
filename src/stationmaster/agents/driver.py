"""What every driver of a coding agent offers, and the tools that a worker lends to a run.

A driver speaks one agent's protocol; it knows no forge, no task and no database.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from stationmaster.agents.events import AgentEvent


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool offered to the agent and answered by the worker that holds the run."""

    name: str
    description: str
    input_schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool; the arguments are the model's and therefore untrusted."""

    call_id: str
    tool: str
    arguments: dict[str, Any]
    thread_id: str = ""
    turn_id: str = ""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What the agent reads back; `ok` false tells it that the call failed."""

    text: str
    ok: bool


OnTool = Callable[[ToolCall], Awaitable[ToolAnswer]]
OnTurn = Callable[[str], Awaitable[None]]


class AgentRun(Protocol):
    """One live agent process that serves one run."""

    capability_downgrades: list[str]
    steered: list[str]

    async def start_thread(self) -> str:
        """Begins a conversation and returns its id."""
        ...

    async def resume_thread(self, thread_id: str) -> None:
        """Continues a stored conversation; NotFound `session_unrecoverable` when it is lost for good."""
        ...

    async def start_turn(self, thread_id: str, text: str, *, stored: OnTurn | None = None) -> str:
        """Starts one turn and returns its id before any event of that turn is yielded."""
        ...

    def events(self) -> AsyncIterator[AgentEvent]:
        """Yields what happens until the process is gone."""
        ...

    async def steer(self, thread_id: str, turn_id: str, text: str, *, key: str) -> None:
        """Says something into a running turn; its `key` stands in `steered` once the agent was given it."""
        ...

    async def interrupt(self, thread_id: str, turn_id: str) -> None:
        """Asks the turn to stop; its end arrives as an event."""
        ...

    async def close(self) -> None:
        """Ends the process and proves that nothing of it is left."""
        ...
