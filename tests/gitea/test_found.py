"""What was read at the forge says what a delivery would have said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stationmaster.clock import MICROS, from_iso
from stationmaster.gitea import found, wire
from stationmaster.gitea.normalise import Rules, Unusable

RULES = Rules(frozenset({"gitea.example.com:443"}), "codebot", 42)
ALICE = wire.User(7, login="alice")
PAGE = "https://gitea.example.com/acme/widgets"


def comment(**given: object) -> wire.CommentRow:
    row = wire.CommentRow(
        id=5,
        body="@codebot fix it",
        created_at="2026-11-30T10:00:00Z",
        updated_at="2026-11-30T10:00:00Z",
        user=ALICE,
        html_url=f"{PAGE}/issues/12#issuecomment-5",
        issue_url=f"{PAGE}/issues/12",
    )
    return wire.CommentRow(**({field: getattr(row, field) for field in row.__struct_fields__} | given))


def test_a_comment_says_where_it_stands_by_its_page() -> None:
    assert found.of_comment(comment()).number == 12
    pull = found.of_comment(comment(issue_url="", pull_request_url=f"{PAGE}/pulls/13"))
    assert (pull.origin, pull.number, pull.native_id) == ("comment", 13, 5)
    with pytest.raises(Unusable):
        found.of_comment(comment(issue_url="https://gitea.example.com/somewhere"))
    with pytest.raises(Unusable):
        found.of_comment(comment(created_at="yesterday"))


def test_only_what_was_changed_after_it_was_written_has_a_version() -> None:
    # The same as its change's event has, in whole seconds.
    words = found.of_comment(comment(updated_at="2026-11-30T12:00:00+02:00"))
    assert found.edited(words).version == 0
    words = found.of_comment(comment(updated_at="2026-11-30T10:00:07Z"))
    assert found.edited(words).version == from_iso("2026-11-30T10:00:07Z") // MICROS


@pytest.mark.parametrize(
    "user",
    [
        wire.User(42, login="renamed-bot"),
        wire.User(9, login="CodeBot"),
        wire.User(9, login="helper", type="Bot"),
        wire.User(-2, login="gitea-actions"),
        wire.NOBODY,
        None,
    ],
)
def test_no_program_and_nobody_asks(user: wire.User | None) -> None:
    # GW-R-056, GW-R-058
    assert found.asks(found.of_comment(comment(user=user)), RULES) is None
    assert found.asks(found.of_comment(comment()), RULES) == "fix it"


def test_a_review_counts_from_when_it_was_submitted_and_a_draft_never_does() -> None:
    review = wire.Review(
        3, user=ALICE, body="@codebot split", state="COMMENT", submitted_at="2026-11-30T10:00:00Z",
        updated_at="2026-11-30T11:00:00Z",
    )  # fmt: skip
    words = found.of_review(review, 4)
    assert words is not None
    assert (words.created_at, words.version) == (from_iso("2026-11-30T11:00:00Z"), 0)
    remark = wire.ReviewComment(8, user=ALICE, body="x", created_at="2026-11-30T10:30:00Z")
    assert found.of_remark(remark, 4, words).created_at == words.created_at
    for state, submitted, dismissed in (("PENDING", "2026-11-30T10:00:00Z", False), ("COMMENT", None, False),
                                        ("APPROVED", "2026-11-30T10:00:00Z", True)):  # fmt: skip
        assert found.of_review(wire.Review(3, state=state, submitted_at=submitted, dismissed=dismissed), 4) is None
    draft = replace(words, html_url=f"{PAGE}/pulls/4/files#issuecomment-8")
    assert found.asks(draft, RULES) is None


def test_a_repository_elsewhere_is_not_read() -> None:
    # GW-R-032, GW-R-033, GW-R-235
    seen = wire.Repository(1, wire.User(2, login="acme"), "widgets", clone_url=f"https://u:p@{PAGE[8:]}.git")
    assert found.repo_of(seen, RULES).clone_url == f"{PAGE}.git"
    with pytest.raises(Unusable):
        found.repo_of(wire.Repository(1, wire.User(2, login="acme"), "widgets", clone_url="https://evil/x.git"), RULES)
