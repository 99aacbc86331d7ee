"""The failure matrix is whole, speaks of what the code knows, and every row is shown by a test of its own."""

from __future__ import annotations

import re

import pytest

from stationmaster.gitea import codes
from stationmaster.gitea.machine import TASK
from tools.failures import Failure, failures

ROWS = failures()
_STATE = re.compile(r"`([a-z_]+)`")


def test_the_table_is_whole() -> None:
    assert [row.id for row in ROWS] == [f"GW-R-{number}" for number in range(191, 213)]


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_a_row_speaks_of_codes_and_states_that_there_are(row: Failure) -> None:
    if row.code:
        assert codes.known(row.code)
        # Only what is marked so may spend the one retry; the others' retries are counted elsewhere.
        elsewhere = {"lease_expired", "interrupted_by_restart", "mcp_reply_missing", "workspace_dirty", "turn_failed"}
        if row.code not in elsewhere:
            assert codes.retryable(row.code) == (row.retries == "1")
    states = {word for word in _STATE.findall(row.becomes) if "." not in word}
    assert states <= TASK.states | {"resume"}


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_a_row_is_shown_by_a_test(row: Failure) -> None:
    assert any("::" in test for test in row.tests), "no test of its own cites it"
