"""One run of the agent for a task: launched, listened to, ended, and proven gone.

It tells how the run ended and moves no task. Whatever happens, no process of the run is left when `go` returns.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stationmaster import canonical, faults
from stationmaster.agents.codex_app.session import CodexRun
from stationmaster.agents.codex_app.settings import RunSpec
from stationmaster.agents.driver import ToolAnswer, ToolCall
from stationmaster.agents.events import (
    AgentMessage,
    AgentRequest,
    ItemCompleted,
    ProcessExited,
    TurnCompleted,
)
from stationmaster.command import Cmd
from stationmaster.errors import Illegal, NotFound, StationmasterError
from stationmaster.gitea import actions, bridge, codes, limits, mcp, stopping, store, texts
from stationmaster.gitea.client import explain
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import Task, TurnKind
from stationmaster.gitea.prepare import Workplace
from stationmaster.gitea.recorder import Recorder
from stationmaster.gitea.settings import GiteaSettings
from stationmaster.gitea.steering import Steering
from stationmaster.gitea.tools import Tools, specs, tool_set
from stationmaster.gitea.usage import Meter
from stationmaster.ledger import lease as leases
from stationmaster.ledger.lease import Lease
from stationmaster.ledger.tx import Tx

How = Literal[
    "completed", "failed", "interrupted", "exited", "deadline", "spent", "aborted", "stopping", "lost", "not_started"
]

_STOP_S = 5.0


@dataclass(slots=True)
class Signals:
    """What others want of a run: that it is aborted for good, ended because the worker stops, or told something."""

    abort: asyncio.Event = field(default_factory=asyncio.Event)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    steer: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. `confirmed` tells that the agent itself said so, or is gone by itself (GW-R-154)."""

    how: How
    code: str | None = None
    transient: bool = False
    confirmed: bool = True
    waiting: bool = False
    text: str = ""


class Run:
    """One launch of Codex with one turn."""

    def __init__(
        self,
        gear: Gear,
        hold: Hold,
        place: Workplace,
        run_id: str,
        kind: TurnKind,
        signals: Signals,
        through: mcp.Bridge | None = None,
    ) -> None:
        """Takes `through`, the bridge by which the agent posts in official mode."""
        self.run_id = run_id
        self._through = through
        self._set = tool_set(gear.settings.reply_mode)
        self._gear = gear
        self._hold = hold
        self._place = place
        self._kind = kind
        self._task = hold.task
        self._signals = signals
        self._tools = Tools(gear, hold, place, run_id, kind)
        self._steering = Steering(gear, hold, run_id)
        self._recorder = Recorder(gear.port, run_id)
        self._meter: Meter | None = None
        self._completed: TurnCompleted | None = None
        self._waiting = False
        self._text = ""

    async def go(self, prompt: str) -> Ended:
        """Runs the turn to its end; never raises for what the agent does or fails to do."""
        try:
            agent = await self._launch()
        except StationmasterError as error:
            return Ended("not_started", explain(error), transient=codes.retryable(explain(error)))
        try:
            return await self._talk(agent, prompt)
        except NotFound as lost:
            return Ended("not_started", explain(lost))
        except StationmasterError as error:
            how: How = "lost" if error.code == codes.LEASE_LOST else "failed"
            return Ended(how, explain(error), transient=codes.retryable(explain(error)), text=self._text)
        finally:
            await self._tidy(agent)

    async def _launch(self) -> CodexRun:
        gear, station = self._gear, self._gear.station
        temp = station.runs / self.run_id
        temp.mkdir(mode=0o700, parents=True, exist_ok=True)
        spec = RunSpec(
            run_id=self.run_id,
            worktree=self._place.tree,
            bare=self._place.bare,
            codex_home=gear.codex.repository_home(self._task.repository_id),
            run_temp=temp,
            tools=specs(gear.settings.reply_mode),
            developer_instructions=texts.developer_instructions(mode=gear.settings.reply_mode),
            api_key=station.api_key,
            mounts=station.mounts,
            isolation=station.isolation,
            repo_instructions=station.repo_instructions,
            read_only=self._place.read_only,
            log=temp / "codex.log",
            **self._servers(temp),
        )
        await self._hold.check()
        faults.point("run.before_launch")
        return await CodexRun.launch(gear.codex, spec, on_tool=self._on_tool)

    async def _on_tool(self, call: ToolCall) -> ToolAnswer:
        # What the agent was told before it acts comes first.
        await self._steering.note()
        return await self._tools(call)

    def _servers(self, temp: Path) -> dict[str, Any]:
        """Returns the part of a run that only official mode has: the bridge, for this thread alone (GW-R-141)."""
        if self._through is None:
            return {}
        home = mcp.home_of(temp)
        home.mkdir(mode=0o700, exist_ok=True)
        return {
            "mcp_servers": {bridge.SERVER: self._through.server(self._gear.settings, home)},
            "trusted_servers": frozenset({bridge.SERVER}),
            "programs": (self._through.program,),
        }

    async def _talk(self, agent: CodexRun, prompt: str) -> Ended:
        thread_id, why = await self._thread(agent)
        await self._hold.check()
        intent = await self._gear.port.do(
            self._cmd("turn.start"), begin, self._task.id, self._hold.lease, self.run_id, self._gear.settings
        )
        if intent is None:
            return Ended("aborted")
        faults.point("run.turn_intended")

        async def stored(turn_id: str) -> None:
            faults.point("run.turn_started")
            await self._gear.port.do(
                self._cmd("turn.bind"), _bound, self._task.id, self.run_id, intent, turn_id, thread_id, self._set, why
            )

        try:
            turn_id = await agent.start_turn(thread_id, prompt, stored=stored)
        except StationmasterError as error:
            await self._gear.port.do(self._cmd("turn.start"), _no_turn, intent, explain(error))
            raise
        faults.point("run.turn_bound")
        return await self._listen(agent, thread_id, turn_id)

    async def _thread(self, agent: CodexRun) -> tuple[str, str | None]:
        """Returns the thread to use, and why it replaces another one (GW-R-036, GW-R-146)."""
        session = await self._gear.port.read(store.session, self._task.session_id)
        why: str | None = None
        if session.thread_id is not None and session.tool_set == self._set:
            try:
                await self._told("thread.resume", agent.resume_thread(session.thread_id), thread=session.thread_id)
            except NotFound:
                if self._kind == "reply_retry":
                    # A new thread knows nothing of the answer that is to be posted again.
                    raise
                why = codes.SESSION_UNRECOVERABLE
            else:
                return session.thread_id, None
        elif session.thread_id is not None:
            why = codes.TOOLS_CHANGED
        return await self._told("thread.start", agent.start_thread()), why

    async def _told(self, action: str, work: Coroutine[Any, Any, Any], **data: Any) -> Any:
        """Does something with an intent before and a result after (GW-R-227)."""
        port = self._gear.port
        intent = await port.do(self._cmd(action), _intend, self._task, action, data)
        try:
            done = await work
            faults.point("run.thread_known")
        except StationmasterError as error:
            await port.do(self._cmd(action), _result, intent, "failed", {"code": explain(error)})
            raise
        await port.do(self._cmd(action), _result, intent, "done", {"thread": done} if done else {})
        return done

    async def _listen(self, agent: CodexRun, thread_id: str, turn_id: str) -> Ended:
        self._meter = meter = await self._metered()
        hearing = asyncio.create_task(self._hear(agent, turn_id))
        others = [hearing]
        if self._gear.settings.steering and self._kind == "normal":
            bell = self._signals.steer
            others.append(asyncio.create_task(self._steering.attend(agent, thread_id, turn_id, bell)))
        signs = {
            "aborted": asyncio.create_task(self._signals.abort.wait()),
            "lost": asyncio.create_task(self._hold.lost.wait()),
            "stopping": asyncio.create_task(self._signals.stop.wait()),
            "spent": asyncio.create_task(meter.over.wait()),
        }
        allowed_s, left_s = self._gear.settings.turn_timeout_s, meter.seconds_left
        try:
            await asyncio.wait(
                {hearing, *signs.values()},
                timeout=allowed_s if left_s is None else min(allowed_s, left_s),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if hearing.done():
                await hearing
                return self._end()
            late = "deadline" if left_s is None or left_s >= allowed_s else "spent"
            how = next((name for name, sign in signs.items() if sign.done()), late)
            if how == "lost":
                return Ended("lost", codes.LEASE_LOST, confirmed=False)
            return await self._break_off(agent, thread_id, turn_id, hearing, how)  # type: ignore[arg-type]
        finally:
            for task in (*others, *signs.values()):
                task.cancel()
            await asyncio.gather(*others, *signs.values(), return_exceptions=True)
            await self._steering.note()

    async def _metered(self) -> Meter:
        before = await self._gear.port.read(limits.used_by_task, self._task.id)
        return Meter(self._gear.port, self.run_id, self._gear.settings.limits, before)

    async def _break_off(
        self, agent: CodexRun, thread_id: str, turn_id: str, hearing: asyncio.Task[None], how: How
    ) -> Ended:
        """Asks the agent to stop and waits for its word, within the time that the reason leaves (GW-R-178, 179)."""
        await self._gear.port.do(self._cmd("turn.interrupt"), _observe, self._task, "turn.interrupt", {"why": how})
        confirmed = False
        with contextlib.suppress(TimeoutError, StationmasterError):
            async with asyncio.timeout(self._gear.settings.abort_timeout_s if how == "aborted" else _STOP_S):
                await agent.interrupt(thread_id, turn_id)
                await asyncio.shield(hearing)
                confirmed = True
        spent = (self._meter.code if self._meter else None) or codes.TASK_BUDGET_SPENT
        code = {"deadline": codes.TURN_DEADLINE, "stopping": codes.INTERRUPTED_BY_RESTART, "spent": spent}.get(how)
        return Ended(how, code, transient=how == "stopping", confirmed=confirmed, text=self._text)

    async def _hear(self, agent: CodexRun, turn_id: str) -> None:
        async for event in agent.events():
            await self._recorder.add(event)
            if self._meter is not None:
                await self._meter.add(event)
            if isinstance(event, ProcessExited):
                return
            if isinstance(event, AgentMessage):
                await self._said(event)
            elif isinstance(event, AgentRequest):
                self._waiting = self._waiting or event.waiting
                await self._note("agent.request", method=event.method, answer=event.action, what=event.summary)
            elif isinstance(event, ItemCompleted) and event.detail.get("server") == bridge.SERVER:
                await self._bridged(event)
            elif isinstance(event, TurnCompleted) and event.turn_id == turn_id:
                self._completed = event
                return

    async def _said(self, message: AgentMessage) -> None:
        if message.delivery == "async" and message.questions and self._through is not None:
            # GW-R-151: nothing is posted for the agent here.
            self._waiting = True
        elif message.delivery == "async" and message.questions:
            await self._tools.ask_for(message.questions)
        elif message.text.strip():
            self._text = message.text

    async def _bridged(self, call: ItemCompleted) -> None:
        """Notes a call of the bridge, and which comment it reported: a hint, never proof (GW-R-161)."""
        told, tool = call.detail, str(call.detail.get("tool"))
        failed = told.get("status") == "failed"
        said: dict[str, Any] = {"tool": tool, "accepted": not failed}
        if self._through is not None and tool == self._through.tool.name:
            done = bridge.created(str(told.get("result", "")), failed=failed)
            said |= {"comment": done.comment_id, "code": done.error_code}
        await self._note("mcp.call_observed", **said)

    async def _note(self, action: str, **data: Any) -> None:
        await self._gear.port.do(self._cmd("run.note"), _noted, self._task, self.run_id, action, data)

    def _end(self) -> Ended:
        done = self._completed
        if done is None:
            return Ended("exited", codes.APP_SERVER_UNREACHABLE, transient=True, text=self._text)
        if done.status == "failed":
            code = done.error_code if codes.known(done.error_code) else codes.TURN_FAILED
            return Ended("failed", code, transient=done.transient, text=self._text)
        if done.status == "interrupted":
            return Ended("interrupted", codes.TURN_INTERRUPTED, transient=True, text=self._text)
        text, waiting = _without_signal(self._text)
        return Ended("completed", waiting=waiting or self._waiting, text=text)

    async def _tidy(self, agent: CodexRun) -> None:
        """Ends the processes first, then lets tool calls that were begun come to their end."""
        try:
            await agent.close()
        finally:
            await self._tools.idle()
            await self._recorder.close()
            if self._meter is not None:
                await self._meter.close()
            for words in agent.capability_downgrades:
                cmd = Cmd("agent.downgrade", "system", f"run:{self.run_id}", dedupe=canonical.sha256(words))
                await self._gear.port.do(cmd, _downgraded, words)

    def _cmd(self, name: str) -> Cmd:
        return actions.command(name, self._task, f"run:{self.run_id}")


def begin(tx: Tx, task_id: str, lease: Lease, run_id: str, settings: GiteaSettings) -> int | None:
    """Moves the task to `running` and writes that its turn is about to start (GW-R-080).

    Returns None when the task is to stop: then no turn starts.
    """
    leases.held(tx, lease)
    if stopping.before_a_run(tx, task_id, settings) is not None:
        return None
    task = store.task(tx, task_id)
    if task.state == "preparing":
        task = actions.step(tx, task, "start", settings, error_code=None, next_retry_at=None, retry_purpose=None)
    elif task.state != "running":
        raise Illegal("The task is being stopped.", code=codes.INVALID_STATE, hint="Stop.", state=task.state)
    return tx.intent("turn.start", subject=run_id, refs={**actions.refs(task), "turn": run_id})


def _bound(
    tx: Tx, task_id: str, run_id: str, intent: int, turn_id: str, thread_id: str, tools: str, why: str | None
) -> None:
    # A thread exists only once its first turn has started, so both are stored together.
    task = store.task(tx, task_id)
    session = store.session(tx, task.session_id)
    if session.thread_id != thread_id or session.state == "closed":
        actions.bind_thread(tx, task, thread_id, tools, why=why)
    actions.bind_turn(tx, task, run_id, turn_id, thread_id)
    tx.result(intent, "done", refs={**actions.refs(task), "turn": (run_id, turn_id), "thread": thread_id})


def _no_turn(tx: Tx, intent: int, code: str) -> None:
    # Without an answer the turn may have begun all the same; its process is ended before anything else is done.
    outcome = "unknown" if code in {codes.APP_SERVER_TIMEOUT, codes.APP_SERVER_UNREACHABLE} else "failed"
    tx.result(intent, outcome, code=code)


def _intend(tx: Tx, task: Task, action: str, data: dict[str, Any]) -> int:
    return tx.intent(action, subject=task.id, refs=actions.refs(task), **data)


def _result(tx: Tx, intent: int, outcome: str, data: dict[str, Any]) -> None:
    tx.result(intent, outcome, **data)


def _noted(tx: Tx, task: Task, run_id: str, action: str, data: dict[str, Any]) -> None:
    comment = data.get("comment")
    about = {} if comment is None else {"comment": str(comment)}
    tx.event(action, refs={**actions.refs(task), "turn": run_id, **about}, **data)


def _downgraded(tx: Tx, words: str) -> None:
    tx.event("capability_downgrade", what=words)


def _observe(tx: Tx, task: Task, action: str, data: dict[str, Any]) -> None:
    tx.event(action, refs=actions.refs(task), **data)


def _without_signal(text: str) -> tuple[str, bool]:
    """Takes the waiting signal off the end of the agent's last message (GW-R-151)."""
    lines = text.rstrip().split("\n")
    if lines[-1].strip() != texts.WAITING_SIGNAL:
        return text, False
    return "\n".join(lines[:-1]).rstrip(), True
