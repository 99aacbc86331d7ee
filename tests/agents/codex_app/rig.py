"""A repository with a mirror and a worktree, a CODEX_HOME and a scripted model: what a run of the driver needs."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stationmaster import ids
from stationmaster.agents import process
from stationmaster.agents.codex_app.session import CodexRun
from stationmaster.agents.codex_app.settings import CodexSettings, RunSpec
from stationmaster.agents.driver import OnTool, ToolAnswer, ToolCall, ToolSpec
from stationmaster.agents.events import AgentEvent, ItemCompleted, ProcessExited, TurnCompleted

REPLY = ToolSpec(
    "reply", "Posts the answer.", {"type": "object", "properties": {"body": {"type": "string"}}, "required": ["body"]}
)
Step = Any


def git(*args: str, cwd: Path) -> str:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=Rig", "-c", "user.email=rig@example.org")
    return subprocess.run(["git", *who, *args], cwd=cwd, env=env, check=True, capture_output=True, text=True).stdout


@dataclass
class Rig:
    """Everything on disk for one repository, laid out as the product lays it out."""

    root: Path
    files: Mapping[str, str] = field(default_factory=lambda: {"a.txt": "one\n"})
    called: list[ToolCall] = field(default_factory=list)

    def __post_init__(self) -> None:
        seed, self.bare = self.root / "seed", self.root / "home" / "repos" / "1.git"
        self.tree = self.root / "home" / "trees" / "issue-1"
        self.codex = self.root / "home" / "codex"
        for folder in (seed, self.codex, self.tree.parent, self.bare.parent):
            folder.mkdir(parents=True)
        for name, text in self.files.items():
            (seed / name).parent.mkdir(parents=True, exist_ok=True)
            (seed / name).write_text(text)
        git("init", "-q", "-b", "main", cwd=seed)
        git("add", "-A", "-f", cwd=seed)
        git("commit", "-q", "-m", "Begin", cwd=seed)
        git("clone", "-q", "--bare", str(seed), str(self.bare), cwd=self.root)
        git("worktree", "add", "-q", "-b", "task", str(self.tree), "main", cwd=self.bare)

    def settings(self, base_url: str = "", **changes: Any) -> CodexSettings:
        config: dict[str, Any] = {"model": "scripted-model"}
        if base_url:
            provider: dict[str, Any] = {"name": "scripted", "base_url": base_url, "wire_api": "responses"}
            provider |= {"requires_openai_auth": False, "request_max_retries": 0, "stream_max_retries": 0}
            config |= {"model_provider": "scripted", "model_providers": {"scripted": provider}}
        return replace(CodexSettings(home=self.codex, config=config), **changes)

    def spec(self, **changes: Any) -> RunSpec:
        run_id = ids.new("run")
        temp = self.root / "home" / "runs" / run_id
        temp.mkdir(parents=True)
        home = self.codex / "repos" / "1"
        return replace(RunSpec(run_id, self.tree, self.bare, home, temp, tools=(REPLY,)), **changes)

    async def on_tool(self, call: ToolCall) -> ToolAnswer:
        self.called.append(call)
        return ToolAnswer(f"{call.tool} heard", ok=True)

    @asynccontextmanager
    async def run(
        self, settings: CodexSettings, spec: RunSpec | None = None, on_tool: OnTool | None = None
    ) -> AsyncIterator[CodexRun]:
        spec = spec or self.spec()
        run = await CodexRun.launch(settings, spec, on_tool=on_tool or self.on_tool)
        try:
            yield run
        finally:
            await run.close()
            assert process.marked(spec.run_id) == []


async def until(run: CodexRun, wanted: Callable[[AgentEvent], bool]) -> list[AgentEvent]:
    """Takes events up to and including the first wanted one; fails when the process ends first."""
    seen: list[AgentEvent] = []
    async for event in run.events():
        seen.append(event)
        if wanted(event):
            return seen
        assert not isinstance(event, ProcessExited), event
    raise AssertionError(f"events ended: {seen}")


async def turn(run: CodexRun, thread_id: str, text: str) -> list[AgentEvent]:
    turn_id = await run.start_turn(thread_id, text)
    return await until(run, lambda event: isinstance(event, TurnCompleted) and event.turn_id == turn_id)


def scenario(user: str, *steps: Step) -> dict[str, Any]:
    """A scenario whose next step is chosen by the number of tool results, and a default that only speaks."""
    return {"rules": [{"when": {"user": user}, "advance": "tool", "steps": list(steps)}], "default": ["Nothing to do."]}


def outputs(events: list[AgentEvent]) -> str:
    """Everything that commands printed."""
    return "\n".join(str(event.detail.get("output", "")) for event in events if isinstance(event, ItemCompleted))
