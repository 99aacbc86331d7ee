"""The pages a person's browser shows."""

from __future__ import annotations

import httpx
import pytest

from tests.standins.forge.world import REPO, World


@pytest.fixture
def browser(world: World) -> httpx.Client:
    client = httpx.Client(base_url=world.forge.url, trust_env=False, follow_redirects=True)
    world.clients.append(client)
    return client


def test_a_thread_as_a_reader_sees_it(world: World, browser: httpx.Client) -> None:
    number = world.admin.issue(REPO, "bob", "<b>Crash</b>", "text")
    comment = world.admin.comment(REPO, number, "carol", "<script>alert(1)</script> <!-- marker -->done")
    shown = browser.get(f"/{REPO}/issues/{number}")
    assert shown.headers["content-security-policy"].startswith("default-src 'none'")
    assert "&lt;b&gt;Crash&lt;/b&gt;" in shown.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; done" in shown.text
    assert f'id="issuecomment-{comment}"' in shown.text
    assert "marker" not in shown.text
    assert f"/{REPO}" in browser.get("/").text
    assert "Crash" in browser.get(f"/{REPO}").text


def test_a_pull_request_and_a_commit_show_their_diff(world: World, browser: httpx.Client) -> None:
    sha = world.admin.commit(REPO, "carol", {"new.txt": "hello\n"}, branch="b")
    number = world.admin.pull(REPO, "carol", head="b", title="Add")
    assert "+hello" in browser.get(f"/{REPO}/pulls/{number}").text
    assert "+hello" in browser.get(f"/{REPO}/commit/{sha}").text
    assert browser.get(f"/{REPO}/commit/{'0' * 40}").status_code == 404
    assert browser.get(f"/{REPO}/issues/99").status_code == 404
    assert browser.get("/acme/absent").status_code == 404


def test_the_form_writes_as_the_chosen_person(world: World, browser: httpx.Client) -> None:
    own = {"Origin": world.forge.url}
    made = browser.post(f"/{REPO}/issues", data={"author": "bob", "title": "New", "body": "text"}, headers=own)
    assert (made.status_code, made.url.path) == (200, f"/{REPO}/issues/1")
    browser.post(f"/{REPO}/issues/1", data={"author": "carol", "body": "@codebot hi\r\nthere"}, headers=own)
    assert [row["body"] for row in world.admin.comments(REPO, 1)] == ["@codebot hi\r\nthere"]
    for headers in ({}, {"Origin": "https://evil.example"}):
        foreign = browser.post(f"/{REPO}/issues/1", data={"author": "bob", "body": "x"}, headers=headers)
        assert foreign.status_code == 403
    assert len(world.admin.comments(REPO, 1)) == 1
