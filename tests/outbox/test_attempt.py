from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from stationmaster.clock import ManualClock
from stationmaster.command import Cmd
from stationmaster.control.dispatch import Dispatch
from stationmaster.errors import Stale
from stationmaster.ledger import history
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.ledger import Ledger
from stationmaster.ledger.tx import Reader, Tx
from stationmaster.outbox import tries
from stationmaster.outbox.attempt import Attempt, attempt
from stationmaster.outbox.channel import Absent, Done, Refused, Unknown, Unreadable
from tests.conftest import LedgerFactory, PostgresServer
from tests.outbox.letters import GRACE_S, LEASE, SLICE, Letter, Letters, Office, write

KEY = "letter_1"


@dataclass
class Hand:
    """Holds the lease of the round."""

    post: Post
    lease: Lease

    async def check(self) -> None:
        await self.post.port.read(leases.held, self.lease)


@dataclass
class Post:
    """A ledger with one letter, and the other side."""

    port: Dispatch
    clock: ManualClock
    office: Office
    channel: Letters

    async def attempt(self, hold: Hand | None = None) -> Attempt[Letter]:
        return await attempt(self.port, self.channel, KEY, hold=hold)

    async def write(self, term: int | None = None) -> None:
        await self.port.do(Cmd("letter.write", "system", "test"), write, KEY, term)

    async def hold(self) -> Hand:
        cmd = Cmd("round.take", "system", "test")
        return Hand(self, await self.port.do(cmd, _take))

    async def release(self, hold: Hand) -> None:
        await self.port.do(Cmd("round.end", "system", "test"), _release, hold.lease)

    async def tries(self) -> list[tuple[str | None, str | None]]:
        return [(each.outcome, each.code) for each in await self.port.read(tries.of, "letter", KEY)]

    async def open_intents(self) -> int:
        return len(await self.port.read(_open))

    async def names(self) -> list[str]:
        found = await self.port.read(history.by_ref, "letter", KEY)
        return [f"{each.name}:{each.outcome or ''}" for each in found if each.kind != "command"]


def _open(reader: Reader) -> list[history.OpenIntent]:
    return history.open_intents(reader, subject=KEY)


def _take(tx: Tx) -> Lease:
    kind, key = LEASE
    got = leases.acquire(tx, kind=kind, key=key, owner="w", incarnation="w1", subject="s", ttl_s=60)
    assert got is not None
    return got


def _release(tx: Tx, lease: Lease) -> None:
    leases.release(tx, lease)


@pytest.fixture
def post(ledger_factory: LedgerFactory, clock: ManualClock) -> Iterator[Post]:
    office = Office()
    port = Dispatch(ledger_factory([SLICE]), threads=2)
    yield Post(port, clock, office, Letters(office))
    port.close()


async def test_a_letter_is_intended_sent_and_proven(post: Post) -> None:
    await post.write()
    done = await post.attempt()
    assert (done.how, done.row.state, done.row.native_id) == ("proven", "confirmed", 1)  # GW-R-138
    # GW-R-227: the intent stands before the act, its result after.
    assert await post.names() == ["letter.intent:", "letter.result:done", "deliver:", "confirm:"]
    assert await post.open_intents() == 0


async def test_what_has_ended_is_left_alone(post: Post) -> None:
    await post.write()
    await post.attempt()
    again = await post.attempt()
    assert (again.how, post.office.sends) == ("proven", 1)


async def test_a_word_of_the_other_side_is_no_proof(post: Post) -> None:
    await post.write()
    post.office.takes = False
    done = await post.attempt()
    # GW-R-004: 2xx sets `sent`, only a read-back confirms; three reads look for it.
    assert (done.how, done.row.state, post.office.reads) == ("delivered", "sent", 3)
    post.office.arrived.append(KEY)
    assert (await post.attempt()).row.state == "confirmed"
    assert post.office.sends == 1


async def test_a_refusal_ends_the_letter(post: Post) -> None:
    await post.write()
    post.office.takes, post.office.answer = False, lambda _: Refused("forbidden", "not here")
    done = await post.attempt()
    assert (done.how, done.row.state, done.row.error_code) == ("refused", "failed", "forbidden")
    assert await post.tries() == [("failed", "forbidden")]


async def test_what_did_not_leave_stays_to_be_sent(post: Post) -> None:
    await post.write()
    post.office.takes, post.office.answer = False, lambda _: Unknown("unreachable", sent=False)
    done = await post.attempt()
    assert (done.how, done.row.state, post.office.reads) == ("not_sent", "pending", 0)
    post.office.takes, post.office.answer = True, Done
    assert (await post.attempt()).row.state == "confirmed"
    assert await post.tries() == [("not_sent", "unreachable"), ("done", None)]


async def test_an_unknown_outcome_is_read_back_at_once(post: Post) -> None:
    await post.write()
    post.office.answer = lambda _: Unknown("timeout")
    done = await post.attempt()
    assert (done.how, done.row.state, post.office.sends) == ("proven", "confirmed", 1)
    assert await post.tries() == [("done", None)]


async def test_an_unknown_outcome_is_not_repeated_while_it_may_still_come(post: Post) -> None:
    await post.write()
    post.office.takes, post.office.answer = False, lambda _: Unknown("timeout")
    assert (await post.attempt()).how == "unknown"
    early = await post.attempt()
    assert (early.how, early.row.state, post.office.sends) == ("too_early", "pending", 1)
    post.office.arrived.append(KEY)
    assert (await post.attempt()).row.state == "confirmed"
    assert post.office.sends == 1
    # GW-R-189: what became of it is written behind the unknown.
    assert await post.tries() == [("done", "timeout")]


async def test_what_is_proven_absent_is_sent_once_more_and_no_more(post: Post) -> None:
    await post.write()
    post.office.takes, post.office.answer = False, lambda _: Unknown("timeout")
    await post.attempt()
    post.clock.advance(GRACE_S)
    assert (await post.attempt()).how == "unknown"
    post.clock.advance(GRACE_S)
    done = await post.attempt()
    # GW-R-188: definitively absent → send once.
    assert (done.how, done.row.state, post.office.sends) == ("absent", "failed", 2)
    assert [outcome for outcome, _ in await post.tries()] == ["absent", "absent"]
    assert await post.open_intents() == 0


async def test_what_its_owner_decides_about_is_left(post: Post) -> None:
    await post.write()
    post.channel.mine, post.channel.most = True, 1
    post.office.takes, post.office.answer = False, lambda _: Unknown("answered")
    await post.attempt()
    done = await post.attempt()
    assert (done.how, done.row.state, post.office.sends) == ("absent", "pending", 1)


async def test_what_cannot_be_read_is_not_taken_for_absent(post: Post) -> None:
    await post.write()
    post.office.sight, post.office.answer = Unreadable("timeout"), lambda _: Unknown("timeout")
    await post.attempt()
    post.clock.advance(GRACE_S)
    done = await post.attempt()
    assert (done.how, done.code, done.row.state, post.office.sends) == ("unreadable", "timeout", "pending", 1)


async def test_a_try_without_a_result_is_read_back_first(post: Post) -> None:
    await post.write()

    async def die() -> None:
        post.office.arrived.append(KEY)
        raise asyncio.CancelledError

    post.office.during = die
    with pytest.raises(asyncio.CancelledError):
        await post.attempt()
    assert await post.tries() == [(None, None)]
    post.office.during = None
    done = await post.attempt()
    assert (done.row.state, post.office.sends) == ("confirmed", 1)
    assert (await post.tries(), await post.open_intents()) == ([("done", None)], 0)


async def test_a_try_that_died_before_its_act_is_made_again_after_a_while(post: Post) -> None:
    await post.write()

    async def die() -> None:
        raise asyncio.CancelledError

    post.office.during = die
    with pytest.raises(asyncio.CancelledError):
        await post.attempt()
    post.office.during = None
    assert (await post.attempt()).how == "too_early"
    post.clock.advance(GRACE_S)
    assert (await post.attempt()).row.state == "confirmed"
    assert [outcome for outcome, _ in await post.tries()] == ["absent", "done"]


async def test_of_many_at_the_same_time_one_sends(post: Post) -> None:
    await _race(post)


async def test_of_many_at_the_same_time_one_sends_on_postgresql(postgres: PostgresServer) -> None:
    with Ledger.open(postgres.settings(), [SLICE], clock=ManualClock()) as ledger:
        office = Office()
        port = Dispatch(ledger, threads=2)
        try:
            await _race(Post(port, ManualClock(), office, Letters(office)))
        finally:
            port.close()


async def _race(post: Post) -> None:
    """Eight who know nothing of one another."""
    await post.write()
    others = [Dispatch(post.port.ledger, threads=1) for _ in range(7)]
    try:
        done = await asyncio.gather(*(attempt(port, post.channel, KEY) for port in (post.port, *others)))
    finally:
        for port in others:
            port.close()
    assert post.office.sends == 1
    assert {each.how for each in done} <= {"proven", "elsewhere", "too_early"}
    assert (await post.attempt()).row.state == "confirmed"


async def test_a_read_back_by_somebody_else_does_not_disturb_the_sender(post: Post) -> None:
    await post.write()

    async def other() -> None:
        post.office.arrived.append(KEY)
        post.office.takes = False
        assert (await post.attempt()).row.state == "confirmed"

    post.office.during = other
    done = await post.attempt()
    assert (done.how, done.row.state) == ("proven", "confirmed")
    assert await post.tries() == [("done", None)]


async def test_under_a_lost_lease_nothing_is_intended(post: Post) -> None:
    hold = await post.hold()
    await post.write(hold.lease.term)
    await post.release(hold)
    post.channel.mine = True
    done = await post.attempt(hold)
    # GW-R-121: a stale worker posts nothing.
    assert (done.how, done.code, post.office.sends) == ("barred", "lease_lost", 0)
    await post.hold()
    with pytest.raises(Stale) as stale:
        await attempt(post.port, Letters(post.office), await _free_letter(post), hold=hold)
    assert (stale.value.code, post.office.sends) == ("lease_lost", 0)


async def _free_letter(post: Post) -> str:
    await post.port.do(Cmd("letter.write", "system", "test"), write, "letter_2", None)
    return "letter_2"


async def test_a_lease_lost_between_intent_and_send_stops_the_send(post: Post) -> None:
    hold = await post.hold()
    await post.write(hold.lease.term)

    class Losing(Hand):
        async def check(self) -> None:
            await self.post.release(self)
            await super().check()

    with pytest.raises(Stale):
        await post.attempt(Losing(post, hold.lease))
    assert post.office.sends == 0
    assert await post.tries() == [("not_sent", "lease_lost")]


async def test_a_letter_of_a_dead_term_is_not_sent(post: Post) -> None:
    hold = await post.hold()
    await post.write(hold.lease.term)
    await post.release(hold)
    await post.hold()
    done = await post.attempt()
    assert (done.how, done.row.state, done.row.error_code) == ("barred", "failed", "lease_lost")
    assert post.office.sends == 0


async def test_a_letter_of_a_dead_term_that_left_is_read_back(post: Post) -> None:
    hold = await post.hold()
    await post.write(hold.lease.term)
    post.office.answer = lambda _: Unknown("timeout")
    post.office.sight = Absent()
    assert (await post.attempt(hold)).how == "unknown"
    await post.release(hold)
    post.office.sight = None
    done = await post.attempt()
    assert (done.row.state, post.office.sends) == ("confirmed", 1)


async def test_a_letter_of_the_current_term_may_be_sent_by_anybody(post: Post) -> None:
    hold = await post.hold()
    await post.write(hold.lease.term)
    assert (await post.attempt()).row.state == "confirmed"


async def test_what_must_not_be_sent_any_more_fails(post: Post) -> None:
    await post.write()
    post.channel.bar = "too_late"
    done = await post.attempt()
    assert (done.how, done.row.error_code, post.office.sends) == ("barred", "too_late", 0)


async def test_doubles_are_noted(post: Post) -> None:
    await post.write()
    post.office.arrived += [KEY, KEY]
    done = await post.attempt()
    # The first that is seen counts.
    assert done.row.native_id == 1
    assert "letter.doubled:" in await post.names()
