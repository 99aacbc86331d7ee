from __future__ import annotations

import pytest

from stationmaster import errors as kinds
from stationmaster import redact
from stationmaster.control import errors


def test_every_kind_has_one_meaning_and_its_own_exit_code() -> None:
    every = kinds.StationmasterError.__subclasses__()
    assert {kind.kind for kind in every} == set(errors.MEANINGS)
    codes = [meaning.exit_code for meaning in errors.MEANINGS.values()]
    assert len(set(codes)) == len(codes)
    assert 0 not in codes


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (kinds.Invalid("x"), 400, "invalid_request"),
        (kinds.Denied("x"), 403, "forbidden"),
        (kinds.Denied("x", code="unauthenticated"), 401, "unauthenticated"),
        (kinds.NotFound("x", code="task_not_found"), 404, "task_not_found"),
        (kinds.Stale("x"), 409, "version_conflict"),
        (kinds.Stale("x", code="request_id_conflict"), 409, "request_id_conflict"),
        (kinds.Illegal("x", code="illegal_transition"), 409, "invalid_state"),
        (kinds.Busy("x", code="request_in_progress"), 409, "request_in_progress"),
        (kinds.Unavailable("x", code="store_unavailable"), 503, "store_unavailable"),
        (kinds.Invalid("x", code="payload_too_large"), 413, "payload_too_large"),
        (kinds.Bug("BUG: x"), 500, "internal_error"),
    ],
)
def test_the_table_of_errors(error: kinds.StationmasterError, status: int, code: str) -> None:
    # GW-R-226
    assert errors.status(error) == status
    said = errors.body(error)
    assert said["error"] == code
    back = errors.from_body(status, said)
    assert type(back) is type(error)
    assert errors.exit_code(back) == errors.exit_code(error)


def test_a_body_holds_no_secret_and_a_bug_none_of_our_insides() -> None:
    redact.register("body-secret-1")
    said = errors.body(kinds.Invalid("it is body-secret-1", hint="body-secret-1", task="body-secret-1"))
    assert "body-secret-1" not in str(said)
    assert said["details"] == {"task": "[redacted]"}
    assert "insides" not in str(errors.body(kinds.Bug("BUG: insides")))


def test_when_to_come_back_is_said() -> None:
    assert errors.headers(kinds.Busy("x", retry_after=7.2)) == {"Retry-After": "7"}
    assert errors.headers(kinds.Unavailable("x")) == {"Retry-After": "5"}
    assert errors.headers(kinds.Invalid("x")) == {}


def test_a_strangers_answer_is_no_bug_of_ours() -> None:
    assert errors.from_body(502, None).kind == "unavailable"
