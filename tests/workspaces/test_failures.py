from __future__ import annotations

import pytest

from stationmaster import redact
from stationmaster.errors import Busy, NotFound, StationmasterError, Unavailable
from stationmaster.workspaces.failures import Result, error_of, lock_in_the_way, words

_URL = "http://forge.example.test/acme/parcel.git/"


def failed(stderr: str, *, network: bool = True, timed_out: bool = False) -> StationmasterError:
    return error_of(Result(128, "", stderr, timed_out), what="fetch", network=network, seconds=9)


@pytest.mark.parametrize(
    ("stderr", "kind", "code"),
    [
        (f"fatal: Authentication failed for '{_URL}'", Unavailable, "git_auth_failed"),
        ("fatal: could not read Username for 'http://f': terminal prompts disabled", Unavailable, "git_auth_failed"),
        (f"fatal: unable to access '{_URL}': The requested URL returned error: 403", Unavailable, "git_auth_failed"),
        (f"fatal: repository '{_URL}' not found", NotFound, "git_repo_missing"),
        (f"fatal: unable to access '{_URL}': The requested URL returned error: 301", NotFound, "git_repo_missing"),
        ("fatal: couldn't find remote ref refs/pull/9/head", NotFound, "git_ref_missing"),
        (f"fatal: unable to access '{_URL}': Could not resolve host: forge", Unavailable, "git_network_failed"),
        (f"fatal: unable to access '{_URL}': The requested URL returned error: 502", Unavailable, "git_network_failed"),
        ("fatal: the remote end hung up unexpectedly", Unavailable, "git_network_failed"),
        ("error: RPC failed; curl 52 Empty reply from server", Unavailable, "git_network_failed"),
        ("", Unavailable, "git_network_failed"),
        ("fatal: Unable to create '/x/packed-refs.lock': File exists.", Busy, "git_locked"),
    ],
)
def test_network_failures_are_classified(stderr: str, kind: type[StationmasterError], code: str) -> None:  # GW-R-131
    error = failed(stderr)
    assert (type(error), error.code) == (kind, code)
    assert error.hint or code == "git_ref_missing"


def test_a_deadline_is_a_network_failure_only_for_network_commands() -> None:
    assert failed("", timed_out=True).code == "git_network_failed"
    assert failed("", network=False, timed_out=True).code == "git_timeout"
    assert "9 s" in failed("", timed_out=True).message


def test_local_failures_keep_the_words_of_git() -> None:
    error = failed("hint: long advice\nfatal: bad object HEAD\n", network=False)
    assert error.code == "git_failed"
    assert "bad object HEAD" in error.message
    assert "advice" not in error.message


def test_the_lock_of_the_other_side_is_not_ours() -> None:
    theirs = "remote: error: Unable to create '/srv/x/refs/heads/main.lock': File exists."
    assert lock_in_the_way(Result(1, "", theirs)) is None
    ours = "error: could not lock\nfatal: Unable to create '/x/index.lock': File exists.\n\nAnother git process"
    assert lock_in_the_way(Result(128, "", ours)) == "/x/index.lock"
    assert lock_in_the_way(Result(0, "", ours)) is None
    config = "error: could not lock config file /x/config: File exists\n"
    assert lock_in_the_way(Result(255, "", config)) == "/x/config.lock"


def test_words_are_short_printable_and_redacted() -> None:
    redact.register("very-secret-word")
    said = words("remote:\nremote: \x1b[31mnope\x1b[0m\x07 very-secret-word\rerror: " + "x" * 900)
    assert said.startswith("remote: nope [redacted]; error: xxx")
    assert len(said) == 400
    assert said.isprintable()


def test_words_without_a_telling_line_are_kept() -> None:
    assert words("\n something \n\nelse\n") == "something; else"
    assert words("") == ""
