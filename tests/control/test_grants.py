from __future__ import annotations

import pytest

from stationmaster.command import Principal
from stationmaster.control import grants
from stationmaster.errors import Bug, Denied


def test_a_grant_cannot_be_made_up() -> None:
    for kind in (grants.Read, grants.Operate, grants.Own):
        with pytest.raises(Bug):
            kind(Principal("admin:me"), object())


def test_a_key_grants_what_it_was_made_for() -> None:
    reader, operator = grants.of_key("ann", "read"), grants.of_key("bob", "operate")
    assert grants.need(reader, grants.Read).principal.actor == "admin:ann"
    assert grants.need(operator, grants.Operate).principal.actor == "admin:bob"
    for grant, wanted in ((reader, grants.Operate), (operator, grants.Own)):
        with pytest.raises(Denied) as caught:
            grants.need(grant, wanted)
        assert caught.value.code == "forbidden"


def test_nobody_is_asked_to_log_in() -> None:
    with pytest.raises(Denied) as caught:
        grants.need(None, grants.Read)
    assert caught.value.code == "unauthenticated"
