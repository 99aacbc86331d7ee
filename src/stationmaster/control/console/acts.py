"""What a person can do in the console: a form each, which asks for a reason and can be sent twice without harm.

Every act is the command that the other doors have, run by the same handler under the same grant; the id of the request
is made when the form is shown, so a second click, a reload and the back button get the first answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

from starlette.responses import RedirectResponse, Response

from stationmaster.control import change, errors, grants
from stationmaster.control.commands import Command
from stationmaster.control.console import pages, search, task, words
from stationmaster.control.console.frame import ROOT, Frame, inside
from stationmaster.errors import Denied, Invalid, NotFound, StationmasterError

_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class _Act:
    command: Command[Any, Any]
    # The wire name of what it is done to; empty when it is done to everything.
    target: str = ""


ACTS: Mapping[str, _Act] = {
    "pause": _Act(change.pause),
    "resume": _Act(change.resume),
    "catchup": _Act(change.catchup),
    "disable": _Act(change.disable, "repoKey"),
    "enable": _Act(change.enable, "repoKey"),
    "cancel": _Act(change.cancel, "taskId"),
    "abort": _Act(change.abort, "taskId"),
    "unblock": _Act(change.unblock, "taskId"),
    "retry": _Act(change.retry, "taskId"),
    "release": _Act(change.release, "taskId"),
}


async def perform(frame: Frame, form: Mapping[str, str]) -> Response:
    """Does what a form asks for and leads back to its page; what is refused is told there with the state as it is."""
    verb = frame.request.path_params["verb"]
    act, session = ACTS.get(verb), frame.session
    if act is None or session is None:
        raise NotFound("There is no such act.")
    target = form.get("target", "")
    try:
        answer = await _run(frame, act, form)
    except Denied:
        raise
    except StationmasterError as error:
        if error.kind == "bug":
            raise
        return await _refused(replace(frame, at=inside(form.get("back"))), act, target, error)
    back = inside(form.get("back"))
    if verb == "retry":
        back = f"{ROOT}/tasks/{answer['taskId']}"
    path, _, query = back.partition("?")
    told = {"asked" if answer.get("pending") else "did": verb}
    return RedirectResponse(f"{path}?{search.address(_pairs(query), **told)}", 303)


async def _run(frame: Frame, act: _Act, form: Mapping[str, str]) -> dict[str, Any]:
    reason = form.get("reason", "").strip()
    if not reason or len(reason) > _LONGEST_REASON:
        raise Invalid(words.say(frame.language)("needs_reason"), code="invalid_request")
    given = {"requestId": form.get("requestId", ""), "reason": reason}
    if act.target:
        given[act.target] = form.get("target", "")
    session = frame.session
    grant = grants.need(None if session is None else session.grant, act.command.grant)
    answer = await act.command.run(frame.console.site, grant, search.inputs(act.command.inputs, given))
    body: dict[str, Any] = answer.body
    return body


async def _refused(frame: Frame, act: _Act, target: str, error: StationmasterError) -> Response:
    told: dict[str, Any] = {"problem": str(error), "status": errors.status(error)}
    if act.target == "taskId" and not isinstance(error, NotFound):
        return await task.page(frame, task_id=target, **told)
    if act.target == "repoKey":
        return await pages.repositories(frame, **told)
    return await pages.overview(frame, **told)


def _pairs(query: str) -> dict[str, str]:
    return dict(parse_qsl(query))
