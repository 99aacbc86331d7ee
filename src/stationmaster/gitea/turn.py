"""What a worker does with a task that it claimed: from the claim to a state in which nobody works on it.

Order (GW-R-080, §8): who asks, workplace, start receipt, run, processes gone, tree saved, decision, verification. Every
step is durable before the next begins; whatever dies in between is settled by recovery. A lost lease ends the work
without another write: whoever holds the lease now goes on.
"""

from __future__ import annotations

import shutil

import structlog

from stationmaster import faults
from stationmaster.command import Cmd
from stationmaster.errors import Stale, StationmasterError
from stationmaster.gitea import (
    actions,
    authors,
    codes,
    conclude,
    mcp,
    order_words,
    prepare,
    publish,
    receipts,
    restored,
    store,
    texts,
    verify,
)
from stationmaster.gitea.client import explain
from stationmaster.gitea.gear import Gear, Hold
from stationmaster.gitea.model import Task, TurnKind
from stationmaster.gitea.prepare import Blocked, Workplace
from stationmaster.gitea.run import Ended, Run, Signals
from stationmaster.ledger.lease import Lease

_log = structlog.get_logger("stationmaster.gitea")

# After these a task is verified anyhow, stopped, or somebody else's, or nothing was begun.
_NO_ANSWER = frozenset({"completed", "aborted", "lost", "not_started"})


async def work(gear: Gear, task: Task, lease: Lease, signals: Signals) -> None:
    """Works on a claimed task until it rests.

    Never raises: what goes wrong unforeseen is logged, and the lease is left to expire so that recovery takes over.
    """
    _log.info("task.claimed", state=task.state, attempt=task.attempt, term=lease.term)
    try:
        async with Hold(gear, task, lease) as hold:
            if task.state == "verifying_reply":
                rests = await verify.settle(gear, hold, task)
            else:
                rests = await _Work(gear, hold, signals).go()
        _log.info("task.rests", state=rests.state, code=rests.error_code)
        await end(gear, rests)
    except Stale as error:
        _log.warning("task.stale", task=task.id, code=error.code, error=str(error))
    except StationmasterError as error:
        _log.warning("task.left", task=task.id, code=error.code, error=str(error))
    except Exception:  # noqa: BLE001 - an unforeseen error must not end the daemon
        _log.exception("task.left", task=task.id)


async def end(gear: Gear, task: Task) -> None:
    """Sends the receipt of an exceptional end at once; the relay does it otherwise (GW-R-135)."""
    key = actions.status_key(task.id, task.state)
    if await gear.port.read(store.comment, key) is not None:
        await receipts.post(gear, task.id, key, hold=None)


class _Work:
    def __init__(self, gear: Gear, hold: Hold, signals: Signals) -> None:
        self._gear = gear
        self._hold = hold
        self._task = hold.task
        self._signals = signals
        self._kind: TurnKind = "reply_retry" if hold.task.state == "running" else "normal"
        self._through: mcp.Bridge | None = None

    async def go(self) -> Task:
        """Returns the task as it is when nobody works on it any more."""
        halted = await self._halted()
        if halted is not None:
            return halted
        place = await self._place()
        if isinstance(place, Task):
            return place
        # Making a workplace ready can take minutes.
        halted = await self._halted()
        if halted is not None:
            return halted
        if self._kind == "normal":
            await receipts.start(self._gear, self._hold, self._task)
        faults.point("turn.ready")
        run_id = actions.new_run_id()
        structlog.contextvars.bind_contextvars(turn=run_id)
        await self._gear.port.do(
            self._cmd("turn.open"),
            actions.open_turn,
            self._task.id,
            self._hold.lease,
            run_id,
            self._gear.station.worker_id,
            kind=self._kind,
            head=place.head,
        )
        faults.point("turn.opened")
        _log.info("turn.opened", kind=self._kind)
        run = Run(self._gear, self._hold, place, run_id, self._kind, self._signals, self._through)
        ended = await run.go(await self._prompt(run_id, place))
        faults.point("turn.processes_gone")
        _log.info("turn.ended", how=ended.how, code=ended.code)
        await self._hold.check()
        rests = await self._finish(run_id, place, ended)
        await self._gear.port.off(_tidy, self._gear, run_id)
        return rests

    async def _halted(self) -> Task | None:
        """Ends the task before a run is made when somebody wants it stopped."""
        if await self._gear.port.read(store.stop, self._task.id) is None:
            return None
        lease, settings = self._hold.lease, self._gear.settings
        return await self._gear.port.do(self._cmd("task.halt"), conclude.halted, self._task.id, lease, settings)

    async def _place(self) -> Workplace | Task:
        """Makes everything ready for a run, or moves the task to where it has to go and returns it."""
        try:
            await prepare.identify(self._gear, self._task)
            earlier = await restored.earlier(self._gear, self._hold, self._task)
            if earlier is not None:
                return earlier
            if self._kind == "normal":
                await authors.check_author(self._gear, self._task)
            if self._gear.settings.reply_mode == "official":
                self._through = await mcp.preflight(self._gear, self._hold, self._task)
            return await prepare.workplace(self._gear, self._hold, self._task)
        except Blocked as blocked:
            if self._kind == "normal":
                return await self._move("task.block", conclude.block, blocked.problem)
            code = blocked.problem.code
        except StationmasterError as error:
            if error.code == codes.LEASE_LOST:
                raise
            code = explain(error)
            _log.info("task.not_ready", task=self._task.id, code=code, error=str(error))
        if self._kind == "reply_retry":
            # The work itself is done: what is left is to see whether its answer is there (GW-R-172).
            return await self._verified(await self._move("task.verify", conclude.verify, code))
        return await self._move("task.not_ready", conclude.not_ready, code)

    async def _prompt(self, run_id: str, place: Workplace) -> str:
        port, task = self._gear.port, self._task
        session = await port.read(store.session, task.session_id)
        repository = await port.read(store.repository, task.repository_id)
        asker = await port.read(actions.asked_by, task)
        about = texts.Correlation(
            task.id,
            run_id,
            task.resource_key,
            f"{repository.owner}/{repository.name}",
            session.kind,
            session.number,
            asker.login,
        )
        mode = self._gear.settings.reply_mode
        how = "" if self._through is None else texts.post_line(self._through.tool, about)
        if self._kind == "reply_retry":
            _, words = await port.read(verify.fallback_words, task.id)
            return texts.reply_retry_prompt(about, words, mode, how)
        said = await port.read(store.follow_ups, task.id)
        broken_off = await port.read(conclude.was_broken_off, task.id, run_id)
        if said and not broken_off:
            instruction = said[-1].body
        else:
            # What was said into a turn that broke off is asked again together with what that turn was for.
            instruction = await port.read(order_words.words, task)
        return texts.turn_prompt(
            about,
            instruction,
            follow_up=bool(said),
            interrupted=broken_off,
            notes=place.notes,
            mode=mode,
            how=how,
        )

    async def _finish(self, run_id: str, place: Workplace, ended: Ended) -> Task:
        failed = None
        answered = await self._answered(ended.how)
        if answered or (ended.how == "completed" and not ended.waiting):
            await self._publish(run_id, place, ended.text)
        try:
            saved = await publish.save(self._gear, self._task, run_id, place, ended.how, hold=self._hold)
        except StationmasterError as error:
            if error.code == codes.LEASE_LOST:
                raise
            failed, saved = codes.WORKSPACE_SAVE_FAILED, None
            _log.warning("task.tree_not_saved", task=self._task.id, run=run_id, error=str(error))
        faults.point("turn.saved")
        left = saved is not None and saved.changed
        if failed is not None and not answered:
            answered = await self._answered("unsaved")
        ran = conclude.Ran(run_id, self._kind, ended, left, failed, answered)
        task = await self._move("turn.end", conclude.turn, ran)
        faults.point("turn.concluded")
        return await self._verified(task)

    async def _answered(self, how: str) -> bool:
        """Tells whether a turn that did not end well was answered all the same: only the forge knows (GW-R-187)."""
        if self._through is None or self._kind != "normal" or how in _NO_ANSWER:
            return False
        return isinstance(await verify.look(self._gear, self._task), verify.Found)

    async def _publish(self, run_id: str, place: Workplace, said: str) -> None:
        """Publishes what the agent did not: it may have answered without calling `publish` (official mode)."""
        if self._through is None or self._kind != "normal":
            return
        subject = texts.summary(said)
        await publish.publish(self._gear, self._hold, self._task, run_id, place, summary=subject)

    async def _verified(self, task: Task) -> Task:
        return await verify.settle(self._gear, self._hold, task) if task.state == "verifying_reply" else task

    async def _move(self, name: str, body: conclude.Body, *args: object) -> Task:
        return await self._gear.port.do(
            self._cmd(name), body, self._task.id, self._hold.lease, self._gear.settings, *args
        )

    def _cmd(self, name: str) -> Cmd:
        return actions.command(name, self._task, f"lease:{self._hold.lease.lease_id}")


def _tidy(gear: Gear, run_id: str) -> None:
    # The log and repositories set aside stay; the rest was scratch.
    for name in ("host", "work", "mcp"):
        shutil.rmtree(gear.station.runs / run_id / name, ignore_errors=True)
