"""A process of its own that holds one run, as the daemon would; made to be killed.

Run as `python -m tests.agents.codex_app.product ORDER`; the order is a JSON file.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from stationmaster.agents.codex_app.session import CodexRun
from stationmaster.agents.codex_app.settings import CodexSettings, RunSpec
from stationmaster.agents.driver import ToolAnswer, ToolCall


async def on_tool(_: ToolCall) -> ToolAnswer:
    return ToolAnswer("heard", ok=True)


async def hold_a_run(order: dict[str, Any]) -> None:
    worktree, bare, codex_home, temp = (Path(order[name]) for name in ("worktree", "bare", "codex_home", "run_temp"))
    spec = RunSpec(order["run_id"], worktree, bare, codex_home, temp, isolation=order["isolation"])
    settings = CodexSettings(home=Path(order["home"]), config=order["config"], sandbox=order["sandbox"])
    run = await CodexRun.launch(settings, spec, on_tool=on_tool)
    await run.start_turn(await run.start_thread(), order["text"])
    async for _ in run.events():
        pass


if __name__ == "__main__":
    asyncio.run(hold_a_run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
