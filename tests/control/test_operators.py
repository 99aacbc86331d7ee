from __future__ import annotations

from collections.abc import Callable

import pytest

from stationmaster.command import Cmd
from stationmaster.control import operators
from stationmaster.errors import Invalid, NotFound
from stationmaster.ledger.ledger import Ledger
from tests.control.conftest import CONTROL

CMD = Cmd("operator.add", "admin:test", "test")


@pytest.fixture
def ledger(ledger_factory: Callable[..., Ledger]) -> Ledger:
    return ledger_factory([CONTROL])


def test_a_key_opens_until_it_is_revoked(ledger: Ledger) -> None:
    key = operators.new_key()
    ledger.do(CMD, operators.add, "ann", "read", operators.key_hash(key))
    found = ledger.read(operators.find, key)
    assert found is not None
    assert (found["name"], found["scope"]) == ("ann", "read")
    assert ledger.read(operators.find, operators.new_key()) is None
    ledger.do(CMD, operators.revoke, "ann")
    assert ledger.read(operators.find, key) is None


def test_a_name_has_one_active_key_and_may_have_another_later(ledger: Ledger) -> None:
    ledger.do(CMD, operators.add, "ann", "operate", "h1")
    with pytest.raises(Invalid, match="There is an active key called ann"):
        ledger.do(CMD, operators.add, "ann", "operate", "h2")
    ledger.do(CMD, operators.revoke, "ann")
    with pytest.raises(NotFound, match="There is no active key called ann"):
        ledger.do(CMD, operators.revoke, "ann")
    ledger.do(CMD, operators.add, "ann", "operate", "h3")
    assert [row["state"] for row in ledger.read(operators.every)] == ["revoked", "active"]


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "a\n", "ü", "a" * 41, "../x"])
def test_a_name_is_plain(ledger: Ledger, name: str) -> None:
    with pytest.raises(Invalid):
        ledger.do(CMD, operators.add, name, "operate", "h")


def test_the_key_itself_is_kept_nowhere(ledger: Ledger, tmp_path_factory: pytest.TempPathFactory) -> None:
    key = operators.new_key()
    ledger.do(CMD, operators.add, "ann", "operate", operators.key_hash(key))
    rows = ledger.read(operators.every)
    assert key not in str(rows)
    assert operators.key_hash(key) not in str(rows)
