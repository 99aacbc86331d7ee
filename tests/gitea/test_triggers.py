"""What may start something: edits that bring a mention, and the kinds of places that an operator allows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stationmaster.clock import MICROS, ManualClock, from_iso
from stationmaster.gitea import codes, found, normalise, payload
from stationmaster.gitea.found import Words
from stationmaster.gitea.normalise import Ignored, Normalised, Outcome, Rules, Unread
from stationmaster.gitea.triggers import TRIGGERS, Origin, Trigger
from tests.gitea.rig import Rig, told
from tests.gitea.samples import ALL
from tests.gitea.samples import payload as sample


@pytest.fixture
def rig(tmp_path: Path, clock: ManualClock) -> Iterator[Rig]:
    made = Rig.on(tmp_path / "ledger.db", clock)
    yield made
    made.close()


RULES = Rules(frozenset({"gitea.example.com:443"}), "codebot", 42)
EDITED_AT = "2026-11-30T10:00:07Z"


def edited(before: str | None, after: str = "@codebot now I ask", *, by: int | None = None) -> dict[str, Any]:
    """Returns the event of a comment that was changed, by its author unless somebody else is named."""
    data = sample("issue_comment_created_issue")
    data["action"] = "edited"
    data["comment"] |= {"body": after, "updated_at": EDITED_AT}
    data["changes"] = {} if before is None else {"body": {"from": before}}
    if by is not None:
        data["sender"] |= {"id": by, "login": "carol", "username": "carol"}
    return data


def read(data: dict[str, Any], rules: Rules = RULES, name: str = "issue_comment_created_issue") -> Outcome:
    return normalise.normalise(ALL[name].headers, json.dumps(data).encode(), rules)


def without(*names: Trigger) -> Rules:
    return msgspec.structs.replace(RULES, started_by=TRIGGERS - set(names))


def test_an_edit_that_brings_a_mention_asks_in_its_own_wording() -> None:
    said = read(edited("never mind"))
    assert isinstance(said, Normalised)
    assert said.instruction == "now I ask"
    # The same number as a reading gives it, so that the two are one.
    words = Words("comment", said.comment.id, 12, "", payload.User(id=7, login="x"), 0, from_iso(EDITED_AT), "")
    assert said.version == from_iso(EDITED_AT) // MICROS == found.edited(words).version


@pytest.mark.parametrize(
    "data",
    [
        edited("@codebot pleas fix it"),  # it was asked before
        edited(None),  # nobody knows what it was before
        edited("never mind", by=99),  # somebody else's words
        edited("`@codebot` in code", "still nothing"),
    ],
)
def test_any_other_edit_starts_nothing(data: dict[str, Any]) -> None:  # GW-R-056
    said = read(data)
    assert isinstance(said, Ignored)
    assert said.reason in {codes.COMMENT_EDITED, codes.NO_MENTION}


def test_an_edit_of_the_bots_own_comment_starts_nothing() -> None:  # GW-R-058
    data = edited("never mind")
    for person in (data["sender"], data["comment"]["user"]):
        person |= {"id": 42, "login": "codebot", "username": "codebot"}
    said = read(data)
    assert isinstance(said, Ignored)
    assert said.reason == codes.BOT_SELF_COMMENT


def test_a_mention_that_comes_back_is_not_asked_twice(rig: Rig) -> None:
    first = rig.take(told(comment_id=501, body="@codebot fix it"))
    data = edited("fix it, whoever", "@codebot fix it")
    data["comment"]["id"] = 501
    again = rig.take(data)
    assert rig.count("gitea_task") == 1
    assert (again.body["status"], again.body["taskId"]) == ("duplicate", first.task_id)
    fresh = edited("nothing")
    fresh["comment"]["id"] = 502
    assert rig.take(fresh).body["state"] == "queued"
    assert rig.count("gitea_task") == 2


def test_what_an_operator_switched_off_starts_nothing() -> None:
    created = sample("issue_comment_created_issue")
    for data, rules in ((created, without("comment")), (edited("never mind"), without("edit"))):
        said = read(data, rules)
        assert isinstance(said, Ignored)
        assert said.reason == codes.TRIGGER_OFF
    for name, off in (
        ("issues_opened_mention", "issue_body"),
        ("issues_edited_body_adds_mention", "issue_body"),
        ("issues_edited_body_adds_mention", "edit"),
        ("pull_request_opened_mention_fork", "pull_body"),
    ):
        assert isinstance(read(sample(name), RULES, name), Unread), name
        assert isinstance(read(sample(name), without(off), name), Ignored), name  # type: ignore[arg-type]  # a literal
    assert isinstance(read(sample("pull_review_comment"), without("review"), "pull_review_comment"), Unread)
    both = without("review", "code_comment")
    assert isinstance(read(sample("pull_review_comment"), both, "pull_review_comment"), Ignored)


@pytest.mark.parametrize(
    ("origin", "off"),
    [("comment", "comment"), ("issue", "issue_body"), ("pull", "pull_body"), ("review", "review"),
     ("code_comment", "code_comment")],
)  # fmt: skip
def test_a_reading_goes_by_the_same_rules(origin: Origin, off: Trigger) -> None:
    words = Words(origin, 1, 12, "@codebot do it", payload.User(id=7, login="x"), 0, 0, "")
    assert found.asks(words, RULES) == "do it"
    assert found.asks(words, without(off)) is None
    changed = found.edited(Words(origin, 1, 12, "@codebot do it", payload.User(id=7, login="x"), 0, MICROS, ""))
    assert found.asks(changed, without("edit")) is None
