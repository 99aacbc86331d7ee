"""A scripted app-server: speaks the wire as its plan says, and writes down everything it was told.

Run as `fake_app_server.py PLAN app-server`. The plan is JSON: `log` (a file), `answers` (method to a list of answers,
the last repeats), `before` and `after` (method to messages sent around the answer), `answered` (id of a request of its
own to messages sent once it was answered). An answer is a whole
`{"result": …}` or `{"error": …}`, or the word "silence", "die" or "garbage".
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

DEFAULTS: dict[str, Any] = {
    "initialize": {"userAgent": "fake/0"},
    "account/read": {"account": None, "requiresOpenaiAuth": False},
    "thread/start": {"thread": {"id": "th-1"}, "model": "fake-model"},
    "thread/resume": {"thread": {"id": "th-1"}, "model": "fake-model"},
    "turn/start": {"turn": {"id": "tu-1", "status": "inProgress"}},
}


class FakeAppServer:
    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.log = Path(plan["log"])
        self.asked: dict[str, int] = {}

    def send(self, message: Any) -> None:
        sys.stdout.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
        sys.stdout.flush()

    def serve(self) -> None:
        self.send({"method": "remoteControl/status/changed", "params": {}})
        for line in sys.stdin:
            message = json.loads(line)
            with self.log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(message) + "\n")
            if "method" in message:
                self.take(message)
            for sent in self.plan.get("answered", {}).get(str(message["id"]), []) if "method" not in message else ():
                self.send(sent)

    def take(self, message: dict[str, Any]) -> None:
        method = message["method"]
        for sent in self.plan.get("before", {}).get(method, []):
            self.send(sent)
        if "id" in message:
            self.answer(method, message["id"])
        for sent in self.plan.get("after", {}).get(method, []):
            self.send(sent)

    def answer(self, method: str, number: int) -> None:
        count = self.asked[method] = self.asked.get(method, 0) + 1
        planned = self.plan.get("answers", {}).get(method)
        answer = planned[min(count, len(planned)) - 1] if planned else {"result": DEFAULTS.get(method, {})}
        if method == "initialize" and count > 1:
            answer = {"error": {"code": -32600, "message": "Already initialized"}}
        elif "initialize" not in self.asked:
            answer = {"error": {"code": -32600, "message": "Not initialized"}}
        if answer == "die":
            sys.stderr.write("fatal: the fake dies now\n")
            sys.stderr.flush()
            os._exit(3)
        if answer == "garbage":
            self.send("this is no JSON")
            self.send(["neither", "an", "object"])
            answer = {"result": DEFAULTS.get(method, {})}
        if answer != "silence":
            self.send({"id": number, **answer})


if __name__ == "__main__":
    FakeAppServer(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))).serve()
