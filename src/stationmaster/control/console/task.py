"""The page of one task: where it stands and why, its proof, what the agent does, and what can be done about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import PlainTextResponse, Response

from stationmaster.control import views, watch
from stationmaster.control.console import pictures, reads, show, words
from stationmaster.control.console.frame import Frame
from stationmaster.control.console.words import Say
from stationmaster.errors import NotFound
from stationmaster.gitea import branch, codes, operate
from stationmaster.gitea.machine import TASK
from stationmaster.workspaces.paths import Layout

_PARTS = ("instruction", "last-words")
_KIND = {"good": "is-good", "bad": "is-bad", "open": "is-open"}


async def page(frame: Frame, *, problem: str | None = None, status: int = 200, task_id: str = "") -> Response:
    """Shows everything about one task, and what can be done about it."""
    named = task_id or frame.request.path_params["task_id"]
    port, t = frame.console.site.port, words.say(frame.language)
    shown = await port.read(reads.task, named)
    row = shown["task"]
    visited = [move["to_state"] for move in shown["moves"]]
    return frame.page(
        "task.html",
        status=status,
        problem=problem,
        shown=shown,
        task=row,
        life=_life(shown),
        picture=pictures.states(TASK, row["state"], visited, t("way"), lambda state: t(f"state_{state}")),
        why=_why(t, shown),
        todo=_todo(t, shown),
        error=_error(frame, shown),
        agent=[(each["at"], told) for each in shown["agent"] if (told := watch.agent_words(each["event"]))],
        acts=_acts(shown),
        links=_links(frame, shown),
        folder=_folder(frame, shown),
        longest=show.LONGEST,
        pulse=await port.read(reads.pulse, named),
        watch=named,
    )


async def text(frame: Frame) -> Response:
    """Gives a long text as a file of plain text, whatever is in it."""
    named, part = frame.request.path_params["task_id"], frame.request.path_params["part"]
    if part not in _PARTS:
        raise NotFound("There is no such text.")
    shown = await frame.console.site.port.read(views.task, named)
    whole = shown["task"]["instruction"] if part == "instruction" else shown["finalText"]
    headers = {
        "Content-Disposition": f'attachment; filename="{part}.txt"',
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "no-store",
    }
    clean = (whole or "").encode("utf-8", "replace").decode()
    return PlainTextResponse(clean, headers=headers)


def _life(shown: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns each state that a task was in: from when, how long, by whom, and its bar in the whole."""
    moves = [move for move in shown["moves"] if move["from_state"] != move["to_state"]]
    if not moves:
        return []
    first = moves[0]["at"]
    rests = moves[-1]["to_state"] in TASK.terminal
    last = moves[-1]["at"] if rests else shown["now"]
    whole = max(1, last - first)
    rows = []
    for at, move in enumerate(moves):
        end = moves[at + 1]["at"] if at + 1 < len(moves) else last
        ended = rests and at + 1 == len(moves)
        kind = _KIND[reads.outcome(move["to_state"])] if ended else "is-open"
        rows.append(
            {
                "state": move["to_state"],
                "at": move["at"],
                "lasted": None if ended else end - move["at"],
                "actor": move["actor"],
                "bar": pictures.bar((move["at"] - first) / whole, (end - first) / whole, kind),
            }
        )
    return rows


def _why(t: Say, shown: Mapping[str, Any]) -> str:
    state = shown["task"]["state"]
    what = t(f"waits_{shown['waitsFor']}") if shown["waitsFor"] else ""
    return t(f"why_{state}", what=what) if state == "queued" else t(f"why_{state}")


def _todo(t: Say, shown: Mapping[str, Any]) -> str:
    state = shown["task"]["state"]
    if state == "queued":
        return t("todo_limit") if shown["waitsFor"] == "limit" else ""
    key = f"todo_{state}"
    return t(key) if state in {"blocked_workspace", "failed_reply", "failed", "waiting_user"} else ""


def _error(frame: Frame, shown: Mapping[str, Any]) -> dict[str, Any] | None:
    error = shown["error"]
    if error is None:
        return None
    return {**error, "message": codes.text(error["code"], frame.language), "detail": error.get("detail")}


def _acts(shown: Mapping[str, Any]) -> list[str]:
    """Returns what may be asked of a task in its state: the rules are those of the commands."""
    row, found = shown["task"], []
    if row["hold"] is not None:
        found.append("release")
    if row["state"] in operate.CANCELLABLE:
        found.append("cancel")
    if row["state"] == "running":
        found.append("abort")
    if row["state"] == "blocked_workspace" and row["unblockAttempt"] < operate.MOST_UNBLOCKS:
        found.append("unblock")
    if row["state"] in TASK.terminal and shown["newest"]:
        found.append("retry")
    return found


def _links(frame: Frame, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Returns where the forge shows what a task is about; empty while no forge is configured."""
    repository = shown["repository"]
    gitea = frame.console.site.forge(repository.instance_id)
    if gitea is None or not gitea.base_url.startswith(("http://", "https://")):
        return {"thread": "", "comment": "", "commit": "", "pull": ""}
    base = f"{gitea.base_url.rstrip('/')}/{repository.owner}/{repository.name}"
    kind = "issues" if shown["session"]["kind"] == "issue" else "pulls"
    thread = f"{base}/{kind}/{shown['session']['number']}"
    return {
        "thread": thread,
        "comment": f"{thread}#issuecomment-",
        "commit": f"{base}/commit/",
        "pull": f"{base}/pulls/",
    }


def _folder(frame: Frame, shown: Mapping[str, Any]) -> str:
    root = frame.console.site.workspaces
    if root is None:
        return ""
    return str(Layout(root).tree(shown["repository"].id, branch.tree_name(shown["row"])))
