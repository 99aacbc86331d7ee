"""One Codex app-server process that serves one run: started inside the walls, initialised once, ended and proven gone.

It decides nothing about tasks. What it promises: no event of a turn before the turn's id was returned (and stored), a
deadline on every request, an answer to every server request, and no process of the run left after `close`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import structlog

from stationmaster import redact
from stationmaster.agents import isolation
from stationmaster.agents.codex_app import home, requests, translate
from stationmaster.agents.codex_app.settings import CodexSettings, RunSpec
from stationmaster.agents.codex_app.stream import EventStream
from stationmaster.agents.codex_app.wire import Rejected, ServerRequest, Wire
from stationmaster.agents.driver import OnTool, OnTurn, ToolAnswer, ToolCall
from stationmaster.agents.events import AgentEvent, AgentWarning, ProcessExited, TurnCompleted
from stationmaster.agents.process import AgentProcess
from stationmaster.errors import Denied, NotFound, StationmasterError, Unavailable

_log = structlog.get_logger("stationmaster.agents.codex")
_CLIENT = {"name": "stationmaster", "title": "Stationmaster", "version": "1"}
# Progress that no reader needs; a long command's output alone can be megabytes.
_UNWANTED = (
    "account/rateLimits/updated",
    "item/agentMessage/delta",
    "item/commandExecution/outputDelta",
    "item/fileChange/outputDelta",
    "item/fileChange/patchUpdated",
    "item/plan/delta",
    "item/reasoning/summaryPartAdded",
    "item/reasoning/summaryTextDelta",
    "item/reasoning/textDelta",
    "skills/changed",
    "thread/readState/changed",
    "turn/diff/updated",
    "turn/plan/updated",
)
# How long a turn that Codex does not know yet, or no more, is waited for before it is asked about again.
_ASK_AGAIN_S = 0.1
_COLLABORATION = "collaborationMode"
# What a Codex says that does not know, or does not take, a parameter of ours (GW-R-144).
_UNKNOWN_WORDS = ("collaborationmode", "collaboration_mode", "unknown field", "unknown variant", "missing field")
# Every way in which a stored thread is gone, as Codex says it; a model provider that is "not found" is none of them.
_LOST = re.compile(
    r"no rollout found|session \S+ is archived|invalid (session|thread) id"
    r"|failed to read session metadata|(thread|session|conversation|rollout)\b[^.]{0,80} not found"
)
# Files that cannot be read at this moment (too many open, no permission, a failing disk) are not lost.
_MOMENTARY = re.compile(r"os error (?!2\b)")
_BUSY_WORDS = "already has an active writer"
_SERVER_WORDS = "required mcp servers failed"


class CodexRun:
    """One app-server process and the conversation with it; made by `launch` only."""

    def __init__(
        self, settings: CodexSettings, spec: RunSpec, process: AgentProcess, *, on_tool: OnTool, downgraded: bool
    ) -> None:
        self.capability_downgrades: list[str] = []
        self.probe_failures: list[str] = []
        self.steered: list[str] = []
        self._steering: set[str] = set()
        self._settings = settings
        self._spec = spec
        self._process = process
        self._on_tool = on_tool
        self._plain = downgraded
        self._stream = EventStream()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._thread_id = ""
        self._model = settings.model
        self._ended_turns: dict[str, asyncio.Event] = {}
        self._wire = Wire(
            process.stdout,
            process.stdin,
            on_notification=self._notified,
            on_request=self._requested,
            on_closed=lambda: self._background(self._process_ended()),
        )

    @classmethod
    async def launch(
        cls, settings: CodexSettings, spec: RunSpec, *, on_tool: OnTool, downgraded: bool = False
    ) -> CodexRun:
        """Prepares CODEX_HOME, starts the app-server inside the walls, initialises it once and logs in.

        `downgraded` says that this Codex is already known not to take collaborationMode. Raises Unavailable
        (`app_server_unreachable`, `app_server_timeout`), Invalid for a wrong configuration, Denied
        `codex_not_logged_in`.
        """
        spec = spec.resolved()
        home.prepare(settings, spec)
        rooms = home.rooms(settings, spec)
        process = await AgentProcess.spawn(
            isolation.wrap(spec.isolation, rooms, [str(settings.command), "app-server"], bwrap=settings.bwrap),
            env=home.environment(settings, spec),
            cwd=spec.worktree,
            run_id=spec.run_id,
            isolated=spec.isolation == "required",
            log=spec.log,
        )
        run = cls(settings, spec, process, on_tool=on_tool, downgraded=downgraded)
        try:
            await run._greet()
            await run._log_in()
        except BaseException:
            await run.close()
            raise
        return run

    async def start_thread(self) -> str:
        """Begins a conversation with the run's tools and returns its id."""
        params = self._thread_params()
        params["dynamicTools"] = [
            {"type": "function", "name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
            for tool in self._spec.tools
        ]
        try:
            answer = _dict(await self._request("thread/start", params))
        except Rejected as refusal:
            raise _server_failed(refusal) or refusal from None
        thread_id = _dict(answer.get("thread")).get("id")
        if not isinstance(thread_id, str) or not thread_id:
            raise Unavailable("Codex started a thread without an id.", code="app_server_rejected")
        self._loaded(thread_id, answer)
        return thread_id

    async def resume_thread(self, thread_id: str) -> None:
        """Continues a stored conversation, with its own tools and this run's configuration (GW-R-146).

        Raises NotFound `session_unrecoverable` only when Codex says that the thread is gone; every other failure is
        Unavailable and leaves the thread as it is.
        """
        params = {**self._thread_params(), "threadId": thread_id, "excludeTurns": True}
        try:
            answer = _dict(await self._request("thread/resume", params))
        except Rejected as refusal:
            if (failed := _server_failed(refusal)) is not None:
                raise failed from None
            words = refusal.words.lower()
            if _BUSY_WORDS in words:
                raise Unavailable(f"Thread {thread_id} is open elsewhere.", code="session_busy") from None
            if _LOST.search(words) and not _MOMENTARY.search(words):
                raise NotFound(
                    f"Codex no longer has thread {thread_id}: {redact.clean(refusal.words)[:200].rstrip('.')}.",
                    code="session_unrecoverable",
                    hint="A new thread is needed.",
                ) from None
            raise
        self._loaded(thread_id, answer)

    async def start_turn(self, thread_id: str, text: str, *, stored: OnTurn | None = None) -> str:
        """Starts one turn and returns its id.

        No event of the turn is yielded, and no tool call of it is handed out, before `stored(turn_id)` has returned,
        or without it, before this method returns (GW-R-147).
        """
        self._stream.shut()
        try:
            answer = _dict(await self._begin(thread_id, text))
            turn_id = _dict(answer.get("turn")).get("id")
            if not isinstance(turn_id, str) or not turn_id:
                raise Unavailable("Codex started a turn without an id.", code="app_server_rejected")
            if stored is not None:
                await stored(turn_id)
        finally:
            self._stream.open()
        return turn_id

    async def events(self) -> AsyncIterator[AgentEvent]:
        """Yields events in the order of receipt; the last one is process_exited."""
        while (event := await self._stream.next()) is not None:
            yield event

    async def steer(self, thread_id: str, turn_id: str, text: str, *, key: str) -> None:
        """Says something into a running turn; `text` must hold `key`, which stands in `steered` once it was taken.

        Raises Unavailable `app_server_rejected` when nothing was taken in, because the turn is over or cannot be
        steered.
        """
        self._steering.add(key)
        params = {"threadId": thread_id, "expectedTurnId": turn_id, "input": [_text(text)]}
        await self._request("turn/steer", params)

    async def interrupt(self, thread_id: str, turn_id: str) -> None:
        """Asks Codex to end a turn, and returns at once when it has ended already (GW-R-154).

        Codex does not answer for a turn that is over: the turn's end counts as the answer. For a moment after a turn
        was started, and before its end is told, Codex says that there is none: then it is asked again, as long as the
        caller waits.
        """
        over = self._turn_over(turn_id)
        ended = asyncio.create_task(over.wait())
        params = {"threadId": thread_id, "turnId": turn_id}
        try:
            while not over.is_set() and not await self._asked_to_stop(params, ended):
                await asyncio.wait({ended}, timeout=_ASK_AGAIN_S)
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)

    async def _asked_to_stop(self, params: dict[str, Any], ended: asyncio.Task[Any]) -> bool:
        """Tells whether Codex took the request, or the turn ended meanwhile."""
        asked = asyncio.create_task(self._request("turn/interrupt", params))
        try:
            await asyncio.wait({asked, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await asked
        except Rejected as error:
            _log.info("codex.interrupt_refused", run=self._spec.run_id, error=error.message)
            return False
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        return True

    async def close(self) -> None:
        """Ends the process and everything it started; returns when none of it is alive.

        Raises Unavailable `agent_process_alive` when a process survives. May be called twice, and finishes even when
        its caller is cancelled.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        try:
            await self._process.close(grace_s=self._settings.close_grace_s)
        finally:
            await self._wire.close()
            self._stream.end(ProcessExited(code=self._process.returncode, words=self._process.words()))
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # How a process is made ready

    async def _greet(self) -> None:
        capabilities = {"experimentalApi": True, "optOutNotificationMethods": list(_UNWANTED)}
        await self._request("initialize", {"clientInfo": _CLIENT, "capabilities": capabilities})
        await self._wire.notify("initialized")
        await self._try("experimentalFeature/enablement/set", {"enablement": {"goals": True}})
        await self._try("collaborationMode/list", {})

    async def _try(self, method: str, params: dict[str, Any]) -> None:
        try:
            await self._wire.request(method, params, timeout_s=self._settings.probe_timeout_s)
        except Unavailable as error:
            if error.code == "app_server_unreachable":
                raise
            self.probe_failures.append(f"{method}: {error.message}")
            _log.warning("codex.probe_failed", run=self._spec.run_id, method=method, error=error.message)

    async def _log_in(self) -> None:
        key = self._spec.api_key
        if key is not None and home.provider_key_name(self._settings.config) is None:
            # The only way in that leaves no file and no environment variable.
            await self._request("account/login/start", {"type": "apiKey", "apiKey": key.reveal()})
        account = _dict(await self._request("account/read", {"refreshToken": False}))
        if account.get("requiresOpenaiAuth") and not account.get("account"):
            raise Denied(
                "Codex is not logged in.",
                code="codex_not_logged_in",
                hint="Set codex.api_key, or run `stationmaster codex login`.",
            )

    # Requests to the app-server

    async def _request(self, method: str, params: dict[str, Any]) -> Any:
        return await self._wire.request(method, params, timeout_s=self._settings.request_timeout_s)

    def _thread_params(self) -> dict[str, Any]:
        params: dict[str, Any] = {
            "cwd": str(self._spec.worktree),
            "approvalPolicy": "never",
            "config": home.thread_config(self._settings, self._spec),
        }
        if self._settings.sandbox == "danger-full-access":
            params["sandbox"] = "danger-full-access"
        else:
            params["permissions"] = home.PROFILE
        rules = [self._spec.developer_instructions]
        if self._plain:
            rules.append(self._settings.developer_instructions)
        if any(rules):
            params["developerInstructions"] = "\n\n".join(rule for rule in rules if rule)
        return params

    def _loaded(self, thread_id: str, answer: dict[str, Any]) -> None:
        self._thread_id = thread_id
        model = answer.get("model")
        if not self._model and isinstance(model, str):
            self._model = model

    async def _begin(self, thread_id: str, text: str) -> Any:
        chosen = self._settings
        wanted = bool(chosen.model or chosen.reasoning_effort or chosen.developer_instructions)
        params: dict[str, Any] = {"threadId": thread_id, "input": [_text(text)]}
        if wanted and not self._plain:
            try:
                return await self._request("turn/start", {**params, _COLLABORATION: self._collaboration()})
            except Rejected as refusal:
                if not any(word in refusal.words.lower() for word in _UNKNOWN_WORDS):
                    raise
                self._downgrade(refusal)
                if chosen.developer_instructions:
                    # The thread was born without them, and a loaded thread takes no others.
                    params["input"] = [_text(f"Operator's instructions:\n{chosen.developer_instructions}"), _text(text)]
        if chosen.model:
            params["model"] = chosen.model
        if chosen.reasoning_effort:
            params["effort"] = chosen.reasoning_effort
        return await self._request("turn/start", params)

    def _collaboration(self) -> dict[str, Any]:
        return {
            "mode": "default",
            "settings": {
                "model": self._model,
                "reasoning_effort": self._settings.reasoning_effort or None,
                "developer_instructions": self._settings.developer_instructions or None,
            },
        }

    def _downgrade(self, refusal: Rejected) -> None:
        self._plain = True
        words = redact.clean(refusal.words)[:300]
        self.capability_downgrades.append(f"{_COLLABORATION}: {words}")
        _log.warning("codex.capability_downgrade", run=self._spec.run_id, capability=_COLLABORATION, error=words)

    # What the app-server says and asks; called on the reader task, so nothing here may wait

    def _notified(self, method: str, params: dict[str, Any]) -> None:
        if self._steering and method == "item/completed":
            self._note_steered(_dict(params.get("item")))
        event = translate.notification(method, params)
        if event is None or (event.thread_id and self._thread_id and event.thread_id != self._thread_id):
            return
        if isinstance(event, TurnCompleted):
            self._turn_over(event.turn_id).set()
        self._stream.put(event)

    def _note_steered(self, item: dict[str, Any]) -> None:
        # What was said into a turn shows as a message of the user when the model is given it.
        if item.get("type") != "userMessage":
            return
        words = str(item.get("content"))
        taken = {key for key in self._steering if key in words}
        self._steering -= taken
        self.steered += sorted(taken)

    def _requested(self, request: ServerRequest) -> None:
        answer = self._call_tool(request) if request.method == "item/tool/call" else self._refuse(request)
        self._background(answer)

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _refuse(self, request: ServerRequest) -> None:
        reply = requests.decide(request.method, request.params, self._spec.trusted_servers)
        self._stream.put(reply.event)
        with contextlib.suppress(Unavailable):
            if reply.result is not None:
                await self._wire.answer(request, reply.result)
            else:
                await self._wire.refuse(request, reply.error)

    async def _call_tool(self, request: ServerRequest) -> None:
        answer = await self._tool_answer(request.params)
        result = {"contentItems": [{"type": "inputText", "text": answer.text}], "success": answer.ok}
        with contextlib.suppress(Unavailable):
            await self._wire.answer(request, result)

    async def _tool_answer(self, params: dict[str, Any]) -> ToolAnswer:
        name, arguments = params.get("tool"), params.get("arguments")
        if name not in {tool.name for tool in self._spec.tools} or params.get("threadId") != self._thread_id:
            return ToolAnswer(f"There is no tool {str(name)[:100]!r} in this run.", ok=False)
        if not isinstance(arguments, dict):
            return ToolAnswer("The arguments must be an object.", ok=False)
        await self._stream.opened()
        call = ToolCall(
            str(params.get("callId")), str(name), arguments, self._thread_id, turn_id=str(params.get("turnId"))
        )
        try:
            return await self._on_tool(call)
        except StationmasterError as error:
            words = redact.clean(str(error))
        except Exception as error:  # noqa: BLE001 - a fault of the host must not leave the agent without an answer
            _log.exception("codex.tool_failed", run=self._spec.run_id, tool=name)
            words = f"The host failed ({type(error).__name__})."
        self._stream.put(AgentWarning(thread_id=self._thread_id, message=f"Tool {name}: {words}"))
        return ToolAnswer(words, ok=False)

    def _turn_over(self, turn_id: str) -> asyncio.Event:
        return self._ended_turns.setdefault(turn_id, asyncio.Event())

    async def _process_ended(self) -> None:
        # Output that ended while the process lives is a process nobody can talk to.
        try:
            async with asyncio.timeout(self._settings.close_grace_s):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        self._stream.end(ProcessExited(code=self._process.returncode, words=self._process.words()))


def _server_failed(refusal: Rejected) -> Unavailable | None:
    """Returns the error of a tool server that a run cannot do without, when that is why Codex refused."""
    if _SERVER_WORDS not in refusal.words.lower():
        return None
    words = redact.clean(refusal.words)[:300].rstrip(".")
    return Unavailable(f"{words}.", code="mcp_handshake_failed", hint="Run `stationmaster doctor`.")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
