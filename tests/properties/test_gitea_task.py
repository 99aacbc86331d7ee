"""The task machine driven at random through its verbs, beside a model of a few lines.

Whatever is asked, claimed, moved, lost, cancelled and waited for, in whatever order: states, budgets and leases are
those of the model, what the model refuses changes nothing, and no task that could be claimed is ever overlooked.
"""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from stationmaster.clock import ManualClock
from stationmaster.errors import Illegal, Stale
from stationmaster.gitea import actions, codes, store
from stationmaster.gitea.model import LEASE_KIND
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from tests.gitea.rig import Rig, elsewhere, told
from tests.gitea.test_machine import EDGES, TERMINAL

ACTIVE = {"preparing", "running", "verifying_reply", "aborting"}
BADLY = {"failed", "failed_reply", "aborted"}
TTL, DELAY = 90, 30
REPOS = [(201, "acme", "one"), (202, "acme", "two")]
pick = st.integers(0, 999)


@dataclass
class Thing:
    """What the model knows of a task."""

    id: str
    repo: int
    issue: int
    state: str = "queued"
    attempt: int = 0
    reply_attempt: int = 0
    unblocks: int = 0
    purpose: str | None = None
    due: int = 0
    told: bool = False


@dataclass
class Place:
    """What the model knows of a repository."""

    state: str = "active"
    holder: Thing | None = None
    lease: Lease | None = None
    until: int = 0
    home: str | None = None
    things: list[Thing] = field(default_factory=list)


# What the holder of a lease may do: the verb, from where, whereto, and whether the lease is given back.
HELD: dict[str, tuple[set[str], str, bool]] = {
    "start": ({"preparing"}, "running", False),
    "verify": ({"running"}, "verifying_reply", False),
    "block": ({"preparing"}, "blocked_workspace", True),
    "wait": ({"running"}, "waiting_user", True),
    "fail": ({"preparing", "running", "aborting"}, "failed", True),
    "confirm": ({"verifying_reply"}, "succeeded", True),
    "confirm_fallback": ({"verifying_reply"}, "succeeded_with_rest_fallback", True),
    "fail_reply": ({"verifying_reply"}, "failed_reply", True),
    "stop": ({"aborting"}, "aborted", True),
}
# What a worker comes to next, the ordinary course more often.
NEXT = {
    "preparing": ("start", "start", "start", "retry", "block", "fail"),
    "running": ("verify", "wait", "verify", "retry", "abort", "fail"),
    "verifying_reply": ("confirm", "reply", "verification", "confirm_fallback", "fail_reply"),
    "aborting": ("stop", "fail"),
}


class Tasks(RuleBasedStateMachine):
    """Two repositories with two issues each, two workers, an operator and time."""

    def __init__(self) -> None:
        super().__init__()
        # In memory where the system has such a place: nothing here is about the disk.
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="stationmaster-property-", dir=memory))
        self.clock = ManualClock()
        self.rig = Rig.on(self.folder / "ledger.db", self.clock)
        self.time = 0
        self.paused = False
        self.places = [Place(), Place()]
        self.old: list[tuple[Thing, Lease]] = []

    def teardown(self) -> None:
        self.work_off()
        self.look_back()
        self.rig.close()
        shutil.rmtree(self.folder)

    # --- the model -----------------------------------------------------------------------------------------------

    @property
    def things(self) -> list[Thing]:
        return [thing for place in self.places for thing in place.things]

    def held(self, place: Place) -> bool:
        return place.lease is not None and self.time < place.until

    def held_up(self, thing: Thing) -> bool:
        """Tells whether an older task of the same issue is under way."""
        of_place = self.places[thing.repo].things
        older = [each for each in of_place[: of_place.index(thing)] if each.issue == thing.issue]
        return any(each.state not in TERMINAL | {"waiting_user"} for each in older)

    def first(self, place: Place) -> Thing | None:
        ready = (each for each in place.things if each.state in {"queued", "retry_wait"} and each.due <= self.time)
        return next((each for each in ready if not self.held_up(each)), None)

    def refused(self, kind: type[Exception] | tuple[type[Exception], ...], act: Callable[[], object]) -> None:
        try:
            act()
        except kind:
            return
        raise AssertionError("it was not refused")

    def rest(self, thing: Thing, state: str) -> None:
        """Moves a thing to where nobody works on it, and gives its lease back."""
        place = self.places[thing.repo]
        thing.state, place.lease, place.holder = state, None, None

    # --- people --------------------------------------------------------------------------------------------------

    @rule(repo=st.integers(0, 1), issue=st.integers(1, 2), may=st.sampled_from(["write", "write", "read"]))
    def somebody_asks(self, repo: int, issue: int, may: str) -> None:
        comment = 10_000 + next(self.rig._numbers)
        reply = self.rig.take(told(number=issue, comment_id=comment, repo=REPOS[repo], may=may))
        place = self.places[repo]
        if place.state == "disabled":
            assert (reply.status, reply.task_id) == (409, None)
            return
        assert reply.status == 202
        waiting = [each for each in place.things if each.issue == issue and each.state == "waiting_user"]
        if waiting and may == "write":
            thing = waiting[-1]
            thing.state, thing.attempt, thing.reply_attempt, thing.purpose, thing.due = "queued", 0, 0, None, self.time
            assert reply.task_id == thing.id
        else:
            assert reply.task_id is not None
            place.things.append(Thing(reply.task_id, repo, issue, due=self.time))

    @precondition(lambda self: self.things)
    @rule(which=pick, verb=st.sampled_from(["cancel", "unblock", "abort"]))
    def an_operator_asks(self, which: int, verb: str) -> None:
        thing = self.things[which % len(self.things)]
        ways = {"cancel": {"queued", "waiting_user", "blocked_workspace"}, "unblock": {"blocked_workspace"}}
        ways["abort"] = {"running"}
        cols: dict[str, Any] = {"unblock_attempt": thing.unblocks + 1} if verb == "unblock" else {}
        if thing.state not in ways[verb]:
            self.refused(Illegal, lambda: self.rig.step(thing.id, verb, **cols))
            return
        self.rig.step(thing.id, verb, **cols)
        thing.state = {"cancel": "cancelled", "unblock": "queued", "abort": "aborting"}[verb]
        thing.unblocks += verb == "unblock"
        thing.due = self.time

    @rule(really=st.integers(0, 4))
    def somebody_pauses(self, really: int) -> None:
        if self.paused or really == 0:
            self.pause_or_resume()

    def pause_or_resume(self) -> None:
        self.rig.pause("resume" if self.paused else "pause")
        self.paused = not self.paused

    @precondition(lambda self: any(place.things for place in self.places))
    @rule(repo=st.integers(0, 1), verb=st.sampled_from(["enable", "unblock", "disable", "enable", "block", "unblock"]))
    def a_repository_is_switched(self, repo: int, verb: str) -> None:
        place = self.places[repo]
        if not place.things:
            return
        repository_id = self.rig.task(place.things[0].id).repository_id
        edges = {
            "disable": ({"active", "blocked"}, "disabled"),
            "enable": ({"disabled"}, "active"),
            "block": ({"active"}, "blocked"),
            "unblock": ({"blocked"}, "active"),
        }
        if place.state not in edges[verb][0]:
            self.refused(Illegal, lambda: self.rig.switch(repository_id, verb))
            return
        self.rig.switch(repository_id, verb)
        place.state = edges[verb][1]

    # --- workers -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.things)
    @rule(repo=st.integers(0, 1), worker=st.sampled_from(["home", "other"]))
    def somebody_claims(self, repo: int, worker: str) -> None:
        self.claim(repo, worker)

    def claim(self, repo: int, worker: str) -> Thing | None:
        place = self.places[repo]
        if not place.things:
            return None
        free = not self.paused and place.state == "active" and place.home in {None, worker} and not self.held(place)
        busy = any(each.state in ACTIVE for each in place.things)
        thing = self.first(place) if free and not busy else None
        got = self.rig.claim(place.things[0].id, elsewhere(worker))
        if thing is None:
            assert got is None
            return None
        assert got is not None
        ways = {"reply": "running", "verification": "verifying_reply"}
        thing.state = "preparing" if thing.state == "queued" else ways.get(thing.purpose or "", "preparing")
        assert (got[0].id, got[0].state) == (thing.id, thing.state)
        self.hold(thing, got[1])
        place.home = worker
        return thing

    def hold(self, thing: Thing, lease: Lease) -> None:
        place = self.places[thing.repo]
        place.holder, place.lease, place.until = thing, lease, self.time + TTL
        self.old.append((thing, lease))

    def working(self) -> list[Place]:
        return [place for place in self.places if self.held(place)]

    @rule(repo=st.integers(0, 1), which=pick)
    def work_goes_on(self, repo: int, which: int) -> None:
        """Claims what is free, or does one of the things that its holder may do."""
        place = self.places[repo]
        if not self.held(place):
            if which % 4:
                self.clear_the_way(repo)
            self.claim(repo, place.home or "home")
            return
        thing, lease = place.holder, place.lease
        assert thing is not None
        assert lease is not None
        verb = NEXT[thing.state][which % len(NEXT[thing.state])]
        if verb == "retry":
            self.meet_a_failure(thing, lease)
        elif verb in {"reply", "verification"}:
            self.put_back(thing, lease, verb, delay=40 * (which % 2))
        elif verb == "abort":
            self.an_operator_asks(self.things.index(thing), "abort")
        else:
            self.move_on(thing, lease, verb)

    @rule(seed=st.integers(0, 2**32))
    def life_goes_on(self, seed: int) -> None:
        """Does a dozen ordinary things, so that every state is reached often."""
        some = random.Random(seed)
        for _ in range(12):
            if some.random() < 0.2:
                self.somebody_asks(some.randrange(2), some.choice((1, 2)), "write")
            self.work_goes_on(some.randrange(2), some.randrange(1000))

    def clear_the_way(self, repo: int) -> None:
        place = self.places[repo]
        if self.paused:
            self.pause_or_resume()
        if place.state != "active":
            self.a_repository_is_switched(repo, "enable" if place.state == "disabled" else "unblock")
        if place.things and self.first(place) is None:
            self.time_passes(31)
            for thing in place.things:
                if thing.state in ACTIVE:
                    self.settle(thing)

    @precondition(lambda self: self.working())
    @rule(which=pick, verb=st.sampled_from(sorted(HELD)))
    def a_worker_tries_what_is_no_edge(self, which: int, verb: str) -> None:
        place = self.working()[which % len(self.working())]
        thing, lease = place.holder, place.lease
        assert thing is not None
        assert lease is not None
        if thing.state not in HELD[verb][0]:
            self.refused(Illegal, lambda: self.rig.leave(thing.id, verb, lease))

    def move_on(self, thing: Thing, lease: Lease, verb: str) -> None:
        _, to, rests = HELD[verb]
        (self.rig.leave if rests else self.rig.advance)(thing.id, verb, lease)
        if rests:
            self.rest(thing, to)
        thing.state = to

    def meet_a_failure(self, thing: Thing, lease: Lease) -> None:  # GW-R-107
        self.rig.give_up(thing.id, codes.APP_SERVER_TIMEOUT, lease)
        again = thing.attempt == 0
        self.rest(thing, "retry_wait" if again else "failed")
        if again:
            thing.attempt, thing.purpose, thing.due = 1, "execution", self.time + DELAY

    def put_back(self, thing: Thing, lease: Lease, purpose: Any, *, delay: int) -> None:
        cols = {"reply_attempt": thing.reply_attempt + 1} if purpose == "reply" else {}
        self.rig.postpone(thing.id, purpose, lease, delay_s=delay, **cols)
        self.rest(thing, "retry_wait")
        thing.reply_attempt += purpose == "reply"
        thing.purpose, thing.due = purpose, self.time + delay

    @precondition(lambda self: self.old)
    @rule(which=pick, verb=st.sampled_from(["verify", "wait", "fail", "release"]))
    def a_stale_worker_tries(self, which: int, verb: str) -> None:  # GW-R-121, GW-R-252
        thing, lease = self.old[which % len(self.old)]
        place = self.places[thing.repo]
        if place.lease == lease:
            if self.held(place) or verb == "release":
                return
        elif verb == "release":
            assert self.rig.do(leases.release, lease) is False
            return
        self.refused(Stale, lambda: self.rig.leave(thing.id, verb, lease))

    @precondition(lambda self: self.working())
    @rule(which=pick)
    def a_heart_beats(self, which: int) -> None:
        place = self.working()[which % len(self.working())]
        assert place.lease is not None
        self.rig.ledger.hot(leases.heartbeat, place.lease, TTL)
        place.until = self.time + TTL

    @rule(seconds=st.sampled_from([1, 31, 91]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.time += seconds

    @rule()
    def lapsed_leases_are_freed(self) -> None:
        gone = {lease.lease_id for lease in self.rig.do(leases.expire, LEASE_KIND)}
        lapsed = {place.lease.lease_id for place in self.places if place.lease is not None and not self.held(place)}
        assert gone == lapsed
        for place in self.places:
            if not self.held(place):
                place.lease, place.holder = None, None

    @precondition(lambda self: any(thing.state in ACTIVE for thing in self.things))
    @rule()
    def recovery_settles_what_is_left(self) -> None:  # GW-R-184, GW-R-185, GW-R-186
        for thing in self.things:
            if thing.state in ACTIVE:
                self.settle(thing)

    def settle(self, thing: Thing) -> None:
        place = self.places[thing.repo]
        lease = self.rig.do(actions.take_lease, self.rig.task(thing.id), elsewhere("home"), self.rig.settings)
        assert (lease is None) == self.held(place)
        if lease is None:
            return
        self.hold(thing, lease)
        if thing.state == "aborting":
            self.rig.leave(thing.id, "stop", lease)
            self.rest(thing, "aborted")
        elif thing.state == "verifying_reply":
            self.put_back(thing, lease, "verification", delay=0)
        else:
            self.meet_a_failure(thing, lease)

    # --- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def the_database_says_the_same(self) -> None:
        found = self.rig.rows(
            "SELECT id, state, attempt, reply_attempt, unblock_attempt FROM gitea_task ORDER BY created_at, id"
        )
        model = {each.id: (each.state, each.attempt, each.reply_attempt, each.unblocks) for each in self.things}
        assert {row[0]: row[1:] for row in found} == model

    @invariant()
    def one_holder_and_one_active_task_a_repository(self) -> None:  # GW-R-002, GW-R-106
        for place in self.places:
            assert sum(each.state in ACTIVE for each in place.things) <= 1
            if place.things:
                holder = self.rig.holder(place.things[0].id)
                assert (holder is not None) == self.held(place)
                if holder is not None and place.lease is not None and place.holder is not None:
                    assert (holder.lease_id, holder.subject) == (place.lease.lease_id, place.holder.id)
                    assert place.holder.state in ACTIVE

    @invariant()
    def nothing_claimable_is_overlooked(self) -> None:  # GW-R-113
        listed = dict(self.rig.rows("SELECT repository_id, ready_at FROM gitea_ready"))
        now = self.clock.now()
        for thing in self.things:
            if thing.state in {"queued", "retry_wait"} and not self.held_up(thing):
                task = self.rig.task(thing.id)
                due = now if thing.state == "queued" else task.next_retry_at
                assert due is not None
                assert listed[task.repository_id] <= due
        assert self.rig.ledger.read(store.unlisted) == []

    @invariant()
    def bad_ends_are_told_once(self) -> None:  # GW-R-134, GW-R-135
        told_of = sorted(row[0] for row in self.rig.rows("SELECT id FROM gitea_comment"))
        assert told_of == sorted(f"{each.id}:status:{each.state}" for each in self.things if each.state in BADLY)

    # --- in the end ----------------------------------------------------------------------------------------------

    def work_off(self) -> None:
        """Clears every obstacle and lets the scheduler's own list find everything that is left."""
        for repo in range(2):
            self.clear_the_way(repo)
        for thing in self.things:
            if thing.state == "blocked_workspace":
                self.an_operator_asks(self.things.index(thing), "unblock")
        for _ in range(3 * len(self.things) + 3):
            self.time_passes(91)
            self.recovery_settles_what_is_left()
            for repo, place in enumerate(self.places):
                home = elsewhere(place.home or "home")
                if place.things and self.rig.task(place.things[0].id).repository_id in self.rig.due(home):
                    claimed = self.claim(repo, home.worker_id)
                    if claimed is not None:
                        self.finish(claimed)
        left = {each.state for each in self.things}
        assert left <= TERMINAL | {"waiting_user"}, left

    def finish(self, thing: Thing) -> None:
        lease = self.places[thing.repo].lease
        assert lease is not None
        for state, verb in (("preparing", "start"), ("running", "verify")):
            if thing.state == state:
                self.rig.advance(thing.id, verb, lease)
                thing.state = HELD[verb][1]
        self.rig.leave(thing.id, "confirm", lease)
        self.rest(thing, "succeeded")

    def look_back(self) -> None:
        """Every move in the journal is an edge of the specification and continues the one before (GW-R-072)."""
        for thing in self.things:
            moves = self.rig.moves(thing.id)
            assert moves[0][0] == ""
            for (_, _, to), (origin, _, further) in itertools.pairwise(moves):
                assert to == origin
                assert (origin, further) in EDGES
            assert self.rig.task(thing.id).rev == len(moves) - 1


def test_the_tasks_behave_like_the_model() -> None:
    # GW-R-039, GW-R-060, GW-R-072, GW-R-106, GW-R-107, GW-R-113, GW-R-114, GW-R-115, GW-R-118, GW-R-125
    run_state_machine_as_test(
        Tasks,
        settings=settings(
            max_examples=30,
            stateful_step_count=30,
            deadline=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )
