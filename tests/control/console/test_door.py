"""Who gets into the console, how long it lasts, and what a foreign site cannot do."""

from __future__ import annotations

import pytest

from stationmaster.clock import ManualClock
from stationmaster.command import Cmd
from stationmaster.control import operators
from stationmaster.ledger import history
from tests.control.conftest import Running
from tests.control.console.person import ROOT, Crowd
from tests.gitea.rig import Rig

PAGES = ("/", "/tasks", "/repositories", "/limits", "/audit", "/health", "/settings")


@pytest.mark.parametrize("path", [*PAGES, "/tasks/x", "/audit.ndjson", "/events"])
async def test_a_stranger_sees_the_login_and_nothing_else(crowd: Crowd, path: str) -> None:  # GW-R-237
    person = crowd.browser()
    page = await person.go(path)
    assert 'id="key"' in page
    assert "Log out" not in page


async def test_the_root_leads_to_the_console(crowd: Crowd) -> None:
    person = crowd.browser()
    answer = await person.client.get("/")
    assert str(answer.url).endswith(f"{ROOT}/login?next=%2Fconsole%2F")


async def test_a_login_is_kept_in_a_cookie_that_no_script_reads(running: Running, crowd: Crowd, rig: Rig) -> None:
    person = crowd.browser()
    await person.go("/login?next=%2Fconsole%2Ftasks")
    answer = await person.client.post(
        f"{ROOT}/login", data=person.form("/login") | {"key": await running.key("ann")}, follow_redirects=False
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/tasks")
    cookie = answer.headers["set-cookie"]
    for wanted in ("HttpOnly", "SameSite=lax", "Path=/console"):
        assert wanted in cookie
    value = cookie.partition("=")[2].partition(";")[0]
    stored = [str(row) for row in rig.rows("SELECT * FROM console_session")]
    assert len(stored) == 1
    assert value not in "".join(stored)
    assert [entry.name for entry in rig.ledger.read(history.by_action, "console.login")] == ["console.login"]
    over_tls = await person.client.post(
        f"{ROOT}/login", data={"key": await running.key("bob")}, headers={"X-Forwarded-Proto": "https"},
        follow_redirects=False,
    )  # fmt: skip
    assert "Secure" in over_tls.headers["set-cookie"]


async def test_a_wrong_key_is_told_and_tries_are_bounded(running: Running, crowd: Crowd) -> None:
    person = crowd.browser()
    await person.go("/login")
    for _ in range(10):
        await person.send("/login", key="smk_wrong")
        assert (person.status, person.said("problem")) == (401, "This key is not known, or it was revoked.")
    await person.send("/login", key=await running.key("ann"))
    assert person.status == 429
    assert "Too many tries" in person.said("problem")


@pytest.mark.parametrize(
    ("onward", "place"),
    [("https://evil.example/", "/console/"), ("//evil.example/", "/console/"), ("/console/../x", "/console/../x"),
     ("/console/\\evil", "/console/"), ("/api/x", "/console/"), ("/console/tasks?q=a", "/console/tasks?q=a")],
)  # fmt: skip
async def test_a_login_leads_nowhere_else(running: Running, crowd: Crowd, onward: str, place: str) -> None:
    person = crowd.browser()
    fields = {"key": await running.key("ann"), "next": onward}
    answer = await person.client.post(f"{ROOT}/login", data=fields, follow_redirects=False)
    assert answer.headers["location"] == place


async def test_a_login_ends_by_logout_by_revocation_and_by_time(
    running: Running, crowd: Crowd, clock: ManualClock
) -> None:
    person = await crowd.logged_in("ann")
    await person.send("/logout")
    assert "You are logged out." in person.page
    assert 'id="key"' in await person.go("/")
    other = await crowd.logged_in("bob")
    await running.port.do(Cmd("operator.revoke", "admin:test", "test"), operators.revoke, "bob")
    assert 'id="key"' in await other.go("/")
    idle = await crowd.logged_in("cat")
    clock.advance(28_000)
    assert "Log out" in await idle.go("/")
    clock.advance(28_000)
    assert "Log out" in await idle.go("/")
    clock.advance(28_801)
    assert 'id="key"' in await idle.go("/")


async def test_no_login_lasts_longer_than_a_week(crowd: Crowd, clock: ManualClock) -> None:
    person = await crowd.logged_in()
    for _ in range(24):
        clock.advance(25_200)
        page = await person.go("/")
    assert 'id="key"' in page


async def test_every_page_goes_out_with_the_same_walls(crowd: Crowd, rig: Rig) -> None:
    task_id = rig.ask()
    person = await crowd.logged_in()
    for path in (*PAGES, f"/tasks/{task_id}", "/nowhere", "/login"):
        await person.go(path)
        policy = person.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in policy
        assert person.headers["cache-control"] == "no-store"
        assert person.headers["x-content-type-options"] == "nosniff"
        for inline in ("<script>", "<style", " style=", " onclick", "javascript:"):
            assert inline not in person.page


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
     {"Origin": "null"}],
)  # fmt: skip
async def test_a_form_of_another_site_does_nothing(crowd: Crowd, rig: Rig, headers: dict[str, str]) -> None:
    person = await crowd.logged_in()
    await person.go("/")
    fields = person.form("/act/pause") | {"reason": "because"}
    answer = await person.client.post(f"{ROOT}/act/pause", data=fields, headers=headers)
    assert answer.status_code == 403
    assert "another site" in answer.text
    assert rig.count("gitea_control") == 0


async def test_a_form_without_the_word_of_this_login_does_nothing(crowd: Crowd, rig: Rig) -> None:
    person, other = await crowd.logged_in("ann"), await crowd.logged_in("bob")
    await person.go("/")
    await other.go("/")
    fields = person.form("/act/pause") | {"reason": "because"}
    for word in ("", other.form("/act/pause")["word"]):
        await person.post("/act/pause", fields | {"word": word})
        assert person.status == 403
    await crowd.browser().post("/act/pause", fields)
    assert rig.count("gitea_control") == 0


async def test_what_is_not_there_is_told_as_a_page(crowd: Crowd) -> None:
    person = await crowd.logged_in()
    assert "There is no such page." in await person.go("/nowhere")
    assert person.status == 404
    assert "There is no task nobody." in await person.go("/tasks/nobody")
    assert person.status == 404
    assert "does not take that" in await person.post("/tasks", {})
    assert person.status == 405
    answer = await person.client.get("/elsewhere")
    assert answer.json()["error"] == "not_found"
    assert (await person.client.get(f"{ROOT}/static/../door.py")).status_code == 404
    assert (await person.client.get(f"{ROOT}/static/console.css")).headers["content-type"].startswith("text/css")


async def test_language_and_colours_are_chosen_and_kept(crowd: Crowd) -> None:
    person = await crowd.logged_in()
    assert "Nothing needs you." in await person.go("/")
    await person.post("/choose", {"lang": "zh", "back": "/console/tasks"})
    assert '<html lang="zh-Hans"' in person.page
    assert "关键词" in person.page
    await person.post("/choose", {"theme": "dark", "back": "https://evil.example/"})
    assert 'data-theme="dark"' in await person.go("/")
    fresh = await crowd.browser().client.get(f"{ROOT}/login", headers={"Accept-Language": "zh-CN,zh;q=0.9"})
    assert "管理员密钥" in fresh.text
