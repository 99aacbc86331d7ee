"""The one table from error kinds to HTTP statuses and exit codes, and the wire form of an error (GW-R-226)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stationmaster import redact
from stationmaster.errors import Bug, Busy, StationmasterError, Unavailable


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a kind is to a door; `code` stands in where the error names none of its own."""

    status: int
    exit_code: int
    code: str


MEANINGS = {
    "invalid": Meaning(400, 2, "invalid_request"),
    "denied": Meaning(403, 3, "forbidden"),
    "not_found": Meaning(404, 4, "not_found"),
    "stale": Meaning(409, 5, "version_conflict"),
    "illegal": Meaning(409, 6, "invalid_state"),
    "busy": Meaning(409, 7, "busy"),
    "unavailable": Meaning(503, 8, "unavailable"),
    "bug": Meaning(500, 70, "internal_error"),
}

# Where a code asks for another status than its kind, the specification's word wins.
_STATUS_OF_CODE = {"unauthenticated": 401, "payload_too_large": 413}
_KINDS = {kind.kind: kind for kind in StationmasterError.__subclasses__()}
_WIRE_CODE = {"illegal_transition": "invalid_state"}


def status(error: StationmasterError) -> int:
    """Returns the HTTP status of an error."""
    return _STATUS_OF_CODE.get(error.code, MEANINGS[error.kind].status)


def exit_code(error: StationmasterError) -> int:
    """Returns the exit code of an error."""
    return MEANINGS[error.kind].exit_code


def body(error: StationmasterError) -> dict[str, Any]:
    """Returns `{error, message, hint?, details?}`; the message is whole, the hint is its last part once more.

    The kind travels too, so that a command line can tell its exit code.
    """
    if error.kind == "bug":
        # Its words are for us: they may name insides that are none of a caller's business.
        return {"error": "internal_error", "kind": "bug", "message": "Stationmaster made a mistake; see its log."}
    code = error.code if error.code != error.kind else MEANINGS[error.kind].code
    said: dict[str, Any] = {
        "error": _WIRE_CODE.get(code, code),
        "kind": error.kind,
        "message": redact.clean(str(error)),
    }
    if error.hint:
        said["hint"] = redact.clean(error.hint)
    details = {name: redact.clean(str(value)) for name, value in error.ids.items() if value is not None}
    if details:
        said["details"] = details
    return said


def from_body(http_status: int, said: Any) -> StationmasterError:
    """Makes the error that an answer over the control socket stood for."""
    if not isinstance(said, dict):
        return Unavailable(f"Stationmaster answered {http_status} in a form that is not its own.")
    made = _KINDS.get(str(said.get("kind")), Bug)
    hint = str(said.get("hint", ""))
    error = made(str(said.get("message", "")).removesuffix(hint).rstrip(), code=str(said.get("error", "")), hint=hint)
    details = said.get("details")
    error.ids = dict(details) if isinstance(details, dict) else {}
    return error


def headers(error: StationmasterError) -> dict[str, str]:
    """Returns the headers that belong to an error: when to try again, how to log in."""
    if isinstance(error, Busy):
        return {"Retry-After": str(max(1, round(error.retry_after)))}
    if error.kind == "unavailable":
        return {"Retry-After": "5"}
    if error.code == "unauthenticated":
        return {"WWW-Authenticate": "Bearer"}
    return {}
