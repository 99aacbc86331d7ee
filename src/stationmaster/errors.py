"""The eight kinds of error that cross a module boundary.

Every door (HTTP, MCP, CLI) maps a kind once. A message is one sentence that says what is wrong; `hint` says what to
do next. Neither ever holds a secret.
"""

from __future__ import annotations

from typing import ClassVar


class StationmasterError(Exception):
    """The base of the eight kinds; never raised itself.

    `code` is the stable lower-case identifier shown to programs (GW-R-213); `ids` are correlation ids for the reader.
    """

    kind: ClassVar[str] = "bug"

    def __init__(self, message: str, *, code: str = "", hint: str = "", **ids: object) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.kind
        self.hint = hint
        self.ids = ids

    def __str__(self) -> str:
        """Returns the sentence and, when there is one, what to do next."""
        return f"{self.message} {self.hint}".rstrip()


class Invalid(StationmasterError):
    """The request cannot be understood or breaks a rule of form; repeating it unchanged never helps."""

    kind = "invalid"


class Denied(StationmasterError):
    """The caller is not known, or may not do this."""

    kind = "denied"


class NotFound(StationmasterError):
    """The named thing does not exist, or the caller may not know that it does."""

    kind = "not_found"


class Stale(StationmasterError):
    """The caller acted on a revision that is no longer current (K3); read again and decide again."""

    kind = "stale"


class Illegal(StationmasterError):
    """The state machine has no such edge from the present state."""

    kind = "illegal"


class Busy(StationmasterError):
    """Somebody else holds what is needed; try again after `retry_after` seconds."""

    kind = "busy"

    def __init__(
        self, message: str, *, code: str = "", hint: str = "", retry_after: float = 1.0, **ids: object
    ) -> None:
        super().__init__(message, code=code, hint=hint, **ids)
        self.retry_after = retry_after


class Unavailable(StationmasterError):
    """A part outside this process (database, forge, agent, git) could not be reached or did not answer."""

    kind = "unavailable"


class Bug(StationmasterError):
    """A promise inside the product is broken; the message starts with "BUG:"."""

    kind = "bug"
