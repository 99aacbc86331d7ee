"""How a model calls a tool: the same wish takes another form for each shape in which the agent offers its tools.

A model name the agent does not know gets direct functions; current real names get "code mode", one freeform tool
`exec` that takes JavaScript; tools of a server live in a namespace of their own.
"""

from __future__ import annotations

import json
import re
from typing import Any

from stationmaster.standins.responses_model.asked import Asked, Json

_SHELLS = ("exec_command", "shell_command", "shell", "local_shell")
_CODE = "exec"


def item_of(action: Json, asked: Asked, call_id: str) -> Json | None:
    """Returns the output item (without id and status) that plays a tool action, or None for another action."""
    if "call" in action:
        return _function(asked, action["call"], call_id)
    if "mcp" in action:
        return _mcp(asked, action["mcp"], call_id)
    if "shell" in action:
        return _shell(asked, action["shell"], action.get("args") or {}, call_id)
    if "patch" in action:
        return _patch(asked, action["patch"], call_id)
    if "code" in action:
        return _script(asked, action["code"], call_id)
    return None


def _function(asked: Asked, wish: Json, call_id: str) -> Json:
    name, arguments = wish["name"], wish.get("args") or {}
    offered = next((tool for tool in asked.tools if tool.rpartition("::")[2] == name), None)
    if offered is None and _code_tool(asked) is not None:
        return _script(asked, f"text(await tools.{_identifier(name)}({json.dumps(arguments)}));", call_id)
    namespace = wish.get("namespace") or (offered or "").rpartition("::")[0]
    return _direct(name, arguments, call_id, namespace)


def _mcp(asked: Asked, wish: Json, call_id: str) -> Json:
    space, name, arguments = f"mcp__{_identifier(wish['server'])}", wish["tool"], wish.get("args") or {}
    if f"{space}::{name}" not in asked.tools and _code_tool(asked) is not None:
        return _script(asked, f"text(await tools.{space}__{_identifier(name)}({json.dumps(arguments)}));", call_id)
    return _direct(name, arguments, call_id, space)


def _shell(asked: Asked, command: str, extra: Json, call_id: str) -> Json:
    name = next((tool for tool in _SHELLS if tool in asked.tools), None)
    if name is None and _code_tool(asked) is not None:
        return _script(asked, f"text(await tools.exec_command({json.dumps({'cmd': command, **extra})}));", call_id)
    forms: dict[str, Json] = {"exec_command": {"cmd": command}, "shell_command": {"command": command}}
    arguments = forms.get(name or "exec_command", {"command": ["bash", "-lc", command]})
    return _direct(name or "exec_command", {**arguments, **extra}, call_id)


def _patch(asked: Asked, patch: str, call_id: str) -> Json:
    if "apply_patch" in asked.tools:
        return {"type": "custom_tool_call", "call_id": call_id, "name": "apply_patch", "input": patch}
    if _code_tool(asked) is not None:
        return _script(asked, f"text(await tools.apply_patch({json.dumps(patch)}));", call_id)
    # The agent recognises this form in a shell command and applies the patch itself.
    text = patch.rstrip("\n")
    return _shell(asked, f"apply_patch <<'END_OF_PATCH'\n{text}\nEND_OF_PATCH", {}, call_id)


def _script(asked: Asked, source: str, call_id: str) -> Json:
    namespace = (_code_tool(asked) or _CODE).rpartition("::")[0]
    item = {"type": "custom_tool_call", "call_id": call_id, "name": _CODE, "input": source}
    return {**item, "namespace": namespace} if namespace else item


def _direct(name: str, arguments: Any, call_id: str, namespace: str = "") -> Json:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": text}
    return {**item, "namespace": namespace} if namespace else item


def _code_tool(asked: Asked) -> str | None:
    return next((tool for tool in asked.tools if tool.rpartition("::")[2] == _CODE), None)


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)
