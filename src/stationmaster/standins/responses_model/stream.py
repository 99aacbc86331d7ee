"""Actions played as the server-sent events of one model response."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from stationmaster.standins.responses_model import calls
from stationmaster.standins.responses_model.asked import Asked, Json


class Cut(Exception):
    """The connection is to be dropped here, the way `how` says."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class Response:
    """One answer of the model: `emit` sends an event, `pause` and `hold` wait and notice a client that went away."""

    def __init__(
        self,
        asked: Asked,
        *,
        emit: Callable[[Json], None],
        pause: Callable[[float], None],
        hold: Callable[[str, float], None],
    ) -> None:
        self._asked = asked
        self._emit = emit
        self._pause = pause
        self._hold = hold
        self._output: list[Json] = []
        self._usage: Json = {"input_tokens": 10, "output_tokens": 5}
        self._head: Json = {
            "id": _id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "model": asked.body.get("model"),
            "output": [],
        }

    def play(self, actions: list[Json]) -> None:
        """Sends everything the actions say; raises Cut where the connection is to be dropped."""
        self._emit({"type": "response.created", "response": self._head})
        for action in actions:
            if self._play(action):
                return
        usage = {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self._usage.get("input_tokens", 0) + self._usage.get("output_tokens", 0),
            **self._usage,
        }
        self._close("completed", output=self._output, usage=usage, end_turn=None)

    def _play(self, action: Json) -> bool:
        """Plays one action; returns True when it was the last word of this response."""
        if "text" in action:
            self._message(action)
        elif "reasoning" in action:
            self._reasoning(action["reasoning"])
        elif "event" in action:
            self._emit(action["event"])
        elif "usage" in action:
            self._usage = action["usage"]
        elif item := calls.item_of(action, self._asked, f"call_{uuid.uuid4().hex[:24]}"):
            self._call(item)
        else:
            return self._wait_or_end(action)
        return False

    def _wait_or_end(self, action: Json) -> bool:
        if "delay" in action:
            self._pause(float(action["delay"]))
        elif "hold" in action:
            self._hold(action["hold"], float(action.get("timeout", 600)))
        elif "cut" in action:
            raise Cut(action["cut"])
        elif "failed" in action:
            self._close("failed", error=action["failed"])
            return True
        elif "incomplete" in action:
            self._close("incomplete", incomplete_details={"reason": action["incomplete"]})
            return True
        return "end" in action

    def _close(self, status: str, **more: Any) -> None:
        self._emit({"type": f"response.{status}", "response": {**self._head, "status": status, **more}})

    def _message(self, action: Json) -> None:
        text, item_id, index = str(action["text"]), _id("msg"), len(self._output)
        base: Json = {"id": item_id, "type": "message", "role": "assistant"}
        if action.get("phase"):
            base["phase"] = action["phase"]
        where = {"item_id": item_id, "output_index": index, "content_index": 0}
        self._added({**base, "status": "in_progress", "content": []})
        empty = {"type": "output_text", "text": "", "annotations": []}
        self._emit({"type": "response.content_part.added", **where, "part": empty})
        for part in _pieces(text, int(action.get("chunks", 3))):
            self._emit({"type": "response.output_text.delta", **where, "delta": part})
            self._pause(float(action.get("chunk_delay", 0)))
        if action.get("open"):
            return
        whole = {**empty, "text": text}
        self._emit({"type": "response.output_text.done", **where, "text": text})
        self._emit({"type": "response.content_part.done", **where, "part": whole})
        self._done({**base, "status": "completed", "content": [whole]})

    def _reasoning(self, text: str) -> None:
        item_id, index = _id("rs"), len(self._output)
        where = {"item_id": item_id, "output_index": index, "summary_index": 0}
        summary = {"type": "summary_text", "text": text}
        self._added({"id": item_id, "type": "reasoning", "summary": []})
        self._emit({"type": "response.reasoning_summary_part.added", **where, "part": {**summary, "text": ""}})
        self._emit({"type": "response.reasoning_summary_text.delta", **where, "delta": text})
        self._done({"id": item_id, "type": "reasoning", "summary": [summary], "encrypted_content": None})

    def _call(self, item: Json) -> None:
        custom = item["type"] == "custom_tool_call"
        field, prefix = ("input", "ctc") if custom else ("arguments", "fc")
        delta = "custom_tool_call_input" if custom else "function_call_arguments"
        whole = {"id": _id(prefix), **item}
        where = {"item_id": whole["id"], "output_index": len(self._output)}
        self._added({**whole, field: "", "status": "in_progress"})
        self._emit({"type": f"response.{delta}.delta", **where, "delta": item[field]})
        self._emit({"type": f"response.{delta}.done", **where, field: item[field]})
        self._done({**whole, "status": "completed"})

    def _added(self, item: Json) -> None:
        self._emit({"type": "response.output_item.added", "output_index": len(self._output), "item": item})

    def _done(self, item: Json) -> None:
        self._emit({"type": "response.output_item.done", "output_index": len(self._output), "item": item})
        self._output.append(item)


def _pieces(text: str, count: int) -> Iterator[str]:
    size = max(1, -(-len(text) // max(1, count)))
    yield from (text[at : at + size] for at in range(0, max(1, len(text)), size))


def _id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"
