from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stationmaster import canonical
from stationmaster.gitea import codes, signature
from stationmaster.gitea.normalise import (
    Actor,
    Ignored,
    Normalised,
    Outcome,
    Rejected,
    Rules,
    Unread,
    header_delivery_id,
    normalise,
    task_id,
    valid_name,
)
from stationmaster.gitea.payload import Permissions
from tests.gitea.samples import ALL, Sample, payload

RULES = Rules(frozenset({"gitea.example.com:443"}), "codebot", 42)
ISSUE = "issue_comment_created_issue"
PULL = "pull_comment_created"

ACCEPTED = {
    "issue_comment_created_issue",
    "issue_comment_created_issue_v126_unescaped",
    "issue_comment_created_issue_readonly_sender",
    "issue_comment_mention_forms",
    "issue_comment_after_repo_rename",
    "issue_comment_large_body",
    "issue_comment_no_secret",
    "issue_comment_form",
    "issue_comment_org_hook",
    "pull_comment_created",
    "pull_code_thread_reply_created",
}
IGNORED = {
    "issue_comment_code_and_quote": codes.NO_MENTION,
    "issue_comment_edited": codes.COMMENT_EDITED,
    "issue_comment_deleted": codes.COMMENT_DELETED,
    "issue_comment_by_bot_itself": codes.BOT_SELF_COMMENT,
    "issue_comment_by_gitea_actions": codes.BOT_COMMENT,
    "issue_comment_deleted_user_ghost": codes.COMMENT_EDITED,
    "pull_comment_edited": codes.COMMENT_EDITED,
    "pull_pending_review_comment_edited": codes.DRAFT_REVIEW_COMMENT,
    "issues_edited_title": codes.NOT_A_COMMENT,
    "push_test_delivery": codes.TEST_DELIVERY,
}
# What has to be read at the forge.
UNREAD = {
    "pull_review_comment": "pull_request",
    "pull_code_line_comment_single": "pull_request",
    "pull_review_approved": "pull_request",
    "pull_review_rejected": "pull_request",
    "issues_opened_mention": "issue",
    "issues_edited_body_adds_mention": "issue",
    "pull_request_opened_mention_fork": "pull_request",
    "pull_request_opened_head_repo_deleted": "pull_request",
}


def read(sample: Sample, headers: dict[str, str] | None = None) -> Outcome:
    signed = signature.content(sample.headers, sample.body)
    assert signed is not None
    return normalise(sample.headers if headers is None else headers, signed, RULES)


def changed(change: Callable[[dict[str, Any]], object], name: str = ISSUE, rules: Rules = RULES) -> Outcome:
    data = payload(name)
    change(data)
    return normalise(ALL[name].headers, json.dumps(data).encode(), rules)


def put(*path: str, value: object) -> Callable[[dict[str, Any]], object]:
    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


def test_every_sample_has_its_expected_outcome() -> None:
    assert ACCEPTED | set(IGNORED) | set(UNREAD) == set(ALL)


@pytest.mark.parametrize("name", sorted(ACCEPTED))
def test_a_new_comment_with_a_mention_is_accepted(name: str) -> None:
    found = read(ALL[name])
    assert isinstance(found, Normalised)
    assert found.delivery_id == ALL[name].headers["X-Gitea-Delivery"]
    assert found.instruction
    assert found.permissions is not None
    assert canonical.dump(found)  # can be stored


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_everything_else_is_ignored_with_its_own_reason(name: str) -> None:  # GW-R-054, GW-R-056, GW-R-058
    found = read(ALL[name])
    assert isinstance(found, Ignored)
    assert found.reason == IGNORED[name]
    assert found.delivery_id == ALL[name].headers["X-Gitea-Delivery"]


@pytest.mark.parametrize("name", sorted(UNREAD))
def test_what_says_too_little_is_to_be_read(name: str) -> None:  # GW-R-050
    found = read(ALL[name])
    assert isinstance(found, Unread)
    assert (found.kind, found.delivery_id) == (UNREAD[name], ALL[name].headers["X-Gitea-Delivery"])
    said = msgspec.json.decode(ALL[name].body)
    about = said.get("pull_request") or said["issue"]
    assert (found.number, found.repo.id) == (about["number"], said["repository"]["id"])


def _changed(name: str, change: Callable[[dict[str, Any]], object]) -> Outcome:
    said = msgspec.json.decode(ALL[name].body)
    change(said)
    return normalise(ALL[name].headers, msgspec.json.encode(said), RULES)


def test_a_text_without_a_mention_and_a_bots_review_are_not_read() -> None:  # GW-R-056
    plain = _changed("issues_opened_mention", lambda said: said["issue"].update(body="nothing for anybody"))
    assert isinstance(plain, Ignored)
    assert plain.reason == codes.NOT_A_COMMENT
    ours = _changed("pull_review_comment", lambda said: said["sender"].update(id=RULES.bot_id))
    assert isinstance(ours, Ignored)
    assert ours.reason == codes.BOT_SELF_COMMENT
    lost = _changed("pull_review_comment", lambda said: said.pop("pull_request"))
    assert isinstance(lost, Ignored)
    assert lost.reason == codes.REVIEW_EVENT


def test_the_structure_of_an_issue_comment() -> None:  # GW-R-051
    found = read(ALL[ISSUE])
    assert isinstance(found, Normalised)
    wire = msgspec.to_builtins(found)
    assert wire["eventType"] == "issue_comment"
    assert wire["instanceId"] == "default"
    assert wire["repo"] == {
        "id": 101,
        "owner": "acme",
        "name": "widgets",
        "cloneUrl": "https://gitea.example.com/acme/widgets.git",
        "defaultBranch": "main",
        "private": True,
    }
    assert wire["resource"] == {
        "kind": "issue",
        "number": 12,
        "title": "Crash when name contains ü/ß/漢字",
        "htmlUrl": "https://gitea.example.com/acme/widgets/issues/12",
    }
    assert wire["comment"]["id"] == 90001
    assert wire["comment"]["createdAt"] == 1_775_473_653_000_000
    assert wire["comment"]["authorLogin"] == "alice"
    assert wire["actor"] == {"id": 7, "login": "alice", "isBot": False}
    assert wire["refs"] is None
    assert found.instruction == "please fix the crash in `parse()` 🙏\n\nThanks!"
    assert found.permissions == Permissions(admin=False, push=True, pull=True)
    assert found.repo_key == "default:acme/widgets"
    assert found.resource_key == "default:acme/widgets:issue:12"
    assert found.delivery_key == f"default:{found.delivery_id}"
    assert found.task_id == task_id(found.delivery_key)


def test_the_structure_of_a_pull_request_comment() -> None:  # GW-R-050
    found = read(ALL[PULL])
    assert isinstance(found, Normalised)
    assert (found.event_type, found.resource.kind, found.resource.number) == (
        "pull_request_comment",
        "pull_request",
        13,
    )
    assert found.refs is not None
    assert (found.refs.base, found.refs.head, found.refs.head_repo) == ("main", "feat/locale", "carol/widgets")
    assert found.refs.head_repo_id == 230
    assert found.resource_key == "default:acme/widgets:pull_request:13"


def test_a_renamed_repository_keeps_its_number() -> None:
    before, after = read(ALL[ISSUE]), read(ALL["issue_comment_after_repo_rename"])
    assert isinstance(before, Normalised)
    assert isinstance(after, Normalised)
    assert before.repo.id == after.repo.id
    assert before.repo_key != after.repo_key


def test_permissions_are_the_senders() -> None:
    found = read(ALL["issue_comment_created_issue_readonly_sender"])
    assert isinstance(found, Normalised)
    assert found.permissions == Permissions(admin=False, push=False, pull=True)


@pytest.mark.parametrize("drop", [("X-Gitea-Event-Type",), ("X-Gitea-Event-Type", "X-Gitea-Event")])
@pytest.mark.parametrize("name", sorted(ALL))
def test_without_the_type_header_the_shape_decides(name: str, drop: tuple[str, ...]) -> None:
    # Both meanings of `pull_request_comment` (GW-R-050): a comment in one header, a review in the other.
    gone = {key for key in ALL[name].headers if key.split("-", 2)[-1] in {full.split("-", 2)[-1] for full in drop}}
    found = read(ALL[name], {key: value for key, value in ALL[name].headers.items() if key not in gone})
    if name in ACCEPTED:
        assert isinstance(found, Normalised)
        assert found.resource.kind == ("pull_request" if name.startswith("pull") else "issue")
    elif name in UNREAD:
        assert isinstance(found, Unread)
        assert found.kind == UNREAD[name]
    else:
        assert isinstance(found, Ignored)
        if name != "push_test_delivery":
            assert found.reason == IGNORED[name]


def test_forgejo_headers_alone_are_read() -> None:
    headers = {k.replace("X-Gitea", "X-Forgejo"): v for k, v in ALL[PULL].headers.items() if k.startswith("X-Gitea")}
    found = read(ALL[PULL], headers)
    assert isinstance(found, Normalised)
    assert found.delivery_id == headers["X-Forgejo-Delivery"]
    assert header_delivery_id(headers) == found.delivery_id


def test_without_a_delivery_id_the_comment_names_the_delivery() -> None:  # GW-R-015
    headers = {k: v for k, v in ALL[ISSUE].headers.items() if not k.endswith("-Delivery")}
    found = read(ALL[ISSUE], headers)
    assert isinstance(found, Normalised)
    assert found.delivery_id == "payload:issue_comment:acme/widgets:90001:created"
    assert header_delivery_id(headers) == ""
    edited = read(ALL["issue_comment_edited"], headers)
    assert isinstance(edited, Ignored)
    assert edited.delivery_id.endswith(":edited")
    for name in ("pull_review_comment", "issues_opened_mention", "push_test_delivery"):
        event = {k: v for k, v in ALL[name].headers.items() if not k.endswith("-Delivery")}
        refused = read(ALL[name], event)
        assert isinstance(refused, Rejected)
        assert (refused.code, refused.delivery_id) == (codes.INVALID_PAYLOAD, "")


@pytest.mark.parametrize("sent", ["", " ", "a b", "é", "x" * 201])
def test_an_unusable_delivery_id_counts_as_none(sent: str) -> None:
    found = read(ALL[ISSUE], {"X-Gitea-Event-Type": "issue_comment", "X-Gitea-Delivery": sent})
    assert isinstance(found, Normalised)
    assert found.delivery_id.startswith("payload:")


def test_the_task_id_is_the_same_for_the_same_delivery() -> None:  # GW-R-016
    assert task_id("default:4023c9de") == task_id("default:4023c9de") != task_id("default:4023c9df")
    assert len(task_id("default:4023c9de")) == len("gitea-task-") + 32


@pytest.mark.parametrize(
    "url",
    [
        "https://gitea.example.com.evil.example/acme/widgets.git",
        "https://evil.example/acme/widgets.git",
        "https://gitea.example.com@evil.example/acme/widgets.git",
        "http://gitea.example.com/acme/widgets.git",
        "https://gitea.example.com:8443/acme/widgets.git",
        "file:///etc/passwd",
        "ext::sh -c id",
        "git@gitea.example.com:acme/widgets.git",
        "https://[::1/acme",
        "https://gitea.example.com:99999/acme",
        "",
    ],
)
def test_a_clone_url_elsewhere_is_refused(url: str) -> None:  # GW-R-235
    found = changed(put("repository", "clone_url", value=url))
    assert isinstance(found, Rejected)
    assert found.code in (codes.FOREIGN_HOST, codes.INVALID_PAYLOAD)
    assert found.delivery_id


@pytest.mark.parametrize(
    "url",
    [
        "https://bot:hunter2@gitea.example.com/acme/widgets.git",
        "https://bot@GITEA.example.com:443/acme/widgets.git?x=hunter2#hunter2",
    ],
)
def test_a_clone_url_loses_user_and_password(url: str) -> None:  # GW-R-032
    found = changed(put("repository", "clone_url", value=url))
    assert isinstance(found, Normalised)
    assert found.repo.clone_url in (
        "https://gitea.example.com/acme/widgets.git",
        "https://gitea.example.com:443/acme/widgets.git",
    )
    assert "hunter2" not in canonical.dump(found)


NAMES = [
    "",
    ".",
    "..",
    "a..b",
    "-x",
    "a/b",
    "a\\b",
    "/etc",
    "a\x00b",
    "a b",
    "a\nb",
    "é",
    "x" * 101,
    "a:b",
    "~",
    "$(id)",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_could_leave_the_root_are_refused(name: str) -> None:  # GW-R-033
    assert not valid_name(name)
    for path in (("repository", "name"), ("repository", "owner", "login")):
        data = payload(ISSUE)
        data["repository"]["owner"]["username"] = ""
        put(*path, value=name)(data)
        found = normalise(ALL[ISSUE].headers, json.dumps(data).encode(), RULES)
        assert isinstance(found, Rejected)
        assert found.code == codes.INVALID_PAYLOAD


@pytest.mark.parametrize("name", ["a", "widgets", "a.b", "_x", ".github", "A-b_c.d", "0"])
def test_names_the_forge_allows_are_kept(name: str) -> None:
    assert valid_name(name)


def test_the_bot_is_known_by_number_after_it_was_renamed_and_by_any_case_of_its_login() -> None:  # GW-R-058
    for change in (
        put("sender", "id", value=42),
        put("sender", "login", value="CodeBot"),
        put("comment", "user", "id", value=42),
        put("comment", "user", "login", value="CODEBOT"),
    ):
        found = changed(change)
        assert isinstance(found, Ignored)
        assert found.reason == codes.BOT_SELF_COMMENT


def test_a_declared_bot_starts_nothing() -> None:
    found = changed(put("sender", "type", value="Bot"))
    assert isinstance(found, Ignored)
    assert found.reason == codes.BOT_COMMENT
    assert isinstance(changed(put("sender", "type", value="User")), Normalised)
    assert isinstance(changed(put("sender", "type", value=7)), Normalised)


def test_a_ghost_starts_nothing() -> None:
    ghost = {"id": -1, "login": "Ghost"}
    for path in (("comment", "user"), ("sender",)):
        found = changed(put(*path, value=ghost))
        assert isinstance(found, Ignored)
        assert found.reason == codes.AUTHOR_UNKNOWN


def test_an_author_that_is_null_is_the_sender() -> None:
    found = changed(put("comment", "user", value=None))
    assert isinstance(found, Normalised)
    assert (found.comment.author_id, found.comment.author_login) == (7, "alice")
    assert found.actor == Actor(7, "alice", is_bot=False)


def test_unneeded_parts_may_be_null() -> None:
    for path in (
        ("issue", "user"),
        ("issue", "title"),
        ("repository", "permissions"),
        ("repository", "default_branch"),
    ):
        assert isinstance(changed(put(*path, value=None)), Normalised)
    assert isinstance(changed(put("pull_request", "head", "repo", value=None), PULL), Normalised)
    gone = changed(put("pull_request", "head", value={"ref": "refs/pull/13/head", "sha": "9f", "repo_id": -1}), PULL)
    assert isinstance(gone, Normalised)
    assert gone.refs is not None
    assert (gone.refs.head, gone.refs.head_repo_id, gone.refs.head_repo) == ("refs/pull/13/head", -1, "")
    before_1_23 = changed(lambda data: data.pop("pull_request"), PULL)
    assert isinstance(before_1_23, Normalised)
    assert (before_1_23.resource.kind, before_1_23.refs) == ("pull_request", None)


def test_two_different_pull_requests_in_one_payload_are_refused() -> None:
    assert isinstance(changed(put("pull_request", "number", value=14), PULL), Rejected)


def test_unlisted_actions_and_a_bare_mention_are_ignored() -> None:
    found = changed(put("action", value="pinned"))
    assert isinstance(found, Ignored)
    assert found.reason == codes.ACTION_NOT_CREATED
    empty = changed(put("comment", "body", value="@codebot"))
    assert isinstance(empty, Ignored)
    assert empty.reason == codes.EMPTY_INSTRUCTION


def test_text_that_a_database_refuses_is_made_storable() -> None:
    found = changed(put("comment", "body", value="@codebot a\x00b"))
    assert isinstance(found, Normalised)
    assert found.instruction == "a\ufffdb"
    assert "\x00" not in found.comment.body
