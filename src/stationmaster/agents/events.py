"""The one vocabulary of what an agent does, whatever wire it came over.

`seq` is given by the host in the order of receipt (GW-R-149). Texts are clipped and redacted before they get here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

TurnStatus = Literal["completed", "interrupted", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    kind: ClassVar[str] = ""
    seq: int = 0
    thread_id: str = ""
    turn_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStarted(_Event):
    """A conversation exists in the agent process."""

    kind: ClassVar[str] = "thread_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted(_Event):
    """The agent began to work on a turn."""

    kind: ClassVar[str] = "turn_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemStarted(_Event):
    """The agent began a step: a command, an edit, a tool call, a thought."""

    kind: ClassVar[str] = "item_started"
    item_id: str
    item_type: str
    summary: str
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCompleted(_Event):
    """A step ended, well or badly; `detail` says which."""

    kind: ClassVar[str] = "item_completed"
    item_id: str
    item_type: str
    summary: str
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMessage(_Event):
    """The agent said something; `delivery` "async" with questions is a waiting signal."""

    kind: ClassVar[str] = "agent_message"
    item_id: str
    text: str
    phase: str = ""
    delivery: str = ""
    questions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage(_Event):
    """Tokens counted so far in the whole conversation."""

    kind: ClassVar[str] = "token_usage"
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWarning(_Event):
    """Something the agent wants noticed; the turn goes on."""

    kind: ClassVar[str] = "warning"
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentError(_Event):
    """The agent met an error; `will_retry` tells whether it tries again by itself."""

    kind: ClassVar[str] = "error"
    code: str
    message: str
    will_retry: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRequest(_Event):
    """The agent asked its host for something and policy answered (GW-R-152).

    `action` is accept, decline, cancel or error. `waiting` means that a person was meant to answer (GW-R-151).
    """

    kind: ClassVar[str] = "request"
    method: str
    action: str
    summary: str
    waiting: bool
    questions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCompleted(_Event):
    """A turn ended. `transient` tells whether trying again later may help."""

    kind: ClassVar[str] = "turn_completed"
    status: TurnStatus
    error_code: str = ""
    error_message: str = ""
    transient: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExited(_Event):
    """The agent process is gone; nothing follows."""

    kind: ClassVar[str] = "process_exited"
    code: int | None
    words: str = ""


AgentEvent = (
    ThreadStarted
    | TurnStarted
    | ItemStarted
    | ItemCompleted
    | AgentMessage
    | TokenUsage
    | AgentWarning
    | AgentError
    | AgentRequest
    | TurnCompleted
    | ProcessExited
)


def record(event: AgentEvent) -> dict[str, Any]:
    """Returns an event as plain data for the run's log, `kind` included."""
    return {"kind": event.kind, **asdict(event)}
