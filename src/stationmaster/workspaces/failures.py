"""What git's last words mean: one of the error kinds, with the words shortened and redacted (GW-R-131).

Pure; git speaks English because the runner sets LC_ALL=C.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stationmaster import redact
from stationmaster.errors import Busy, NotFound, StationmasterError, Unavailable

_LONGEST = 400
_TELLING = ("fatal:", "error:", "remote:", "bwrap:", "!")
_UNPRINTABLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# A line that starts with "remote:" is the other side's lock, which waiting here does not open.
_LOCKED = re.compile(
    r"^(?!remote:).*(?:Unable to create '(?P<path>/[^'\n]+\.lock)'|could not lock config file (?P<config>/[^\n]+)): "
    r"File exists",
    re.MULTILINE,
)
_AUTH = re.compile(
    r"Authentication failed|could not read (Username|Password)|HTTP 40[13]|returned error: 40[13]|Access denied"
)
_MISSING = re.compile(r"repository '[^'\n]*' not found|returned error: 404|does not appear to be a git repository")
_MOVED = re.compile(r"returned error: 30[12378]")
_NO_REF = re.compile(r"couldn't find remote ref")


@dataclass(frozen=True, slots=True)
class Result:
    """How one git command ended. `stdout` keeps bytes that are not UTF-8 as surrogates, so that names survive."""

    code: int
    stdout: str
    stderr: str
    timed_out: bool = False


def lock_in_the_way(result: Result) -> str | None:
    """Returns the path of the local lock that made a command fail, or None."""
    found = _LOCKED.search(result.stderr) if result.code else None
    if found is None:
        return None
    return found["path"] or f"{found['config']}.lock"


def words(text: str) -> str:
    """Returns the telling lines of git's error output as one short, printable, redacted line."""
    lines = [_UNPRINTABLE.sub("", line).strip() for line in text.replace("\r", "\n").split("\n")]
    telling = [line for line in lines if line.startswith(_TELLING) and line != "remote:"] or [
        line for line in lines if line
    ]
    short = redact.clean("; ".join(telling))
    return short if len(short) <= _LONGEST else short[: _LONGEST - 1] + "…"


def error_of(result: Result, *, what: str, network: bool, seconds: float) -> StationmasterError:
    """Turns a failed command into the error to raise; `what` names the git verb."""
    said = words(result.stderr) or f"status {result.code}, no words"
    if result.timed_out:
        return Unavailable(
            f"git {what} did not end within {seconds:g} s.",
            code="git_network_failed" if network else "git_timeout",
            hint="Raise git.timeout_s if the repository is that large.",
        )
    locked = lock_in_the_way(result)
    if locked:
        return Busy(
            f"git {what} met the lock {locked}.",
            code="git_locked",
            hint="If no git command runs there, move the lock file away.",
        )
    return _network_error(what, said) if network else Unavailable(f"git {what} failed: {said}.", code="git_failed")


def _network_error(what: str, said: str) -> StationmasterError:
    if _AUTH.search(said):
        return Unavailable(
            f"The forge refused our credential for git {what}: {said}.",
            code="git_auth_failed",
            hint="Check that the token is valid and that the bot may read and write the repository.",
        )
    if _MOVED.search(said):
        return NotFound(
            f"The forge answered git {what} with a redirect: {said}.",
            code="git_repo_missing",
            hint="The repository was probably renamed; look it up by its id and use its new address.",
        )
    if _NO_REF.search(said):
        return NotFound(f"git {what}: {said}.", code="git_ref_missing")
    if _MISSING.search(said):
        return NotFound(
            f"The forge has no such repository for git {what}: {said}.",
            code="git_repo_missing",
            hint="Check that the repository exists and that the bot may see it.",
        )
    return Unavailable(
        f"git {what} could not finish with the forge: {said}.",
        code="git_network_failed",
        hint="Check the address of the forge and the network between.",
    )
