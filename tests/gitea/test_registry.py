"""Repositories keep their row through every rename; a number makes a row, a name never does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stationmaster.clock import ManualClock
from stationmaster.gitea import registry, store
from tests.gitea.rig import ISSUE, Rig, database, told
from tests.gitea.samples import payload

BOTH = pytest.mark.parametrize("rig", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def rig(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Rig]:
    made = Rig.on(database(request, getattr(request, "param", "sqlite")), clock)
    yield made
    made.close()


def test_a_first_sight_registers_the_repository(rig: Rig) -> None:  # GW-R-030, GW-R-012, GW-R-013, GW-R-014
    task_id = rig.ask(repo=(5, "Acme", "Widgets"))
    repository = rig.repository(task_id)
    assert (repository.native_id, repository.owner, repository.name, repository.state, repository.rev) == (
        5,
        "Acme",
        "Widgets",
        "active",
        0,
    )
    assert (repository.repo_key, repository.default_branch) == ("default:acme/widgets", "main")
    assert repository.clone_url == "https://gitea.example.com/Acme/Widgets.git"
    assert rig.task(task_id).resource_key == "default:acme/widgets:issue:12"


@BOTH
def test_a_rename_keeps_the_row_and_adds_an_alias(rig: Rig) -> None:
    first = rig.take(payload(ISSUE)).task_id
    second = rig.take(payload("issue_comment_after_repo_rename")).task_id
    assert first is not None
    assert second is not None
    repository = rig.repository(second)
    assert rig.repository(first) == repository
    assert (rig.count("gitea_repository"), rig.count("gitea_repository_alias")) == (1, 1)
    assert (repository.name, repository.repo_key) == ("widgets-ng", "default:acme/widgets-ng")
    assert repository.clone_url.endswith("/acme/widgets-ng.git")
    for key in ("default:acme/widgets-ng", "default:acme/widgets"):
        found = rig.ledger.read(store.repository_by_key, key)
        assert found is not None
        assert found.id == repository.id
    (entry,) = rig.events("repo.rename")
    assert entry.data == {"old": "default:acme/widgets", "new": "default:acme/widgets-ng"}
    # What the task was about keeps its key; the same issue keeps its conversation.
    assert rig.task(first).resource_key == "default:acme/widgets:issue:12"
    assert rig.ask(12, repo=(101, "acme", "widgets-ng")) != first
    assert rig.count("gitea_session") == len({rig.task(first).session_id, rig.task(second).session_id})


def test_a_rename_there_and_back(rig: Rig) -> None:
    task_id = rig.ask()
    for name in ("gadgets", "widgets", "gadgets"):
        rig.ask(repo=(101, "acme", name))
    assert (rig.count("gitea_repository"), rig.count("gitea_repository_alias")) == (1, 2)
    assert rig.repository(task_id).repo_key == "default:acme/gadgets"


def test_a_transfer_to_another_owner_and_another_case(rig: Rig) -> None:  # GW-R-012
    task_id = rig.ask()
    rig.ask(repo=(101, "ACME", "Widgets"))
    assert (rig.repository(task_id).owner, rig.count("gitea_repository_alias")) == ("ACME", 0)
    rig.ask(repo=(101, "umbrella", "Widgets"))
    assert (rig.repository(task_id).repo_key, rig.count("gitea_repository")) == ("default:umbrella/widgets", 1)


@BOTH
def test_the_same_name_made_again_is_another_repository(rig: Rig) -> None:
    old = rig.ask()
    new = rig.ask(repo=(102, "acme", "widgets"))
    assert rig.repository(old).id != rig.repository(new).id
    assert rig.task(old).session_id != rig.task(new).session_id
    found = rig.ledger.read(store.repository_by_key, "default:acme/widgets")
    assert found is not None
    assert found.native_id == 102
    # Each has a lease of its own.
    assert rig.claim(old) is not None
    assert rig.claim(new) is not None


def test_a_name_taken_over_by_another_repository_names_that_one(rig: Rig) -> None:
    old = rig.ask()
    rig.ask(repo=(101, "acme", "widgets-old"))
    new = rig.ask(repo=(102, "acme", "widgets"))
    found = rig.ledger.read(store.repository_by_key, "default:acme/widgets")
    assert found is not None
    assert (found.id, found.native_id) == (rig.repository(new).id, 102)
    assert rig.repository(old).repo_key == "default:acme/widgets-old"


def test_what_the_forge_says_of_a_move_is_stored_once(rig: Rig) -> None:
    task_id = rig.ask()
    repository_id = rig.task(task_id).repository_id
    for _ in range(2):
        rig.do(registry.moved, repository_id, "umbrella", "gadgets")
    repository = rig.repository(task_id)
    assert (repository.repo_key, repository.rev) == ("default:umbrella/gadgets", 1)
    assert repository.clone_url == "https://gitea.example.com/umbrella/gadgets.git"
    assert len(rig.events("repo.rename")) == 1


def test_a_disabled_repository_is_renamed_too(rig: Rig) -> None:
    task_id = rig.ask()
    rig.switch(rig.task(task_id).repository_id, "disable")
    assert rig.take(told(comment_id=4, repo=(101, "acme", "gadgets"))).status == 409
    assert (rig.repository(task_id).name, rig.repository(task_id).state) == ("gadgets", "disabled")


def test_an_issue_and_a_pull_request_are_two_conversations(rig: Rig) -> None:  # GW-R-014, GW-R-035
    issue, again = rig.ask(13), rig.ask(13)
    pull = rig.take(told("pull_comment_created", number=14)).task_id
    assert pull is not None
    assert rig.task(issue).session_id == rig.task(again).session_id
    assert (rig.session(pull).kind, rig.session(pull).number) == ("pull_request", 14)
