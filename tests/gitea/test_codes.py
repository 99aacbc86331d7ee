from __future__ import annotations

import re
from pathlib import Path

import pytest

from stationmaster.errors import Bug
from stationmaster.gitea import codes

SPECIFIED = """
invalid_signature duplicate_delivery invalid_payload repository_disabled git_auth_failed workspace_dirty lease_expired
app_server_timeout mcp_command_missing mcp_spawn_failed mcp_handshake_failed interrupted_by_restart abort_timeout
mcp_reply_missing rest_fallback_failed bot_self_comment reply_status_unknown store_unavailable session_unrecoverable
turn_failed empty_instruction foreign_host workspace_conflict workspace_locked git_network_failed git_repo_missing
workspace_path_invalid app_server_unreachable rest_fallback_unconfirmed reply_text_missing lease_lost
illegal_transition capability_downgrade task_not_found request_id_conflict request_in_progress invalid_state
version_conflict invalid_request author_not_allowed author_not_verifiable tools_changed
"""
ONE_RETRY = """
git_auth_failed git_network_failed lease_expired app_server_timeout app_server_unreachable interrupted_by_restart
mcp_reply_missing
"""
NO_RETRY = """
invalid_signature duplicate_delivery invalid_payload repository_disabled mcp_command_missing mcp_spawn_failed
mcp_handshake_failed abort_timeout rest_fallback_failed bot_self_comment reply_status_unknown session_unrecoverable
git_repo_missing workspace_path_invalid author_not_allowed workspace_dirty
"""


@pytest.mark.parametrize("code", SPECIFIED.split())
def test_every_code_of_the_specification_is_registered(code: str) -> None:  # GW-R-213
    assert codes.known(code)


@pytest.mark.parametrize("code", ONE_RETRY.split())
def test_the_failure_matrix_allows_one_retry(code: str) -> None:
    assert codes.retryable(code)


@pytest.mark.parametrize("code", [*NO_RETRY.split(), "never_heard_of"])
def test_the_failure_matrix_allows_no_retry(code: str) -> None:
    assert not codes.retryable(code)


@pytest.mark.parametrize("code", codes.ALL, ids=lambda code: code.id)
def test_a_code_is_stable_lower_case_and_has_words_in_both_languages(code: codes.Code) -> None:  # GW-R-213
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", code.id)
    assert code.en
    assert code.en.isascii()
    assert not code.en.endswith(".")
    assert any("\u4e00" <= char <= "\u9fff" for char in code.zh)
    assert codes.text(code.id, "en") == code.en
    assert codes.text(code.id, "zh") == code.zh
    assert codes.get(code.id) is code


def test_an_unknown_code_never_reaches_a_person() -> None:
    assert not codes.known("sqlite3_OperationalError")
    assert codes.text("sqlite3_OperationalError") == codes.text(codes.INTERNAL_ERROR)
    with pytest.raises(Bug):
        codes.get("sqlite3_OperationalError")


def test_a_code_is_declared_once() -> None:
    with pytest.raises(Bug):
        codes._code("invalid_payload", "x", "无")


def test_constants_are_named_for_their_codes() -> None:
    source = Path(codes.__file__).read_text()
    for name, code in re.findall(r'^([A-Z_]+): Final = _code\(\s*"([a-z0-9_]+)"', source, re.MULTILINE):
        assert name.lower() == code
        assert getattr(codes, name) == code
