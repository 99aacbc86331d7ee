"""What the pages show: the same facts as the other doors, in both languages, whatever strangers wrote."""

from __future__ import annotations

import html
import json
import re
from importlib import resources

import pytest

from stationmaster.control.console.words import WORDS
from stationmaster.gitea import actions, codes
from stationmaster.jobs import actions as jobs
from stationmaster.jobs.model import RunEvent
from tests.control.conftest import Running
from tests.control.console.person import Crowd
from tests.gitea.rig import Rig

HOSTILE = "<script>alert(1)</script> \"'><img src=x onerror=alert(2)> \u202eevil\u200b {{7*7}} &amp; \x07"


def worked(rig: Rig, number: int = 12, **more: str) -> str:
    """Brings a task to where its agent has said something and its answer is proven."""
    task_id, run_id = rig.ask(number, **more), actions.new_run_id()
    lease = rig.claimed(task_id)
    rig.do(actions.open_turn, task_id, lease, run_id, "home", kind="normal", head="a" * 40)
    rig.advance(task_id, "start", lease)
    task = rig.task(task_id)
    rig.do(actions.bind_thread, task, "th-1", "tools-1", why=None)
    rig.do(actions.bind_turn, task, run_id, "tu-1", "th-1")
    said = {"kind": "agent_message", "text": f"Looked. {HOSTILE}"}
    rig.ledger.hot(jobs.append, run_id, [RunEvent(1, rig.clock.now(), "agent_message", json.dumps(said))])
    rig.do(actions.end_turn, task, run_id, "complete", None, "These were my words.")
    rig.leave(task_id, "fail", lease, error_code=codes.TURN_FAILED)
    return task_id


async def test_the_overview_says_first_whether_somebody_is_needed(crowd: Crowd, rig: Rig) -> None:  # GW-R-214
    person = await crowd.logged_in()
    assert "Nothing needs you." in await person.go("/")
    task_id = rig.ask()
    rig.leave(task_id, "block", rig.claimed(task_id), error_code=codes.WORKSPACE_DIRTY)
    await person.go("/")
    assert "1 need you" in person.said("state")
    assert f'/console/tasks/{task_id}"' in person.page
    assert "blocked" in person.page


async def test_a_tasks_page_tells_where_it_stands_and_why(crowd: Crowd, rig: Rig) -> None:  # GW-R-216
    task_id = worked(rig)
    person = await crowd.logged_in()
    await person.go(f"/tasks/{task_id}")
    assert person.said("state") == "failed"
    assert person.said("why") == "It could not be done."
    assert codes.text(codes.TURN_FAILED) in person.said("error")
    assert "do it again" in person.said("todo")
    for shown in (
        "th-1",
        "tu-1",
        "These were my words.",
        "Looked.",
        "/srv/workspaces/repositories/",
        "received → queued",
    ):
        assert shown in html.unescape(person.page), shown
    assert 'href="https://gitea.example.com/acme/widgets/issues/12"' in person.page
    assert person.page.count("<h1>") == 1
    assert '<svg class="states"' in person.page


async def test_a_queued_task_says_what_it_waits_for(crowd: Crowd, rig: Rig) -> None:
    first, behind = rig.ask(1), rig.ask(1)
    person = await crowd.logged_in()
    await person.go(f"/tasks/{first}")
    assert person.said("why") == "It waits for this: a free worker."
    await person.go(f"/tasks/{behind}")
    assert "an earlier task of its thread" in person.said("why")
    rig.pause()
    await person.go(f"/tasks/{first}")
    assert "the product is paused" in person.said("why")


async def test_what_strangers_wrote_is_text_and_nothing_else(crowd: Crowd, rig: Rig) -> None:
    task_id = worked(rig, body=f"@codebot {HOSTILE}")
    person = await crowd.logged_in()
    for path in (f"/tasks/{task_id}", "/tasks", "/", "/audit"):
        page = await person.go(path)
        assert "<script>alert" not in page
        assert "<img" not in page
        assert "\u202e" not in page
        assert "\u200b" not in page
        assert "49" not in page.partition("{{7*7}}")[0][-20:]
    await person.go(f"/tasks/{task_id}")
    assert "[U+202E]evil[U+200B]" in person.page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in person.page


async def test_a_long_text_is_cut_and_given_whole_as_a_file(crowd: Crowd, rig: Rig) -> None:
    text = "word " * 50_000 + "<script>end</script>"
    task_id = rig.ask(body=f"@codebot {text}")
    person = await crowd.logged_in()
    page = await person.go(f"/tasks/{task_id}")
    assert len(page) < 60_000
    (link,) = re.findall(r'href="/console(/tasks/[^"]+/text/instruction)"', page)
    assert (await person.go(link)).endswith("<script>end</script>")
    assert person.headers["content-type"].startswith("text/plain")
    assert person.headers["content-disposition"].startswith("attachment")
    assert person.headers["x-content-type-options"] == "nosniff"
    await person.go(f"/tasks/{task_id}/text/secrets")
    assert person.status == 404


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {1, 2, 3}),
        ("q=Green", {2}),
        ("q=%25", {3}),
        ("q=_", set()),
        ("state=failed", {1}),
        ("state=queued&author=BOB", {3}),
        ("repo=default:acme/gears", {3}),
        ("repo=default:acme", set()),
        ("thread=default:acme/widgets:issue:2", {2}),
        ("since=2000-01-01&until=2000-01-02", set()),
    ],
)
async def test_tasks_are_found_by_what_is_known_of_them(
    crowd: Crowd, rig: Rig, query: str, found: set[int]
) -> None:  # GW-R-215
    named = {
        1: rig.ask(1, body="@codebot paint it red"),
        2: rig.ask(2, body="@codebot paint it GREEN"),
        3: rig.ask(3, body="@codebot 100% blue", who=(9, "bob"), repo=(99, "acme", "gears")),
    }
    rig.give_up(named[1], codes.GIT_REPO_MISSING, rig.claimed(named[1]), retryable=False)
    person = await crowd.logged_in()
    page = await person.go(f"/tasks?{query}")
    assert {number for number, task_id in named.items() if task_id in page} == found


@pytest.mark.parametrize("query", ["state=lost", "since=yesterday", "thread=somewhere", "before=x", "until=2026-13-01"])
async def test_a_search_that_cannot_be_understood_is_told(crowd: Crowd, query: str) -> None:
    person = await crowd.logged_in()
    await person.go(f"/tasks?{query}")
    assert person.status == 400
    assert person.said("problem")


async def test_pages_of_tasks_join_without_gap_or_repeat(crowd: Crowd, rig: Rig) -> None:
    made = [rig.ask(number) for number in range(1, 71)]
    person = await crowd.logged_in()
    first = await person.go("/tasks?q=please")
    (older,) = re.findall(r'href="/console(/tasks\?[^"]+)" rel="next"', first)
    second = await person.go(html.unescape(older))
    shown = [set(re.findall(r"/console/tasks/(gitea-task-\w+)", page)) for page in (first, second)]
    assert (len(shown[0]), len(shown[1])) == (50, 20)
    assert shown[0] | shown[1] == set(made)


async def test_the_audit_is_searched_and_exported_whole(crowd: Crowd, rig: Rig) -> None:  # GW-R-227
    task_id = rig.ask()
    rig.ask(13)
    person = await crowd.logged_in()
    page = await person.go(f"/audit?taskId={task_id}")
    assert "webhook.accept" in page
    (link,) = re.findall(r'href="/console(/audit\.ndjson\?[^"]*)"', page)
    lines = [json.loads(line) for line in (await person.go(html.unescape(link))).splitlines()]
    assert {line["taskId"] for line in lines} == {task_id}
    assert "task.enqueue" in {line["action"] for line in lines}
    await person.go("/audit?since=never")
    assert (person.status, "is not a time" in person.said("problem")) == (400, True)


async def test_settings_show_where_secrets_are_and_not_what_they_are(crowd: Crowd) -> None:
    person = await crowd.logged_in()
    page = await person.go("/settings")
    assert "gitea.token_ref" in page
    assert "file:/srv/token" in page


async def test_health_says_what_is_waited_for(running: Running, crowd: Crowd) -> None:
    person = await crowd.logged_in()
    assert "Ready: deliveries are taken" in await person.go("/health")
    running.stopping = True
    assert "Not ready" in await person.go("/health")


async def test_in_chinese_no_english_sentence_is_left(crowd: Crowd, rig: Rig) -> None:
    task_id = worked(rig)
    person = await crowd.logged_in()
    await person.post("/choose", {"lang": "zh", "back": "/console/"})
    for path in ("/", "/tasks", f"/tasks/{task_id}", "/repositories", "/limits", "/audit", "/health", "/settings"):
        page = html.unescape(await person.go(path))
        for english, chinese in WORDS.values():
            if len(english) > 12 and "{" not in english and english != chinese:
                assert english not in page, (path, english)


def test_both_languages_say_the_same_things() -> None:
    for key, (english, chinese) in WORDS.items():
        assert english, key
        assert chinese, key
        assert set(re.findall(r"{(\w+)}", english)) == set(re.findall(r"{(\w+)}", chinese)), key


def test_no_template_has_words_of_its_own() -> None:
    folder = resources.files("stationmaster.control.console").joinpath("templates")
    for file in folder.iterdir():
        text = re.sub(r"\{%.*?%\}|\{\{.*?\}\}|<[^>]*>", " ", file.read_text(), flags=re.DOTALL)
        assert not re.findall(r"[A-Za-z]{3,}", text), file.name
