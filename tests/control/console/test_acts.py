"""What is done from the console: the commands of every other door, once each, and only where they are allowed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from stationmaster.control.console import acts, words
from stationmaster.gitea import actions, codes, limits
from stationmaster.gitea.settings import LimitSettings
from tests.control.conftest import Running
from tests.control.console.person import ROOT, Crowd
from tests.gitea.rig import Rig

REPO = "default:acme/widgets"


def failed(rig: Rig, number: int = 12) -> str:
    task_id = rig.ask(number)
    rig.give_up(task_id, codes.GIT_REPO_MISSING, rig.claimed(task_id), retryable=False)
    return task_id


async def test_pause_and_resume_with_a_reason(running: Running, crowd: Crowd, rig: Rig) -> None:  # GW-R-219
    person = await crowd.logged_in("ann")
    await person.go("/")
    await person.send("/act/pause", reason="a <b>bad</b> day")
    assert person.said("flash") == "Done: Pause."
    assert "Paused by admin:ann: a &lt;b&gt;bad&lt;/b&gt; day" in person.page
    assert not person.has("/act/pause")
    (entry,) = rig.events("control.pause")
    assert (entry.actor, entry.data) == ("admin:ann", {"reason": "a <b>bad</b> day"})
    await person.send("/act/resume", reason="over")
    assert "Nothing needs you." in person.page


async def test_a_form_sent_twice_has_one_effect(crowd: Crowd, rig: Rig) -> None:  # GW-R-224
    task_id = rig.ask()
    person = await crowd.logged_in()
    await person.go(f"/tasks/{task_id}")
    form = person.form("/act/cancel") | {"reason": "not needed"}
    pages = await asyncio.gather(*(person.client.post(f"{ROOT}/act/cancel", data=form) for _ in range(4)))
    assert [page.status_code for page in pages] == [200] * 4
    assert all("Done: Cancel." in page.text for page in pages)
    assert rig.state(task_id) == "cancelled"
    assert len(rig.events("task.cancel")) == 1


async def test_what_is_refused_is_told_with_the_state_as_it_is_now(crowd: Crowd, rig: Rig) -> None:
    task_id = rig.ask()
    person = await crowd.logged_in()
    await person.go(f"/tasks/{task_id}")
    form = person.form("/act/cancel") | {"reason": "not needed"}
    lease = rig.running(task_id)
    await person.post("/act/cancel", form)
    assert person.status == 409
    assert "is running; only one that is queued" in person.said("problem")
    assert person.said("state") == "running"
    assert person.has("/act/abort")
    assert not person.has("/act/cancel")
    await person.send("/act/abort", reason="too slow")
    assert person.said("flash") == "Asked for: Stop. A worker finishes it."
    assert rig.state(task_id) == "aborting"
    assert rig.holder(task_id) == lease


async def test_a_reason_is_needed(crowd: Crowd, rig: Rig) -> None:
    task_id = rig.ask()
    person = await crowd.logged_in()
    await person.go(f"/tasks/{task_id}")
    for reason in ("", "   ", "x" * 501):
        await person.send("/act/cancel", reason=reason)
        assert (person.status, person.said("problem")) == (400, "Say why; it is kept in the audit.")
    assert rig.state(task_id) == "queued"


async def test_somebody_who_may_only_look_can_only_look(crowd: Crowd, rig: Rig) -> None:
    task_id = rig.ask()
    person, other = await crowd.logged_in("eve", "read"), await crowd.logged_in("ann")
    await other.go(f"/tasks/{task_id}")
    for path in ("/", f"/tasks/{task_id}", "/repositories", "/limits"):
        assert "may only look" in await person.go(path)
        assert "/act/" not in person.page
    word = person.form("/logout")["word"]
    await person.post("/act/cancel", other.form("/act/cancel") | {"word": word, "reason": "because"})
    assert person.status == 403
    assert rig.state(task_id) == "queued"


async def test_a_repository_is_disabled_and_enabled(crowd: Crowd, rig: Rig) -> None:
    task_id = rig.ask()
    person = await crowd.logged_in()
    await person.go("/repositories")
    await person.send("/act/disable", reason="moving")
    assert rig.repository(task_id).state == "disabled"
    assert "disabled" in person.page
    await person.send("/act/enable", reason="moved")
    assert rig.repository(task_id).state == "active"


async def test_a_task_that_is_kept_back_is_let_go(crowd: Crowd, rig: Rig) -> None:
    rig.settings = replace(rig.settings, limits=LimitSettings(all_per_hour=1))
    first = rig.ask(1)
    lease = rig.claimed(first)
    rig.do(actions.open_turn, first, lease, actions.new_run_id(), "home", kind="normal", head=None)
    rig.leave(first, "fail", lease, error_code=codes.TURN_FAILED)
    kept = rig.ask(2)
    assert rig.claim(kept) is None
    person = await crowd.logged_in()
    assert "1 kept back by a limit" in await person.go("/")
    assert "as many runs were begun as an hour allows" in await person.go("/limits")
    await person.send("/act/release", reason="urgent")
    assert person.said("flash") == "Done: Let it go."
    assert rig.ledger.read(limits.holding, kept) is None


async def test_a_task_that_failed_is_done_again_as_another(crowd: Crowd, rig: Rig) -> None:
    task_id = failed(rig)
    person = await crowd.logged_in()
    await person.go("/")
    assert "1 need you" in person.page
    await person.go(f"/tasks/{task_id}")
    assert person.said("why") == "It could not be done."
    assert codes.text(codes.GIT_REPO_MISSING) in person.said("error")
    await person.send("/act/retry", reason="mended")
    assert person.said("state") == "queued"
    assert task_id in person.page  # among the other tasks of the thread
    assert not person.has("/act/retry")


async def test_an_act_that_is_none_is_not_there(crowd: Crowd, rig: Rig) -> None:
    task_id = rig.ask()
    person = await crowd.logged_in()
    await person.go(f"/tasks/{task_id}")
    await person.post("/act/delete", person.form("/act/cancel") | {"reason": "because"})
    assert person.status == 404
    await person.go(f"/tasks/{task_id}")
    await person.send("/act/cancel", reason="because", target="nobody")
    assert person.status == 404
    assert rig.state(task_id) == "queued"


def test_every_act_has_its_words() -> None:
    for verb in acts.ACTS:
        assert {f"act_{verb}", f"about_{verb}"} <= set(words.WORDS)


@pytest.mark.parametrize("back", ["https://evil.example/", "//evil.example", "/api/x"])
async def test_an_act_leads_back_to_the_console_only(crowd: Crowd, back: str) -> None:
    person = await crowd.logged_in()
    await person.go("/")
    form = person.form("/act/pause") | {"reason": "because", "back": back}
    answer = await person.client.post(f"{ROOT}/act/pause", data=form, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/?did=pause")
