"""Looks at the forge as an outsider and at the product's history, and says of each promise whether it was kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from stationmaster.gitea import marker
from stationmaster.ops.demo.stage import CHECKED, REPO, Stage

Json = dict[str, Any]
Chain = dict[str, list[str]]

_HIDDEN = re.compile(r"<!--.*?-->", re.DOTALL)
_CHAIN = ("deliveryId", "taskId", "sessionKey", "threadId", "turnId", "commentId")


def wrong(stage: Stage, tasks: list[Json], chains: list[Chain]) -> Iterator[str]:
    """Yields a sentence for each promise that was not kept; `tasks` are the change and the question, as shown."""
    for found, chain in zip(tasks, chains, strict=True):
        yield from _task(stage, found, chain)
    yield from _work(stage, *tasks)
    said = [each for each in stage.admin.comments(REPO, stage.issue) if each["user"]["id"] == stage.bot_id]
    expected = 2 * len(tasks)
    if len(said) != expected:
        yield f"The bot wrote {len(said)} comments instead of {expected}."


def _task(stage: Stage, found: Json, chain: Chain) -> Iterator[str]:
    task = found["task"]
    task_id = task["taskId"]
    if task["state"] != "succeeded":
        yield f"Task {task_id} ended {task['state']}: {(found['error'] or {}).get('message', 'no error is kept')}."
    receipts, answers = [], []
    for comment in stage.admin.comments(REPO, stage.issue):
        mark = marker.only(comment["body"])
        if mark is None or comment["user"]["id"] != stage.bot_id:
            continue
        if mark.comment_key == f"{task_id}:status:running":
            receipts.append(comment["id"])
        elif mark.task_id == task_id:
            answers.append(comment["id"])
    if len(receipts) != 1:
        yield f"Task {task_id} has {len(receipts)} receipts at the forge instead of one."
    if len(answers) != 1:
        yield f"Task {task_id} has {len(answers)} answers at the forge instead of one."
    elif answer_id(found) != answers[0]:
        yield f"Task {task_id} says that its answer is comment {answer_id(found)}, the forge has {answers[0]}."
    missing = [name for name in _CHAIN if not chain.get(name)]
    if missing:
        yield f"The audit of task {task_id} does not hold {', '.join(missing)}."


def _work(stage: Stage, change: Json, question: Json) -> Iterator[str]:
    if CHECKED not in "".join(output for each in stage.model.requests for output in each["outputs"]):
        yield "The agent's own check of its work did not run."
    branches = stage.admin.branches(REPO)
    branch = published(change)
    if branch is None:
        yield "The change task published no branch."
        return
    if branches.get(branch["name"]) != branch["publishedSha"]:
        yield f"The branch {branch['name']} is not at {branch['publishedSha']} at the forge."
    elif "--shout" not in stage.admin.file(REPO, branch["name"], "greet.sh"):
        yield "The branch does not hold the change."
    if "--shout" in stage.admin.file(REPO, "main", "greet.sh"):
        yield "The change is on the default branch."
    pulls = [each for each in stage.admin.pulls(REPO) if each["head"]["ref"] == branch["name"]]
    if [each["number"] for each in pulls] != [branch["pullRequest"]]:
        yield f"The forge has {len(pulls)} pull requests of {branch['name']} instead of one."
    threads = {each["session"]["threadId"] for each in (change, question)}
    if len(threads) != 1 or None in threads:
        yield "The second task did not continue the first one's thread."


def published(found: Json) -> Json | None:
    """Returns the branch that a task's conversation works on, once it is at the forge."""
    current = [each for each in found["branches"] if each["status"] == "current" and each["publishedSha"]]
    return current[0] if current else None


def answer_id(found: Json) -> int | None:
    """Returns the forge's id of a task's proven answer."""
    proven = [each for each in found["comments"] if each["kind"] == "mcp_final" and each["status"] == "confirmed"]
    return proven[0]["commentId"] if len(proven) == 1 else None


def proof_chain(stage: Stage, task_id: str) -> Chain:
    """Returns the ids that `stationmaster audit --task` finds in the history, empty when it finds none."""
    done = stage.product.command_line("audit", "--task", task_id, "--json")
    if done.returncode != 0:
        return {}
    last = done.stdout.strip().splitlines()[-1]
    chain: Chain = json.loads(last).get("chain", {})
    return chain


def thread(stage: Stage) -> Iterator[str]:
    """Yields the issue as a reader sees it: no hidden marks."""
    issue = next(each for each in stage.admin.issues(REPO) if each["number"] == stage.issue)
    yield f"#{issue['number']} {issue['title']}"
    for author, body in [
        (issue["user"]["login"], issue["body"]),
        *((each["user"]["login"], each["body"]) for each in stage.admin.comments(REPO, stage.issue)),
    ]:
        yield f"\n  {author}"
        for text in _HIDDEN.sub("", body).strip().splitlines():
            yield f"  │ {text}".rstrip()


def pull_request(stage: Stage, branch: Json) -> Iterator[str]:
    """Yields the pull request with its commits."""
    pull = next(each for each in stage.admin.pulls(REPO) if each["number"] == branch["pullRequest"])
    yield f"#{pull['number']} {pull['title']}   {pull['head']['ref']} → {pull['base']['ref']}, {pull['state']}"
    known = {each["sha"] for each in stage.admin.commits(REPO, pull["base"]["ref"])}
    for commit in stage.admin.commits(REPO, branch["name"]):
        if commit["sha"] not in known:
            yield f"  {commit['sha'][:10]}  {commit['author']}: {commit['message'].splitlines()[0]}"
