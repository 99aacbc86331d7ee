from __future__ import annotations

import json
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stationmaster.gitea import signature
from tests.gitea.samples import ALL, Sample

SECRET = b"s3cr3t-for-samples"
ISSUE = ALL["issue_comment_created_issue"]
FORM = ALL["issue_comment_form"]


@pytest.mark.parametrize("sample", [s for s in ALL.values() if s.secret], ids=lambda s: s.name)
def test_every_recorded_delivery_verifies_over_its_raw_bytes(sample: Sample) -> None:  # GW-R-048
    signed = signature.verified(sample.headers, sample.body, [sample.secret])
    assert signed is not None
    json.loads(signed)
    assert signature.verified(sample.headers, sample.body, [b"another"]) is None


def test_one_flipped_byte_is_noticed() -> None:
    for at in (0, len(ISSUE.body) // 2, len(ISSUE.body) - 1):
        body = bytearray(ISSUE.body)
        body[at] ^= 1
        assert signature.verified(ISSUE.headers, bytes(body), [SECRET]) is None


def test_equal_json_with_other_blanks_is_not_the_signed_text() -> None:
    body = json.dumps(json.loads(ISSUE.body)).encode()
    assert signature.verified(ISSUE.headers, body, [SECRET]) is None


@pytest.mark.parametrize("value", [None, "", "  ", "sha256=", "0" * 64, "é" * 64, "x", "\x00", "a" * 10_000])
def test_a_missing_or_strange_signature_is_refused(value: str | None) -> None:
    headers = {k: v for k, v in ISSUE.headers.items() if "Signature" not in k}
    if value is not None:
        headers["X-Gitea-Signature"] = value
    assert signature.verified(headers, ISSUE.body, [SECRET]) is None


def test_upper_case_hex_and_any_case_of_the_header_name_are_accepted() -> None:
    good = ISSUE.headers["X-Gitea-Signature"]
    assert signature.verified({"x-gitea-SIGNATURE": good.upper()}, ISSUE.body, [SECRET]) == ISSUE.body


def test_forgejo_alone_is_accepted_but_an_empty_gitea_signature_hides_nothing() -> None:
    good = ISSUE.headers["X-Gitea-Signature"]
    assert signature.verified({"X-Forgejo-Signature": good}, ISSUE.body, [SECRET]) == ISSUE.body
    both = {"X-Gitea-Signature": "", "X-Forgejo-Signature": good}
    assert signature.verified(both, ISSUE.body, [SECRET]) is None


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("X-Forgejo-Signature", ""), ("X-Gogs-Signature", ""), ("X-Hub-Signature-256", "sha256=")],
)
def test_every_family_of_forges_names_the_same_digest(name: str, prefix: str) -> None:  # GW-R-048
    good = ISSUE.headers["X-Gitea-Signature"]
    assert signature.verified({name: prefix + good}, ISSUE.body, [SECRET]) == ISSUE.body
    for wrong in ("", prefix, prefix + "0" * 64, "sha1=" + good, prefix + prefix + "x"):
        assert signature.verified({name: wrong}, ISSUE.body, [SECRET]) is None
    # An older digest under another name is none.
    assert signature.verified({"X-Hub-Signature": "sha256=" + good}, ISSUE.body, [SECRET]) is None
    # What a better-known name says is not mended by this one.
    assert signature.verified({"X-Gitea-Signature": "0" * 64, name: prefix + good}, ISSUE.body, [SECRET]) is None


def test_an_empty_secret_accepts_nothing_not_even_its_own_signature() -> None:
    unsigned = ALL["issue_comment_no_secret"]
    assert signature.verified(unsigned.headers, unsigned.body, [b""]) is None
    assert signature.verified(unsigned.headers, unsigned.body, []) is None
    own = {"X-Gitea-Signature": signature.sign(b"", unsigned.body)}
    assert signature.verified(own, unsigned.body, [b""]) is None
    assert signature.verified(own, unsigned.body, [b"", SECRET]) is None


def test_during_a_rotation_either_secret_is_accepted() -> None:
    assert signature.verified(ISSUE.headers, ISSUE.body, [b"new", SECRET]) == ISSUE.body
    assert signature.verified(ISSUE.headers, ISSUE.body, [SECRET, b"new"]) == ISSUE.body
    assert signature.verified(ISSUE.headers, ISSUE.body, [b"new", b"newer"]) is None


def test_a_form_is_signed_over_its_decoded_field_not_over_the_body() -> None:
    signed = signature.verified(FORM.headers, FORM.body, [SECRET])
    assert signed is not None
    assert json.loads(signed)["comment"]["body"].startswith("@codebot form + ümlaut & <tag>")
    over_body = FORM.headers | {"X-Gitea-Signature": signature.sign(SECRET, FORM.body)}
    assert signature.verified(over_body, FORM.body, [SECRET]) is None


@pytest.mark.parametrize("extra", [b"&payload=%7B%7D", b"&payload="])
def test_a_form_with_two_payloads_is_refused(extra: bytes) -> None:
    assert signature.verified(FORM.headers, FORM.body + extra, [SECRET]) is None
    assert signature.verified(FORM.headers, extra[1:] + b"&" + FORM.body, [SECRET]) is None


def test_a_form_without_the_field_is_refused_even_when_its_body_is_signed() -> None:
    headers = {"Content-Type": signature.FORM, "X-Gitea-Signature": signature.sign(SECRET, b"data=%7B%7D")}
    assert signature.verified(headers, b"data=%7B%7D", [SECRET]) is None


@given(st.binary(max_size=300), st.binary(min_size=1, max_size=40))
def test_what_is_signed_verifies_in_both_encodings(body: bytes, secret: bytes) -> None:
    signed = signature.sign(secret, body)
    headers = {"Content-Type": "application/json; charset=utf-8", "X-Gitea-Signature": signed}
    assert signature.verified(headers, body, [secret]) == body
    form = {"Content-Type": signature.FORM, "X-Gitea-Signature": signed}
    assert signature.verified(form, b"payload=" + quote_plus(body).encode(), [secret]) == body


@given(st.binary(max_size=200), st.text(max_size=80), st.binary(min_size=1, max_size=20))
def test_a_guess_never_verifies_and_never_breaks(body: bytes, guess: str, secret: bytes) -> None:
    if guess.lower() != signature.sign(secret, body):
        assert not signature.valid(body, guess, [secret])
