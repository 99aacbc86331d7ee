"""What the model does: rules that match a request, steps that are walked, actions that are played.

Every word of a scenario is checked when it is loaded, so that a typing error is a sentence and not a model that does
something else.
"""

from __future__ import annotations

import importlib.util
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stationmaster.standins.responses_model.asked import Asked, Json

Source = str | Path | Json | list[Any] | Callable[[Asked, Json], Any]

# The first key of an action is its kind; the values are the other keys it may have.
_ACTIONS: dict[str, frozenset[str]] = {
    "text": frozenset({"phase", "chunks", "chunk_delay", "open"}),
    "reasoning": frozenset(),
    "shell": frozenset({"args"}),
    "patch": frozenset(),
    "call": frozenset(),
    "mcp": frozenset(),
    "code": frozenset(),
    "event": frozenset(),
    "delay": frozenset(),
    "hold": frozenset({"timeout"}),
    "http": frozenset({"body", "headers"}),
    "cut": frozenset(),
    "failed": frozenset(),
    "incomplete": frozenset(),
    "usage": frozenset(),
    "end": frozenset(),
}
_WHEN = frozenset({"user", "any", "instructions", "model", "tool", "header"})
_CUTS = frozenset({"close", "reset", "refuse"})
_PLACE = re.compile(r"\$\{(user|last_output|n|[1-9])\}")


class ScenarioError(ValueError):
    """The scenario says something the model cannot do."""


class Scenario:
    """A parsed scenario with its counters.

    The source is a JSON or Python file, plain data, a list of steps, or a function `decide(asked, memory)`.
    """

    def __init__(self, source: Source | None = None) -> None:
        self._lock = threading.Lock()
        self._walked: dict[tuple[Any, ...], int] = {}
        self._memory: Json = {}
        self._decide: Callable[[Asked, Json], Any] | None = None
        loaded = _load(source)
        if callable(loaded):
            self._decide = loaded
            self._rules: list[Json] = []
            self.models = ["scripted-model"]
            return
        self._rules = _rules(loaded)
        self.models = list(loaded.get("models") or ["scripted-model"])

    def actions(self, asked: Asked) -> list[Json]:
        """Returns the actions that answer this request, placeholders filled in; counts the request."""
        if self._decide is not None:
            with self._lock:
                step = self._decide(asked, self._memory)
            return [_filled(action, asked, ()) for action in _step(step)]
        for index, rule in enumerate(self._rules):
            groups = _match(rule["when"], asked)
            if groups is not None:
                steps = rule["steps"]
                at = len(asked.outputs) if rule["advance"] == "tool" else self._count(index, asked)
                return [_filled(action, asked, groups) for action in steps[min(at, len(steps) - 1)]]
        return [{"text": "ok"}]

    def reset(self) -> None:
        """Forgets how far each conversation has come."""
        with self._lock:
            self._walked.clear()
            self._memory.clear()

    def _count(self, index: int, asked: Asked) -> int:
        key = (index, asked.thread, asked.turn, asked.user)
        with self._lock:
            at = self._walked.get(key, 0)
            self._walked[key] = at + 1
        return at


def _load(source: Source | None) -> Json | Callable[[Asked, Json], Any]:
    if source is None:
        return {}
    if isinstance(source, list):
        return {"default": source}
    if isinstance(source, dict) or callable(source):
        return source
    path = Path(source)
    if path.suffix == ".py":
        return _python(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ScenarioError(f"{path}: not JSON: {error}.") from error
    if not isinstance(data, dict):
        raise ScenarioError(f"{path}: a scenario is an object with rules and default.")
    return data


def _python(path: Path) -> Callable[[Asked, Json], Any]:
    spec = importlib.util.spec_from_file_location("scenario", path)
    if spec is None or spec.loader is None:
        raise ScenarioError(f"{path}: cannot be loaded.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    decide: Callable[[Asked, Json], Any] | None = getattr(module, "decide", None)
    if decide is None:
        raise ScenarioError(f"{path}: has no function decide(asked, memory).")
    return decide


def _rules(data: Json) -> list[Json]:
    unknown = set(data) - {"rules", "default", "models"}
    if unknown:
        raise ScenarioError(f"A scenario has no {sorted(unknown)}.")
    rules = [_rule(rule) for rule in data.get("rules") or []]
    return [*rules, _rule({"steps": data.get("default") or ["ok"]})]


def _rule(rule: Json) -> Json:
    when, advance = rule.get("when") or {}, rule.get("advance", "request")
    if set(rule) - {"when", "advance", "steps"} or set(when) - _WHEN:
        raise ScenarioError(f"A rule has when, advance and steps; when has {sorted(_WHEN)}: {rule!r}.")
    if advance not in {"request", "tool"}:
        raise ScenarioError(f"advance is request or tool, not {advance!r}.")
    steps = rule.get("steps")
    if not isinstance(steps, list) or not steps:
        raise ScenarioError(f"A rule needs a list of steps: {rule!r}.")
    return {"when": when, "advance": advance, "steps": [_step(step) for step in steps]}


def _step(step: Any) -> list[Json]:
    listed = step if isinstance(step, list) else [step]
    actions = [_action({"text": action} if isinstance(action, str) else action) for action in listed]
    refusals = [at for at, action in enumerate(actions) if "http" in action or action.get("cut") == "refuse"]
    if refusals and any(not {"delay", "hold"} & set(action) for action in actions[: refusals[0]]):
        raise ScenarioError(f"Only waiting may come before an HTTP error or a refusal: {step!r}.")
    return actions


def _action(action: Any) -> Json:
    if not isinstance(action, dict):
        raise ScenarioError(f"An action is text or an object: {action!r}.")
    kinds = [key for key in action if key in _ACTIONS]
    if len(kinds) != 1:
        raise ScenarioError(f"An action has exactly one of {sorted(_ACTIONS)}: {action!r}.")
    unknown = set(action) - {kinds[0]} - _ACTIONS[kinds[0]]
    if unknown:
        raise ScenarioError(f"The action {kinds[0]} has no {sorted(unknown)}: {action!r}.")
    if "cut" in action and action["cut"] not in _CUTS:
        raise ScenarioError(f"cut is one of {sorted(_CUTS)}: {action!r}.")
    return action


def _match(when: Json, asked: Asked) -> tuple[str, ...] | None:
    """Returns the groups that the `user` pattern caught when every condition holds, else None."""
    groups: tuple[str, ...] = ()
    for key, wanted in when.items():
        if key == "tool":
            if not any(wanted in tool for tool in asked.tools):
                return None
        elif key == "header":
            if not all(re.search(pattern, asked.headers.get(name.lower(), "")) for name, pattern in wanted.items()):
                return None
        else:
            found = re.search(wanted, _subject(key, asked), re.DOTALL)
            if found is None:
                return None
            if key == "user":
                groups = tuple(group or "" for group in found.groups())
    return groups


def _subject(key: str, asked: Asked) -> str:
    if key == "user":
        return asked.user
    return json.dumps(asked.body, ensure_ascii=False) if key == "any" else str(asked.body.get(key) or "")


def _filled(value: Any, asked: Asked, groups: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_filled(part, asked, groups) for part in value]
    if isinstance(value, dict):
        return {key: _filled(part, asked, groups) for key, part in value.items()}
    if not isinstance(value, str):
        return value

    def known(place: re.Match[str]) -> str:
        name = place.group(1)
        if name.isdigit():
            return groups[int(name) - 1] if int(name) <= len(groups) else ""
        return {"user": asked.user, "n": str(asked.n), "last_output": asked.last_output}[name]

    return _PLACE.sub(known, value)
