"""The console as people use it: reading, acting, live, without scripts, by keyboard, on a phone, in the dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from stationmaster.gitea import codes
from tests.console.conftest import Place
from tests.control.console.test_pages import HOSTILE, worked

PATHS = ("/console/", "/console/tasks", "/console/repositories", "/console/limits", "/console/audit", "/console/health",
         "/console/settings")  # fmt: skip


def open_act(page: Page, verb: str, reason: str) -> None:
    act = page.get_by_test_id(f"action-{verb}")
    act.locator("summary").click()
    act.locator("input[name=reason]").fill(reason)


def test_from_the_overview_to_the_proof(place: Place) -> None:
    task_id = worked(place.rig)
    page = place.logged_in()
    expect(page.get_by_test_id("state")).to_contain_text("1 need you")
    page.get_by_test_id("needing").get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(task_id))
    expect(page.get_by_test_id("proof")).to_contain_text("received → queued → preparing → running → failed")
    expect(page.get_by_test_id("events")).to_contain_text("Looked.")
    link = page.locator("#now a")
    expect(link).to_have_attribute("href", "https://gitea.example.com/acme/widgets/issues/12")
    page.get_by_role("link", name="Tasks", exact=True).click()
    expect(page.get_by_test_id("tasks")).to_contain_text("failed")


def test_an_act_and_a_second_click(place: Place) -> None:
    task_id = place.rig.ask()
    page = place.logged_in(path=f"/console/tasks/{task_id}")
    open_act(page, "cancel", "not needed")
    page.get_by_test_id("action-cancel").locator("button").dblclick()
    expect(page.get_by_test_id("flash")).to_have_text("Done: Cancel.")
    assert place.rig.state(task_id) == "cancelled"
    assert len(place.rig.events("task.cancel")) == 1
    page.go_back()
    page.go_back()
    place.rig.ask(77)
    again = page.get_by_test_id("action-cancel")
    if again.count():
        open_act(page, "cancel", "not needed")
        again.locator("button").click()
        expect(page.get_by_test_id("state")).to_have_text("cancelled")
    assert len(place.rig.events("task.cancel")) == 1


def test_a_page_that_is_open_shows_what_happens(place: Place) -> None:
    task_id = place.rig.ask()
    page = place.logged_in(path=f"/console/tasks/{task_id}")
    expect(page.locator("#live")).to_have_text("Live")
    open_act(page, "cancel", "typed but not sent")
    lease = place.rig.running(task_id)
    expect(page.get_by_test_id("state")).to_have_text("running")
    # What somebody is typing stays, although the act is no longer possible; sending it says so.
    assert page.locator("input[name=reason]").input_value() == "typed but not sent"
    page.get_by_test_id("action-cancel").locator("button").click()
    expect(page.get_by_test_id("problem")).to_contain_text("is running; only one that is queued")
    place.rig.leave(task_id, "fail", lease, error_code=codes.TURN_FAILED)
    expect(page.get_by_test_id("state")).to_have_text("failed")
    place.troubles[:] = [each for each in place.troubles if "409" not in each]  # the browser's word for a refusal


def test_without_scripts_everything_reads_and_acts(place: Place) -> None:
    task_id = place.rig.ask()
    page = place.logged_in(java_script_enabled=False)
    for path in (*PATHS, f"/console/tasks/{task_id}"):
        page.goto(path)
        expect(page.locator("h1")).to_have_count(1)
    open_act(page, "cancel", "not needed")
    page.get_by_test_id("action-cancel").locator("button").click()
    expect(page.get_by_test_id("flash")).to_have_text("Done: Cancel.")
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_test_id("state")).to_have_text("已取消")
    page.get_by_role("button", name="退出登录").click()
    expect(page.locator("#key")).to_be_visible()


def test_hostile_text_runs_nothing_and_hides_nothing(place: Place) -> None:
    long = "word " * 200_000
    worked(place.rig, 1, body=f"@codebot {HOSTILE}")
    task_id = place.rig.ask(2, body=f"@codebot {HOSTILE} {long}", who=(9, "eve"))
    page = place.logged_in()
    for path in ("/console/", "/console/tasks?q=alert", f"/console/tasks/{task_id}", "/console/audit"):
        page.goto(path)
        expect(page.locator("h1")).to_be_visible()
        assert page.evaluate("document.querySelectorAll('main img, main script, main b').length") == 0
    page.goto(f"/console/tasks/{task_id}")
    expect(page.locator("#asked")).to_contain_text("[U+202E]evil")
    with page.expect_download() as got:
        page.locator("#asked a").click()
    assert got.value.suggested_filename == "instruction.txt"


def test_by_keyboard_alone(place: Place) -> None:
    task_id = place.rig.ask()
    page = place.page()
    page.goto(f"/console/tasks/{task_id}")
    page.keyboard.type(place.key())
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/console/tasks/{task_id}")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('details.act summary')"):
            break
    width = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert float(width.removesuffix("px")) >= 2
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("not needed")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("flash")).to_have_text("Done: Cancel.")


CONTRAST = """() => {
  const light = (text) => {
    const part = text.match(/[0-9.]+/g).map(Number).slice(0, 3).map((each) => each / 255)
      .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const ground = (each) => {
    for (let at = each; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const poor = [];
  for (const each of document.querySelectorAll("body *")) {
    const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !each.checkVisibility() || each.closest("svg")) continue;
    const [a, b] = [light(getComputedStyle(each).color), light(ground(each))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(each.outerHTML.slice(0, 120));
  }
  return poor;
}"""
ORDER = """() => ({
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  unnamed: [...document.querySelectorAll("input:not([type=hidden]):not([hidden]), select")]
    .filter((each) => !each.labels.length).map((each) => each.name),
  headings: document.querySelectorAll("h1").length,
  empty: [...document.querySelectorAll("a, button")].filter((each) => !each.textContent.trim()).length,
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "locale"), [(320, "zh-CN"), (1440, "en-GB")])
def test_every_page_fits_and_can_be_read(place: Place, scheme: str, width: int, locale: str) -> None:
    failed, task_id = worked(place.rig, 1), place.rig.ask(2)
    size = {"width": width, "height": 800}
    page = place.logged_in(viewport=size, color_scheme=scheme, locale=locale)
    for path in (*PATHS, f"/console/tasks/{failed}", f"/console/tasks/{task_id}", "/console/login"):
        page.goto(path)
        found = page.evaluate(ORDER)
        assert found == {"wide": 0, "unnamed": [], "headings": 1, "empty": 0}, path
        assert page.evaluate(CONTRAST) == [], path


def test_a_form_from_elsewhere_does_nothing(place: Place) -> None:
    page = place.logged_in()
    word = page.locator("form[action='/console/logout'] input[name=word]").input_value()
    other = page.context.new_page()
    other.goto("about:blank")
    other.set_content(
        f"<form id=f method=post action='{place.url}/console/act/pause'><input name=word value='{word}'>"
        "<input name=requestId value=x><input name=reason value=because></form>"
    )
    other.evaluate("document.getElementById('f').submit()")
    expect(other.locator("body")).to_contain_text("another site")
    assert place.rig.count("gitea_control") == 0


SHOTS = {
    "overview": ("/console/", 1200, "light"),
    "task": ("/console/tasks/{task}", 1200, "light"),
    "tasks-dark": ("/console/tasks", 1200, "dark"),
    "phone": ("/console/tasks/{task}", 320, "light"),
}


@pytest.mark.parametrize("name", SHOTS)
def test_the_pictures_of_the_handbook(place: Place, name: str, pictures: Path | None) -> None:
    for number in range(1, 9):
        worked(place.rig, number, body=f"@codebot please mend number {number}")
    path, width, scheme = SHOTS[name]
    task_id = worked(place.rig, 31, body="@codebot please say hello in Norwegian")
    place.rig.ask(30, body="@codebot please add a --shout option to greet.sh, with a check in test.sh")
    page = place.logged_in(viewport={"width": width, "height": 720}, color_scheme=scheme)
    page.goto(path.format(task=task_id))
    expect(page.locator("h1")).to_be_visible()
    taken = page.screenshot(path=pictures and pictures / f"{name}.png", type="png")
    assert taken.startswith(b"\x89PNG")
