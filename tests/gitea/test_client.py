from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stationmaster import clock, redact
from stationmaster.command import inside_command
from stationmaster.errors import Bug, Denied, NotFound, Unavailable
from stationmaster.gitea import codes
from stationmaster.gitea.client import Done, Forge, Moved, Refused, RepoRef, Unknown, explain
from stationmaster.standins.forge import Forge as StandIn

TOKEN = "f0e1d2c3b4a5968778695a4b3c2d1e0f12345678"
COMMENTS = "/issues/[0-9]+/comments"


@pytest.fixture
def standin(tmp_path: Path) -> Iterator[StandIn]:
    with StandIn(tmp_path / "forge") as server:
        admin = server.verbs
        admin["user"](login="acme", org=True)
        admin["user"](login="alice")
        admin["user"](login="codebot", bot=True)
        admin["token"](login="codebot", value=TOKEN)
        admin["repo"](
            owner="acme", name="widgets", files={"a.txt": "one\n"}, collaborators={"alice": "write", "codebot": "write"}
        )
        admin["issue"](repo="acme/widgets", author="alice", title="Crash", body="@codebot please fix")
        yield server


@pytest.fixture
async def forge(standin: StandIn) -> AsyncIterator[Forge]:
    async with Forge(standin.url, redact.Secret("test:token", lambda: TOKEN), timeout_s=10) as client:
        yield client


@pytest.fixture
def repo(standin: StandIn) -> RepoRef:
    return RepoRef("acme", "widgets", _repo_id(standin))


def _repo_id(standin: StandIn) -> int:
    row = standin.store.one("SELECT id FROM repo WHERE lower_name='widgets'")
    assert row is not None
    return int(row["id"])


def fault(standin: StandIn, action: dict[str, Any], **match: str) -> None:
    standin.verbs["add_fault"](fault={"match": match, "action": action})


def said(standin: StandIn, number: int = 1) -> list[str]:
    return [row["body"] for row in standin.verbs["comments"](repo="acme/widgets", number=number)]


def pull(standin: StandIn, branch: str = "feat/x") -> int:
    standin.verbs["commit"](repo="acme/widgets", author="alice", files={"a.txt": "two\n"}, branch=branch)
    return int(standin.verbs["pull"](repo="acme/widgets", author="alice", head=branch, title=f"Do {branch}")["number"])


async def test_who_we_are_and_what_the_forge_is(forge: Forge) -> None:
    assert (await forge.get_user()).name == "codebot"
    assert (await forge.get_version()).startswith("1.")


async def test_repositories_by_name_and_by_number(forge: Forge, repo: RepoRef) -> None:
    by_name = await forge.get_repository(repo)
    assert (by_name.owner.name, by_name.name, by_name.default_branch) == ("acme", "widgets", "main")
    assert by_name.permissions is not None
    assert by_name.permissions.push
    assert repo.native_id is not None
    assert await forge.get_repository_by_id(repo.native_id) == by_name
    with pytest.raises(NotFound, match="does not show") as missing:
        await forge.get_repository(RepoRef("acme", "nothing"))
    assert missing.value.code == codes.FORGE_NOT_FOUND


async def test_issues_and_pull_requests(standin: StandIn, forge: Forge, repo: RepoRef) -> None:
    issue = await forge.get_issue(repo, 1)
    assert (issue.title, issue.is_pull, issue.state) == ("Crash", False, "open")
    number = pull(standin)
    assert (await forge.get_issue(repo, number)).is_pull
    found = await forge.get_pull(repo, number)
    assert (found.base.ref, found.head.ref, found.head.repo_id) == ("main", "feat/x", repo.native_id)
    assert [row.filename for row in await forge.list_pull_files(repo, number)] == ["a.txt"]
    with pytest.raises(NotFound):
        await forge.get_pull(repo, 1)
    with pytest.raises(NotFound):
        await forge.get_issue(repo, 99)


async def test_a_diff_is_cut_at_the_limit(standin: StandIn, forge: Forge, repo: RepoRef) -> None:
    number = pull(standin)
    whole = await forge.get_diff(repo, number)
    assert "+two" in whole.text
    assert not whole.truncated
    part = await forge.get_diff(repo, number, max_bytes=20)
    assert part.truncated
    assert whole.text.startswith(part.text)
    assert len(part.text) == 20


async def test_reviews_with_their_code_comments(standin: StandIn, forge: Forge, repo: RepoRef) -> None:
    number = pull(standin)
    line = {"path": "a.txt", "line": 1, "body": "why?"}
    standin.verbs["review"](repo="acme/widgets", number=number, author="alice", body="Hm", lines=[line])
    (review,) = await forge.list_reviews(repo, number)
    assert review.body == "Hm"
    (remark,) = await forge.list_review_comments(repo, number, review.id)
    assert (remark.path, remark.body) == ("a.txt", "why?")
    with pytest.raises(NotFound) as hidden:  # the forge answers 204: it is no plain comment
        await forge.get_comment(repo, remark.id)
    assert hidden.value.code == codes.FORGE_NOT_PLAIN_COMMENT


async def test_a_branch_with_slashes(standin: StandIn, forge: Forge, repo: RepoRef) -> None:
    pull(standin, "stationmaster/issue-1")
    branch = await forge.get_branch(repo, "stationmaster/issue-1")
    assert branch.commit.id
    assert not branch.protected
    with pytest.raises(NotFound):
        await forge.get_branch(repo, "stationmaster/issue-2")


async def test_comments_are_posted_edited_and_read_back(standin: StandIn, forge: Forge, repo: RepoRef) -> None:
    done = await forge.create_comment(repo, 1, "Größe <!-- ccweb commentKey=k -->")
    assert isinstance(done, Done)
    comment = await forge.get_comment(repo, done.id)
    assert (comment.body, comment.author_login) == ("Größe <!-- ccweb commentKey=k -->", "codebot")
    assert comment.author_id == (await forge.get_user()).id
    assert await forge.list_issue_comments(repo, 1) == [comment]
    assert await forge.edit_comment(repo, done.id, "other") == Done(done.id)
    assert said(standin) == ["other"]


async def test_text_that_is_no_unicode_is_made_sendable(standin: StandIn, forge: Forge, repo: RepoRef) -> None:
    assert isinstance(await forge.create_comment(repo, 1, "a\ud800b\x00c"), Done)
    assert said(standin) == ["a?b\ufffdc"]


async def test_more_comments_than_a_page_are_one_complete_list(standin: StandIn, forge: Forge, repo: RepoRef) -> None:
    for number in range(70):
        standin.verbs["comment"](repo="acme/widgets", number=1, author="alice", body=f"n{number}")
    read = await forge.list_issue_comments(repo, 1)
    assert [row.body for row in read] == [f"n{number}" for number in range(70)]


async def test_since_is_inclusive_and_in_whole_seconds(standin: StandIn, forge: Forge, repo: RepoRef) -> None:
    made = standin.verbs["comment"](repo="acme/widgets", number=1, author="alice", body="new")
    at = clock.from_iso(made["updated_at"])
    assert len(await forge.list_issue_comments(repo, 1, since=at + 999_999)) == 1
    assert await forge.list_issue_comments(repo, 1, since=at + 2 * clock.MICROS) == []


async def test_a_list_shorter_than_its_own_count_is_an_error(  # GW-R-167
    standin: StandIn, forge: Forge, repo: RepoRef
) -> None:
    answer = {"kind": "answer", "status": 200, "body": "[]", "content_type": "application/json"}
    fault(standin, answer | {"headers": [["X-Total-Count", "3"]]}, path=COMMENTS)
    with pytest.raises(Unavailable) as partial:
        await forge.list_issue_comments(repo, 1)
    assert partial.value.code == codes.FORGE_PARTIAL
    assert await forge.list_issue_comments(repo, 1) == []


async def test_a_comment_list_that_gets_pages_is_still_read_whole(
    standin: StandIn, forge: Forge, repo: RepoRef
) -> None:
    standin.verbs["comment"](repo="acme/widgets", number=1, author="alice", body="x")
    link = [["Link", f'<{standin.url}/x?page=2>; rel="next"'], ["X-Total-Count", "1"]]
    first = {"kind": "answer", "status": 200, "body": "[]", "content_type": "application/json", "headers": link}
    fault(standin, first, path=COMMENTS)
    assert [row.body for row in await forge.list_issue_comments(repo, 1)] == ["x"]
    assert standin.log[-1]["path"].endswith("/issues/1/comments?page=1&limit=50")


async def test_open_pull_requests_are_found_by_their_branch(standin: StandIn, forge: Forge, repo: RepoRef) -> None:
    numbers = {branch: pull(standin, branch) for branch in ("a", "b")}
    assert [row.number for row in await forge.list_pulls(repo, head="b")] == [numbers["b"]]
    assert [row.number for row in await forge.list_pulls(repo)] == list(numbers.values())
    assert await forge.list_pulls(repo, head="c") == []
    standin.verbs["edit_issue"](repo="acme/widgets", number=numbers["b"], author="alice", state="closed")
    assert await forge.list_pulls(repo, head="b") == []
    assert len(await forge.list_pulls(repo, head="b", state="all")) == 1


async def test_a_pull_request_is_opened_once(standin: StandIn, forge: Forge, repo: RepoRef) -> None:
    standin.verbs["commit"](repo="acme/widgets", author="alice", files={"a.txt": "two\n"}, branch="b")
    done = await forge.create_pull(repo, title="T", body="B", head="b", base="main")
    assert isinstance(done, Done)
    assert done.number is not None
    assert (await forge.get_pull(repo, done.number)).title == "T"
    again = await forge.create_pull(repo, title="T", body="B", head="b", base="main")
    assert isinstance(again, Refused)
    assert (again.status, again.code) == (409, codes.FORGE_CONFLICT)


async def test_permission_needs_a_bot_that_administers(standin: StandIn, forge: Forge, repo: RepoRef) -> None:
    with pytest.raises(Denied) as refused:
        await forge.permission(repo, "alice")
    assert refused.value.code == codes.FORGE_DENIED
    standin.verbs["collaborator"](repo="acme/widgets", login="codebot", permission="admin")
    assert await forge.permission(repo, "alice") == "write"
    with pytest.raises(NotFound):
        await forge.permission(repo, "nobody")


# --- writes whose outcome is known or not -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["drop_after", "drop_midway", "cut", "garble"])
async def test_accepted_but_not_confirmed_is_unknown(standin: StandIn, forge: Forge, repo: RepoRef, kind: str) -> None:
    fault(standin, {"kind": kind}, method="POST", path=COMMENTS)
    outcome = await forge.create_comment(repo, 1, "answer")
    assert isinstance(outcome, Unknown)
    assert outcome.sent
    assert codes.known(outcome.reason)
    assert said(standin) == ["answer"]


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 204, 206, 302, 303])
@pytest.mark.parametrize("effect", [True, False])
async def test_an_unclear_status_is_unknown(
    standin: StandIn, forge: Forge, repo: RepoRef, status: int, effect: bool
) -> None:
    fault(standin, {"kind": "answer", "status": status, "effect": effect}, method="POST", path=COMMENTS)
    assert isinstance(await forge.create_comment(repo, 1, "answer"), Unknown)
    assert len(said(standin)) == int(effect)


async def test_a_drop_before_anything_happened_is_unknown_too(standin: StandIn, forge: Forge, repo: RepoRef) -> None:
    fault(standin, {"kind": "drop_before"}, method="POST", path=COMMENTS)
    assert await forge.create_comment(repo, 1, "answer") == Unknown(codes.FORGE_UNREACHABLE)
    assert said(standin) == []


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_forge_that_hangs_is_left_after_the_timeout(standin: StandIn, repo: RepoRef, when: str) -> None:
    fault(standin, {"kind": "delay", "seconds": 60, "when": when}, method="POST", path=COMMENTS)
    async with Forge(standin.url, redact.Secret("t", lambda: TOKEN), timeout_s=0.3) as hasty:
        assert await hasty.create_comment(repo, 1, "answer") == Unknown(codes.FORGE_TIMEOUT)
    assert len(said(standin)) == int(when == "after")


async def test_a_comment_on_an_issue_that_is_not_there_is_unknown(forge: Forge, repo: RepoRef) -> None:
    # The forge answers 500, which says nothing; the read-back will tell.
    assert await forge.create_comment(repo, 99, "answer") == Unknown(codes.FORGE_ERROR)


async def test_a_forge_that_is_not_there_got_nothing(tmp_path: Path) -> None:
    with StandIn(tmp_path / "gone") as server:
        url = server.url
    async with Forge(url, redact.Secret("t", lambda: TOKEN), timeout_s=5) as forge:
        outcome = await forge.create_comment(RepoRef("a", "b"), 1, "x")
        assert outcome == Unknown(codes.FORGE_UNREACHABLE, sent=False)
        with pytest.raises(Unavailable) as nobody:
            await forge.get_user()
        assert nobody.value.code == codes.FORGE_UNREACHABLE


Prepare = Callable[[dict[str, Callable[..., Any]]], object]


@pytest.mark.parametrize(
    ("prepare", "status", "code"),
    [
        (lambda verbs: verbs["revoke"](login="codebot"), 401, codes.FORGE_AUTH),
        (lambda verbs: verbs["repo_settings"](repo="acme/widgets", archived=True), 423, codes.FORGE_LOCKED),
        (lambda verbs: verbs["repo_settings"](repo="acme/widgets", private=True), 404, codes.FORGE_NOT_FOUND),
    ],
)
async def test_a_definite_refusal(
    standin: StandIn, forge: Forge, repo: RepoRef, prepare: Prepare, status: int, code: str
) -> None:
    standin.verbs["collaborator"](repo="acme/widgets", login="codebot", permission="none")
    prepare(standin.verbs)
    outcome = await forge.create_comment(repo, 1, "answer")
    assert isinstance(outcome, Refused)
    assert (outcome.status, outcome.code) == (status, code)
    assert said(standin) == []


async def test_a_locked_thread_refuses_with_the_forges_words(standin: StandIn, forge: Forge, repo: RepoRef) -> None:
    standin.verbs["collaborator"](repo="acme/widgets", login="codebot", permission="read")
    standin.verbs["lock"](repo="acme/widgets", number=1)
    outcome = await forge.create_comment(repo, 1, "answer")
    assert isinstance(outcome, Refused)
    assert (outcome.status, outcome.code) == (403, codes.FORGE_DENIED)
    assert "locked" in outcome.message
    assert isinstance(await forge.create_comment(repo, 1, ""), Refused)


@pytest.mark.parametrize("status", [400, 405, 409, 413, 422, 429, 451])
async def test_every_other_4xx_is_a_refusal_with_a_known_code(
    standin: StandIn, forge: Forge, repo: RepoRef, status: int
) -> None:
    fault(standin, {"kind": "answer", "status": status, "body": "<html>no"}, method="POST")
    outcome = await forge.create_comment(repo, 1, "answer")
    assert isinstance(outcome, Refused)
    assert codes.known(outcome.code)
    assert outcome.message == ""


# --- redirects --------------------------------------------------------------------------------------------------------


async def test_a_renamed_repository_is_reported_and_nothing_is_written_or_lost(
    standin: StandIn, forge: Forge, repo: RepoRef
) -> None:
    standin.verbs["rename"](repo="acme/widgets", name="gadgets")
    for call in (forge.get_issue(repo, 1), forge.list_issue_comments(repo, 1), forge.create_comment(repo, 1, "x")):
        with pytest.raises(Moved) as moved:
            await call
        assert (moved.value.owner, moved.value.name) == ("acme", "gadgets")
        assert moved.value.code == codes.FORGE_MOVED
    assert standin.verbs["comments"](repo="acme/gadgets", number=1) == []
    now = RepoRef(moved.value.owner, moved.value.name, repo.native_id)
    assert isinstance(await forge.create_comment(now, 1, "x"), Done)


async def test_without_the_number_a_redirect_cannot_be_followed(standin: StandIn, forge: Forge) -> None:
    standin.verbs["rename"](repo="acme/widgets", name="gadgets")
    with pytest.raises(Unavailable) as lost:
        await forge.get_issue(RepoRef("acme", "widgets"), 1)
    assert lost.value.code == codes.FORGE_MOVED


@pytest.mark.parametrize("status", [301, 307, 308])
async def test_a_redirect_elsewhere_never_gets_the_token(
    standin: StandIn, forge: Forge, repo: RepoRef, tmp_path: Path, status: int
) -> None:
    with StandIn(tmp_path / "other") as other:
        where = f"{other.url}/api/v1/repos/acme/widgets/issues/1/comments"
        fault(standin, {"kind": "redirect", "status": status, "location": where}, method="POST")
        with pytest.raises(Unavailable) as refused:
            await forge.create_comment(repo, 1, "x")
        assert refused.value.code == codes.FORGE_ERROR
        assert list(other.log) == []


# --- reads that cannot be trusted -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ({"kind": "drop_before"}, codes.FORGE_UNREACHABLE),
        ({"kind": "drop_midway"}, codes.FORGE_UNREACHABLE),
        ({"kind": "cut"}, codes.FORGE_BAD_ANSWER),
        ({"kind": "garble"}, codes.FORGE_BAD_ANSWER),
        ({"kind": "answer", "status": 500}, codes.FORGE_ERROR),
        ({"kind": "answer", "status": 502, "body": "<html>"}, codes.FORGE_ERROR),
        ({"kind": "answer", "status": 422, "body": "{}"}, codes.FORGE_ERROR),
        ({"kind": "answer", "status": 429}, codes.FORGE_RATE_LIMITED),
        ({"kind": "answer", "status": 200, "body": "{}"}, codes.FORGE_BAD_ANSWER),
        ({"kind": "answer", "status": 200, "body": "[" * 50_000}, codes.FORGE_BAD_ANSWER),
        ({"kind": "answer", "status": 200, "body": '[{"id":"1"}]'}, codes.FORGE_BAD_ANSWER),
        (
            {"kind": "answer", "status": 200, "body": '[{"id":1,"body":"","created_at":"x","updated_at":"x"}]'},
            codes.FORGE_BAD_ANSWER,
        ),
    ],
)
async def test_a_read_that_failed_is_never_an_empty_answer(  # GW-R-167
    standin: StandIn, forge: Forge, repo: RepoRef, action: dict[str, Any], code: str
) -> None:
    standin.verbs["comment"](repo="acme/widgets", number=1, author="alice", body="x")
    fault(standin, action, method="GET", path=COMMENTS)
    with pytest.raises(Unavailable) as failed:
        await forge.list_issue_comments(repo, 1)
    assert failed.value.code == code
    assert explain(failed.value) == code


async def test_an_unknown_issue_has_no_comment_list(forge: Forge, repo: RepoRef) -> None:
    with pytest.raises(Unavailable):
        await forge.list_issue_comments(repo, 99)


async def test_an_answer_over_the_limit_is_not_taken(standin: StandIn, repo: RepoRef) -> None:
    standin.verbs["comment"](repo="acme/widgets", number=1, author="alice", body="x" * 5000)
    async with Forge(standin.url, redact.Secret("t", lambda: TOKEN), max_bytes=2000) as forge:
        with pytest.raises(Unavailable) as failed:
            await forge.list_issue_comments(repo, 1)
        assert failed.value.code == codes.FORGE_TOO_LARGE


async def test_a_null_author_is_nobody(standin: StandIn, forge: Forge, repo: RepoRef) -> None:
    row = '[{"id":1,"user":null,"body":"b","created_at":"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:00Z"}]'
    fault(standin, {"kind": "answer", "status": 200, "body": row}, method="GET", path=COMMENTS)
    (comment,) = await forge.list_issue_comments(repo, 1)
    assert (comment.author_id, comment.author_login) == (-1, "Ghost")


# --- secrets and laws -------------------------------------------------------------------------------------------------


async def test_the_token_is_read_at_each_request(standin: StandIn, repo: RepoRef) -> None:
    values = ["wrong-token", "wrong-token", TOKEN]
    async with Forge(standin.url, redact.Secret("t", lambda: values.pop(0) + "\n")) as forge:
        with pytest.raises(Denied) as refused:
            await forge.get_issue(repo, 1)
        assert refused.value.code == codes.FORGE_AUTH
        assert (await forge.get_issue(repo, 1)).number == 1


@pytest.mark.parametrize("value", ["", " ", "two words", "line\nline", "größe", "a\x00b"])
async def test_what_is_no_token_is_refused_without_being_shown(standin: StandIn, repo: RepoRef, value: str) -> None:
    async with Forge(standin.url, redact.Secret("file:/run/token", lambda: value)) as forge:
        with pytest.raises(Denied) as refused:
            await forge.create_comment(repo, 1, "x")
    assert "file:/run/token" in str(refused.value)
    assert not value.strip() or value not in str(refused.value)
    assert refused.value.__cause__ is None
    assert said(standin) == []


async def test_an_error_message_of_the_forge_never_carries_a_secret(
    standin: StandIn, forge: Forge, repo: RepoRef
) -> None:
    body = '{"message":"no \\u0000 for token ' + TOKEN + "\\nat all " + "x" * 500 + '"}'
    fault(standin, {"kind": "answer", "status": 403, "body": body}, method="POST")
    outcome = await forge.create_comment(repo, 1, "x")
    assert isinstance(outcome, Refused)
    assert TOKEN not in outcome.message
    assert "\n" not in outcome.message
    assert len(outcome.message) <= 200


async def test_no_request_inside_a_command(forge: Forge, repo: RepoRef) -> None:  # K6
    with inside_command(), pytest.raises(Bug, match="a request to the forge inside a command"):
        await forge.get_issue(repo, 1)


async def test_a_proxy_of_the_environment_is_not_used(
    monkeypatch: pytest.MonkeyPatch, standin: StandIn, repo: RepoRef
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with Forge(standin.url, redact.Secret("t", lambda: TOKEN)) as forge:
        assert (await forge.get_issue(repo, 1)).number == 1


async def test_many_requests_at_once(forge: Forge, repo: RepoRef) -> None:
    done = await asyncio.gather(*(forge.create_comment(repo, 1, str(n)) for n in range(20)))
    assert len({outcome.id for outcome in done if isinstance(outcome, Done)}) == 20
    assert len(await forge.list_issue_comments(repo, 1)) == 20


async def test_a_token_that_was_replaced_is_used_without_a_restart(standin: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    fresh = "0123456789abcdef0123456789abcdef01234567"
    reads = 0

    def read() -> str:
        nonlocal reads
        reads += 1
        if reads == 2:
            # Somebody changes it between two reads.
            standin.verbs["token"](login="codebot", value=fresh)
            standin.verbs["revoke"](token=TOKEN)
            return TOKEN
        return file.read_text() if reads < 2 else fresh

    async with Forge(standin.url, redact.Secret("file:token", read), timeout_s=10) as client:
        assert (await client.get_user()).name == "codebot"
        assert (await client.get_user()).name == "codebot"
        assert reads == 3
        standin.verbs["revoke"](login="codebot")
        with pytest.raises(Denied) as refused:
            await client.get_user()
        assert refused.value.code == codes.FORGE_AUTH
        # The same token again: it is asked once, not for ever.
        assert reads == 5
    assert fresh not in redact.clean(f"a {fresh}")
