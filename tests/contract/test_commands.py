"""K1 to K4: commands, moves, receipts and the hot door, the same on every database."""

from __future__ import annotations

from typing import Any

import pytest

from stationmaster.command import Cmd
from stationmaster.errors import Bug, Busy, Illegal, Invalid, NotFound, Stale
from stationmaster.ledger import history, receipts
from stationmaster.ledger.ledger import HotTx, Ledger, Reader, Tx
from tests.conftest import LedgerFactory
from tests.ledger import parcels
from tests.ledger.parcels import PARCEL, Q


def cmd(name: str = "parcel.post", dedupe: str | None = None, **refs: str) -> Cmd:
    return Cmd(name, "admin:ann", "test", dedupe, refs)


def post(tx: Tx, parcel: str, *, address: str = "home", berth: str | None = None) -> str:
    tx.born(PARCEL, parcel, "post", address=address, tracking=f"t-{parcel}", attempts=0, berth=berth)
    return parcel


def move(tx: Tx, /, parcel: str, verb: str, rev: int, **cols: Any) -> str:
    return tx.move(PARCEL, parcel, verb, rev=rev, **cols)


def row(reader: Reader, parcel: str) -> dict[str, Any] | None:
    return reader.one(Q.by_id, id=parcel)


@pytest.fixture
def ledger(ledger_factory: LedgerFactory) -> Ledger:
    return ledger_factory([parcels.SLICE])


def test_a_birth_and_a_move_are_journalled_by_the_database(ledger: Ledger) -> None:
    ledger.do(cmd(task="t1"), post, "p1")
    assert ledger.do(cmd("parcel.collect"), move, "p1", "collect", 0, carrier="van") == "travelling"
    found = ledger.read(row, "p1")
    assert found is not None
    assert (found["state"], found["rev"], found["carrier"]) == ("travelling", 1, "van")
    told = ledger.read(history.by_entity, "parcel", "p1")
    assert [(e.rev, e.from_state, e.name, e.to_state, e.command_name, e.actor) for e in told] == [
        (0, "", "post", "posted", "parcel.post", "admin:ann"),
        (1, "posted", "collect", "travelling", "parcel.collect", "admin:ann"),
    ]


def test_two_moves_in_one_command_share_it(ledger: Ledger) -> None:
    def both(tx: Tx) -> None:
        post(tx, "p1")
        move(tx, "p1", "collect", 0)

    ledger.do(cmd(), both)
    told = ledger.read(history.page)
    assert [(e.seq, e.kind, e.command) for e in told] == [(1, "command", 1), (2, "move", 1), (3, "move", 1)]


def test_stale_illegal_and_unknown_rows_leave_nothing(ledger: Ledger) -> None:
    ledger.do(cmd(), post, "p1")
    with pytest.raises(Stale) as stale:
        ledger.do(cmd("x"), move, "p1", "collect", 7)
    assert stale.value.code == "version_conflict"
    with pytest.raises(Illegal):
        ledger.do(cmd("x"), move, "p1", "deliver", 0)
    with pytest.raises(NotFound):
        ledger.do(cmd("x"), move, "p9", "collect", 0)
    assert len(ledger.read(history.page)) == 2


def test_a_body_that_fails_is_undone_whole(ledger: Ledger) -> None:
    # GW-R-008
    def half(tx: Tx) -> None:
        post(tx, "p1")
        tx.event("parcel.seen")
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError):
        ledger.do(cmd(), half)
    assert ledger.read(row, "p1") is None
    assert ledger.read(history.page) == []


def test_a_body_that_wrote_nothing_leaves_no_row(ledger: Ledger) -> None:
    assert ledger.do(cmd(), row, "p1") is None
    assert ledger.read(history.page) == []


def test_a_taken_id_or_unique_key_is_stale(ledger: Ledger) -> None:
    ledger.do(cmd(), post, "p1", berth="b1")
    with pytest.raises(Stale) as taken:
        ledger.do(cmd(), post, "p1")
    assert taken.value.code == "already_exists"
    with pytest.raises(Stale):
        ledger.do(cmd(), post, "p2", berth="b1")
    ledger.do(cmd(), post, "p2")
    ledger.do(cmd(), move, "p1", "collect", 0)
    with pytest.raises(Stale):  # parcel_on_road: one parcel of an address travels at a time
        ledger.do(cmd(), move, "p2", "collect", 0)


def test_a_move_changes_only_what_moves(ledger: Ledger) -> None:
    ledger.do(cmd(), post, "p1")
    with pytest.raises(Bug):
        ledger.do(cmd(), move, "p1", "collect", 0, address="elsewhere")


def test_a_statement_never_writes_guarded_rows_or_history(ledger: Ledger) -> None:
    def force(tx: Tx) -> None:
        tx.run(Q.force_state, id="p1", state="delivered")

    ledger.do(cmd(), post, "p1")
    with pytest.raises(Bug, match="only moves and events do"):  # before the database has to say so
        ledger.do(cmd(), force)


def test_a_command_inside_a_command_is_a_bug(ledger: Ledger) -> None:
    def nested(tx: Tx) -> None:
        ledger.do(cmd(), post, "p2")

    with pytest.raises(Bug):
        ledger.do(cmd(), nested)


def test_the_hot_door_writes_hot_tables_only(ledger: Ledger) -> None:
    def note(hot: HotTx, n: int) -> int:
        return hot.run(Q.add_note, parcel="p1", n=n, words="hello")

    def label(hot: HotTx) -> None:
        hot.run(Q.add_label, parcel="p1", name="fragile")

    assert ledger.hot(note, 1) == 1
    with pytest.raises(Bug):
        ledger.hot(label)
    assert ledger.read(history.page) == []


def test_a_returning_statement_is_a_write(ledger: Ledger) -> None:
    def label(tx: Tx) -> None:
        tx.run(Q.add_label, parcel="p1", name="fragile")

    def take(reader: Reader) -> Any:
        return reader.one(Q.take_label, parcel="p1", name="fragile")

    ledger.do(cmd("label"), label)
    with pytest.raises(Bug):
        ledger.read(take)
    with pytest.raises(Bug):
        ledger.hot(take)
    assert ledger.do(cmd("take"), take) == {"name": "fragile"}
    assert [e.name for e in ledger.read(history.page)] == ["label", "take"]


def test_a_repeat_gets_the_stored_result(ledger: Ledger) -> None:
    first = ledger.do(cmd(dedupe="r1"), post, "p1")
    again = ledger.do(cmd(dedupe="r1"), post, "p1")
    assert first == again == "p1"
    assert len(ledger.read(history.page)) == 2


def test_a_repeat_with_other_arguments_is_a_conflict(ledger: Ledger) -> None:
    ledger.do(cmd(dedupe="r1"), post, "p1")
    with pytest.raises(Stale) as conflict:
        ledger.do(cmd(dedupe="r1"), post, "p2")
    assert conflict.value.code == "request_id_conflict"  # GW-R-224


def test_a_refusal_is_remembered_and_replayed(ledger: Ledger) -> None:
    def refused(tx: Tx) -> None:
        post(tx, "p1")
        raise Invalid("No such street.", code="no_street", hint="Look at the map.", street="x")

    errors = []
    for _ in range(2):
        with pytest.raises(Invalid) as error:
            ledger.do(cmd(dedupe="r1", task="t1"), refused)
        errors.append((error.value.message, error.value.code, error.value.hint, error.value.ids))
    assert errors[0] == errors[1]
    assert ledger.read(row, "p1") is None
    told = ledger.read(history.by_ref, "task", "t1")
    assert [(e.kind, e.name, e.outcome) for e in told] == [
        ("command", "parcel.post", None),
        ("refusal", "parcel.post", "no_street"),
    ]


def test_busy_is_not_remembered(ledger: Ledger) -> None:
    state = {"busy": True}

    def sometimes(tx: Tx) -> str:
        if state["busy"]:
            raise Busy("Later.")
        return post(tx, "p1")

    with pytest.raises(Busy):
        ledger.do(cmd(dedupe="r1"), sometimes)
    state["busy"] = False
    assert ledger.do(cmd(dedupe="r1"), sometimes) == "p1"


def test_an_accepted_request_is_in_progress_until_it_is_finished(ledger: Ledger) -> None:
    def accept(tx: Tx) -> Any:
        receipts.pending(tx)
        return {"accepted": True}

    def finish(tx: Tx) -> None:
        receipts.finish(tx, "parcel.abort", "r1", {"state": "recalled"})

    assert ledger.do(cmd("parcel.abort", "r1"), accept) == {"accepted": True}
    with pytest.raises(Busy) as busy:
        ledger.do(cmd("parcel.abort", "r1"), accept)
    assert busy.value.code == "request_in_progress"  # GW-R-224
    assert [r.dedupe for r in ledger.read(receipts.unfinished)] == ["r1"]
    ledger.do(cmd("parcel.abort.finish"), finish)
    assert ledger.do(cmd("parcel.abort", "r1"), accept) == {"state": "recalled"}
    with pytest.raises(Stale):
        ledger.do(cmd("parcel.abort.finish"), finish)


def test_intents_stay_open_until_their_result(ledger: Ledger) -> None:
    def begin(tx: Tx) -> int:
        return tx.intent("road.send", subject="p1", refs={"parcel": "p1"}, to="home")

    def end(tx: Tx, intent: int, outcome: str) -> int:
        return tx.result(intent, outcome, proof=7)

    intent = ledger.do(cmd(task="t1"), begin)
    opened = ledger.read(history.open_intents, subject="p1")
    assert [(o.seq, o.action, o.data) for o in opened] == [(intent, "road.send", {"to": "home"})]
    ledger.do(cmd(), end, intent, "unknown")
    assert ledger.read(history.open_intents) == []
    ledger.do(cmd(), end, intent, "done")
    assert [e.outcome for e in ledger.read(history.results, intent)] == ["unknown", "done"]
    with pytest.raises((Stale, Bug)):
        ledger.do(cmd(), end, intent, "failed")
    assert [e.name for e in ledger.read(history.by_ref, "parcel", "p1")] == ["road.send.intent"]


def test_a_refused_statement_ends_its_command(ledger: Ledger) -> None:
    def twice(tx: Tx) -> None:
        tx.run(Q.add_label, parcel="p1", name="a")
        with pytest.raises(Stale):
            tx.run(Q.add_label, parcel="p1", name="a")

    def goes_on(tx: Tx) -> None:
        twice(tx)
        tx.event("still.here")

    for body in (twice, goes_on):
        with pytest.raises(Bug):
            ledger.do(cmd(), body)
    assert ledger.read(history.page) == []


def test_more_rows_than_a_command_may_write_is_a_bug(ledger: Ledger) -> None:
    def many(tx: Tx) -> None:
        for n in range(201):
            tx.run(Q.add_label, parcel="p1", name=str(n))

    with pytest.raises(Bug):
        ledger.do(cmd(), many)


def test_nothing_differs_from_the_code_and_every_command_is_sealed(ledger: Ledger) -> None:
    def refused(tx: Tx) -> None:
        raise Invalid("No.")

    ledger.do(cmd(), post, "p1")
    with pytest.raises(Invalid):
        ledger.do(cmd(dedupe="r1"), refused)
    assert len([e for e in ledger.read(history.page) if e.kind == "command"]) == 2
    assert ledger.verify() == []
