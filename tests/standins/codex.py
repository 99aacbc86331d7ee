"""The real Codex binary, pointed at a scripted model, for tests of the stand-ins."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from codex_cli_bin import bundled_codex_path

_CONFIG = """
model = "{model}"
model_provider = "scripted"
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
plugins = false
apps = false
unbounded_connection_retries = false
[model_providers.scripted]
name = "scripted"
base_url = "{base_url}"
wire_api = "responses"
requires_openai_auth = false
request_max_retries = 0
stream_max_retries = {retries}
"""


@dataclass(frozen=True)
class Codex:
    """One home and one working folder; the home lies outside the child's temp folder, else no command would run."""

    root: Path
    base_url: str
    model: str = "scripted-model"
    retries: int = 0

    @property
    def work(self) -> Path:
        return self._made("work")

    def env(self) -> dict[str, str]:
        home = self._made("home")
        config = _CONFIG.format(model=self.model, base_url=self.base_url, retries=self.retries)
        (home / "config.toml").write_text(config)
        return {**os.environ, "CODEX_HOME": str(home), "TMPDIR": str(self._made("tmp"))}

    async def run(self, prompt: str) -> tuple[int, list[dict[str, Any]]]:
        """Runs one turn with `codex exec`; returns exit status and events."""
        process = await asyncio.create_subprocess_exec(
            bundled_codex_path(), "exec", "--json", "--cd", self.work, "--skip-git-repo-check",
            "--sandbox", "workspace-write", "-c", 'approval_policy="never"', prompt,
            env=self.env(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            out, _ = await asyncio.wait_for(process.communicate(), 60)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return process.returncode, [json.loads(line) for line in out.splitlines() if line.startswith(b"{")]

    def _made(self, name: str) -> Path:
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


class AppServer:
    """The app-server of the same binary, as much of its protocol as a turn with dynamic tools needs."""

    def __init__(self, codex: Codex) -> None:
        self._codex = codex
        self._ids = iter(range(1, 1000))
        self.called: list[dict[str, Any]] = []

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            bundled_codex_path(), "app-server",
            env=self._codex.env(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=8 << 20,
        )  # fmt: skip
        client = {"name": "test", "version": "0"}
        await self.ask("initialize", clientInfo=client, capabilities={"experimentalApi": True})
        self._send({"method": "initialized"})
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), 20)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._send({"id": number, "method": method, "params": params})
        while True:
            message = await self._read()
            if message.get("id") == number and "method" not in message:
                assert "error" not in message, message
                return dict(message["result"])

    async def turn(self, text: str, tools: list[str]) -> dict[str, Any]:
        """Runs a turn on a new thread that offers `tools`, each answering "<name> heard"; returns the closed turn."""
        schema = {"type": "object", "properties": {"body": {"type": "string"}}}
        offered = [{"type": "function", "name": t, "description": t, "inputSchema": schema} for t in tools]
        started = await self.ask(
            "thread/start",
            cwd=str(self._codex.work),
            sandbox="workspace-write",
            approvalPolicy="never",
            dynamicTools=offered,
        )
        thread = started["thread"]["id"]
        await self.ask("turn/start", threadId=thread, input=[{"type": "text", "text": text}])
        while True:
            message = await self._read()
            if message.get("method") == "item/tool/call":
                self.called.append(message["params"])
                heard = {"type": "inputText", "text": f"{message['params']['tool']} heard"}
                self._send({"id": message["id"], "result": {"contentItems": [heard], "success": True}})
            elif message.get("method") == "turn/completed":
                return dict(message["params"]["turn"])

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert line, "the app-server ended"
        return dict(json.loads(line))
