"""K14: one history, one order, found by correlation id."""

from __future__ import annotations

import pytest

from stationmaster import redact
from stationmaster.command import Cmd
from stationmaster.ledger import history
from stationmaster.ledger.ledger import Ledger, Tx
from tests.conftest import LedgerFactory
from tests.contract.test_commands import cmd, move, post
from tests.ledger import parcels


@pytest.fixture
def ledger(ledger_factory: LedgerFactory) -> Ledger:
    return ledger_factory([parcels.SLICE])


def seen(tx: Tx, /, **refs: str) -> int:
    return tx.event("parcel.seen", refs=refs, where="gate")


def test_everything_about_one_id_in_order(ledger: Ledger) -> None:
    ledger.do(cmd(task="t1"), post, "p1")
    ledger.do(cmd(task="t2"), post, "p2", address="away")
    ledger.do(cmd("parcel.collect", task="t1"), move, "p1", "collect", 0)
    ledger.do(cmd("look"), seen, task="t1")
    entries = ledger.read(history.by_ref, "task", "t1")
    assert [(e.kind, e.name, e.command_name) for e in entries] == [
        ("command", "parcel.post", "parcel.post"),
        ("move", "post", "parcel.post"),
        ("command", "parcel.collect", "parcel.collect"),
        ("move", "collect", "parcel.collect"),
        ("observation", "parcel.seen", "look"),
    ]
    assert [e.seq for e in entries] == sorted(e.seq for e in entries)
    rest = ledger.read(history.by_ref, "task", "t1", after=entries[1].seq, limit=2)
    assert [e.seq for e in rest] == [e.seq for e in entries[2:4]]


def test_a_row_met_through_two_refs_appears_once(ledger: Ledger) -> None:
    ledger.do(cmd("look", task="t1"), seen, task="t1")
    assert len(ledger.read(history.by_ref, "task", "t1")) == 2


def test_a_ref_may_have_several_values(ledger: Ledger) -> None:
    seq = ledger.do(Cmd("look", "system", "test", refs={"task": ("t1", "t2", "t1")}), seen)
    for task in ("t1", "t2"):
        assert [e.seq for e in ledger.read(history.by_ref, "task", task)][-1] == seq
    found = ledger.read(history.entry, seq)
    assert found is not None
    assert ledger.read(history.refs, found.command) == {"task": ["t1", "t2"]}


def test_pages_cover_the_whole_history_once(ledger: Ledger) -> None:
    for number in range(5):
        ledger.do(cmd(), post, f"p{number}", address=f"a{number}")
    met: list[int] = []
    while entries := ledger.read(history.page, after=met[-1] if met else 0, limit=3):
        met += [e.seq for e in entries]
    assert met == list(range(1, 11))
    assert ledger.read(history.horizon) == 10
    assert [e.kind for e in ledger.read(history.by_command, 1)] == ["command", "move"]


def test_event_data_holds_no_secret(ledger: Ledger) -> None:
    secret = 'hush "quoted" ü-77'
    redact.register(secret)

    def leak(tx: Tx) -> int:
        return tx.event("leak", said=f"it is {secret}.", deep={"list": [secret], "n": 3})

    entry = ledger.read(history.entry, ledger.do(cmd(), leak))
    assert entry is not None
    assert entry.data == {"said": f"it is {redact.MASK}.", "deep": {"list": [redact.MASK], "n": 3}}


def test_a_refusal_is_an_event_with_its_code(ledger: Ledger) -> None:
    def refuse(tx: Tx) -> int:
        return tx.refusal("delivery.take", "bad_signature", source="1.2.3.4")

    entry = ledger.read(history.entry, ledger.do(cmd(), refuse))
    assert entry is not None
    assert (entry.kind, entry.outcome, entry.data) == ("refusal", "bad_signature", {"source": "1.2.3.4"})
