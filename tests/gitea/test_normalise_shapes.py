"""Whatever a payload looks like, it gives an outcome and raises nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stationmaster.gitea import codes
from stationmaster.gitea.normalise import Ignored, Normalised, Rejected, host_of, normalise, valid_name
from stationmaster.gitea.triggers import Unasked, ask
from tests.gitea.samples import ALL, payload
from tests.gitea.test_normalise import ISSUE, PULL, RULES, changed, put, read

MISSING = ["action", "comment", "issue", "repository", "sender"]


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_part_is_refused(name: str) -> None:  # GW-R-064
    found = changed(lambda data: data.pop(name))
    assert isinstance(found, Rejected)
    assert found.code == codes.INVALID_PAYLOAD
    assert name in found.message


@pytest.mark.parametrize(
    "change",
    [
        put("comment", "id", value="90001"),
        put("comment", "id", value=0),
        put("comment", "id", value=-5),
        put("comment", "id", value=2**63),
        put("comment", "id", value=1.5),
        put("comment", "id", value=None),
        put("comment", "body", value=None),
        put("comment", "body", value=["@codebot x"]),
        put("comment", "created_at", value="yesterday"),
        put("comment", "created_at", value="2026-04-06T11:07:33"),
        put("comment", "created_at", value=5),
        put("comment", value=[]),
        put("comment", value="x"),
        put("issue", "number", value="12"),
        put("issue", "number", value=0),
        put("issue", "number", value=True),
        put("issue", "pull_request", value=7),
        put("repository", "id", value="101"),
        put("repository", "owner", value=None),
        put("repository", "owner", value="acme"),
        put("repository", "clone_url", value=None),
        put("repository", "permissions", value=[]),
        put("repository", value=None),
        put("sender", value=None),
        put("sender", "id", value={}),
        put("sender", "login", value=7),
        put("sender", "login", value="a b"),
        put("sender", "login", value="<!-- x"),
        put("sender", "login", value="x" * 300),
        put("action", value=None),
        put("action", value=3),
        put("is_pull", value="yes"),
        put("pull_request", value=3),
    ],
)
def test_wrong_types_are_refused_never_raised(change: Callable[[dict[str, Any]], object]) -> None:
    found = changed(change)
    assert isinstance(found, Rejected)
    assert found.code == codes.INVALID_PAYLOAD
    assert "alice" not in found.message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff",
        b'{"action":"\xff"}',
        b'{"a":' + b"[" * 100_000,
        b"[" * 100_000,
        b'{"action":"\\ud800"}',
        b"{} {}",
        b"\xef\xbb\xbf{}",
        b'{"comment":{"id":' + b"9" * 5000 + b"}}",
    ],
)
@pytest.mark.parametrize("event", ["issue_comment", "pull_request_comment", "issues", "push", ""])
def test_what_is_no_json_object_is_refused(body: bytes, event: str) -> None:
    found = normalise({"X-Gitea-Event-Type": event, "X-Gitea-Delivery": "d"}, body, RULES)
    if event in ("issues", "push") and isinstance(found, Ignored):
        assert body.startswith(b'{"')  # only the outline of an event that starts nothing is read
        return
    assert isinstance(found, Rejected)
    assert found.code == codes.INVALID_PAYLOAD


def test_a_huge_comment_is_read() -> None:
    found = changed(put("comment", "body", value="@codebot x " + "y" * 9_000_000))
    assert isinstance(found, Normalised)
    assert len(found.comment.body) > 9_000_000


def test_a_real_push_is_no_test_delivery() -> None:
    found = changed(put("after", value="f" * 40), "push_test_delivery")
    assert isinstance(found, Ignored)
    assert found.reason == codes.NOT_A_COMMENT


def test_every_reason_and_code_is_registered() -> None:
    for sample in ALL.values():
        found = read(sample)
        assert not isinstance(found, Ignored) or codes.known(found.reason)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Gitea.Example.com/x", "gitea.example.com:443"),
        ("http://127.0.0.1:3000", "127.0.0.1:3000"),
        ("http://[::1]:3000/", "::1:3000"),
        ("http://forge", "forge:80"),
        ("ssh://forge/x", None),
        ("forge", None),
        ("", None),
        ("http://:80/", None),
        ("http://forge:port/", None),
    ],
)
def test_hosts_are_compared_with_their_ports(url: str, host: str | None) -> None:
    assert host_of(url) == host


def test_comments_found_by_reading_are_asked_the_same_way() -> None:
    assert ask("@codebot go", "codebot") == "go"
    assert ask("hello", "codebot") == Unasked(codes.NO_MENTION)
    assert ask("@codebot", "codebot") == Unasked(codes.EMPTY_INSTRUCTION)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)
paths = st.sampled_from(
    [
        (outer, inner)
        for outer in ("issue", "comment", "repository", "sender", "pull_request")
        for inner in (
            "id",
            "number",
            "login",
            "owner",
            "user",
            "body",
            "head",
            "base",
            "created_at",
            "clone_url",
            "name",
        )
    ]
)


@given(st.sampled_from([ISSUE, PULL]), paths, json_values)
def test_any_value_in_any_place_gives_an_outcome(name: str, path: tuple[str, str], value: object) -> None:
    data = payload(name)
    data.setdefault(path[0], {})[path[1]] = value
    found = normalise(ALL[name].headers, json.dumps(data).encode(), RULES)
    assert isinstance(found, Normalised | Ignored | Rejected)
    if isinstance(found, Normalised):
        assert host_of(found.repo.clone_url) in RULES.hosts
        assert valid_name(found.repo.owner)
        assert valid_name(found.repo.name)
        assert found.actor.login.isprintable()


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=4), st.binary(max_size=200))
def test_any_bytes_under_any_headers_give_an_outcome(headers: dict[str, str], body: bytes) -> None:
    assert isinstance(normalise(headers, body, RULES), Normalised | Ignored | Rejected)
