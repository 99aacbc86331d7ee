"""Plays the demo: a mention that asks for a change, a question in the same thread, and what is left of both."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stationmaster.errors import StationmasterError
from stationmaster.ops.demo import proof
from stationmaster.ops.demo.stage import BOT, PERSON, REPO, Stage, raised
from stationmaster.ops.demo.watch import Watch
from stationmaster.standins.forge import ForgeAdmin

Json = dict[str, Any]
Say = Callable[[str], None]

# Wherever the packages are: a first-time user has not put it on the path yet.
_PROGRAM = Path(sys.executable).with_name("stationmaster")
_CHANGE = f"@{BOT} please add a --shout option to greet.sh, with a check in test.sh"
_QUESTION = f"@{BOT} what happens to names with accents when I shout?"


class _Stop:
    """Whether somebody asked the demo to end: an exception alone may be lost inside of an event loop."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, *_: object) -> None:
        self.asked = True
        raise KeyboardInterrupt

    def check(self) -> None:
        if self.asked:
            raise KeyboardInterrupt


def play(say: Say, *, keep: bool) -> int:
    """Plays the demo and returns its exit status; the last thing said is one JSON object."""
    stop = _Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with raised() as stage:
            result = _play(stage, say, stop)
            say(json.dumps(result))
            if keep:
                with contextlib.suppress(KeyboardInterrupt):
                    _stay(stage, say)
            return 0 if result["ok"] else 1
    except (StationmasterError, OSError) as error:
        return _ended(say, stop, error)
    # Whatever the interrupt has become on its way out.
    except BaseException as error:
        if not stop.asked:
            raise
        return _ended(say, stop, error)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ended(say: Say, stop: _Stop, error: BaseException) -> int:
    say(json.dumps({"ok": False, "error": "It was stopped." if stop.asked else str(error)}))
    return 130 if stop.asked else 1


def _play(stage: Stage, say: Say, stop: _Stop) -> Json:
    say(f"forge    {stage.forge.url}\nmodel    {stage.model.base_url}\nproduct  {stage.product.web}")
    try:
        with stage.product.door() as door:
            watch = Watch(stage.product, door, say, lambda: _steps(stage, stop))
            change = _ask(stage, watch, say, _CHANGE)
            seconds = watch.seconds()
            question = _ask(stage, watch, say, _QUESTION)
            tasks = [watch.again(change), question]
        chains = [proof.proof_chain(stage, each["task"]["taskId"]) for each in tasks]
        _show(stage, say, tasks[0], chains[0])
        wrong = list(proof.wrong(stage, tasks, chains))
    except StationmasterError as error:
        stop.check()
        return {"ok": False, "error": str(error), "log": stage.product.last_words()}
    for sentence in wrong:
        say(f"WRONG: {sentence}")
    return _result(tasks[0], seconds, wrong)


def _steps(stage: Stage, stop: _Stop) -> list[str]:
    """Returns the last line of what each command printed for the agent, each once; other tools' answers are data."""
    stop.check()
    asked = [each["outputs"][-1].strip() for each in stage.model.requests if each["outputs"]]
    return [said.splitlines()[-1][:100] for said in asked if said and "<<<BEGIN" not in said and said[0] != "{"]


def _ask(stage: Stage, watch: Watch, say: Say, text: str) -> Json:
    say(f"\n{PERSON} writes on {REPO}#{stage.issue}: {text}\n")
    comment = stage.admin.comment(REPO, stage.issue, PERSON, text)
    return watch.until_rest(lambda: _task_of(stage.admin, comment))


def _task_of(admin: ForgeAdmin, comment: int) -> str | None:
    """Returns the task that the product named when the delivery of a comment was answered."""
    for row in admin.deliveries(state="delivered"):
        if json.loads(row["payload"]).get("comment", {}).get("id") == comment:
            task_id: str | None = json.loads(row["response"]["body"]).get("taskId")
            return task_id
    return None


def _show(stage: Stage, say: Say, change: Json, chain: proof.Chain) -> None:
    say("\n── the thread, as a reader sees it " + "─" * 40)
    for text in proof.thread(stage):
        say(text)
    branch = proof.published(change)
    if branch is not None:
        say("\n── the pull request " + "─" * 55)
        for text in proof.pull_request(stage, branch):
            say(text)
    say("\n── the proof chain of the change, from history alone " + "─" * 22)
    for name, values in chain.items():
        say(f"  {name:<12} {', '.join(values)}")
    say("")


def _result(change: Json, seconds: float, wrong: list[str]) -> Json:
    task, branch = change["task"], proof.published(change) or {}
    result = {
        "ok": not wrong,
        "deliveryId": task["deliveryId"],
        "taskId": task["taskId"],
        "threadId": task["threadId"],
        "turnId": task["turnId"],
        "commentId": proof.answer_id(change),
        "commitSha": branch.get("publishedSha"),
        "pullRequest": branch.get("pullRequest"),
        "state": task["state"],
        "seconds": seconds,
    }
    return result if not wrong else {**result, "error": " ".join(wrong)}


def _stay(stage: Stage, say: Say) -> None:
    key = json.loads(stage.product.command_line("operator", "add", "demo", "--json").stdout)["key"]
    say(
        f"\nIt stays up; Ctrl-C ends it and removes everything.\n"
        f"  issue page     {stage.issue_url}   (write there as {PERSON}, mention @{BOT})\n"
        f"  forge API      {stage.forge.url}/api/v1   ({PERSON}: {stage.password}; {BOT}'s token: {stage.token})\n"
        f"  forge admin    {stage.forge.url}/__admin/\n"
        f"  model          {stage.model.base_url}   (requests: /__requests)\n"
        f"  console        {stage.product.web}/console/   (operator key: {key})\n"
        f"  product        {stage.product.web}/api/gitea-workflow/overview   (Authorization: Bearer {key})\n"
        f"  command line   {_PROGRAM} --home {stage.product.home} task list\n"
        f"  log            {stage.product.log}"
    )
    threading.Event().wait()
