"""Where asyncio meets the synchronous ledger and blocking work (K12); implements `command.LedgerPort`.

Nothing here decides anything. An awaiting caller may be cancelled at any time: what it asked for still runs to its
end, because a command that was handed over cannot be taken back half done.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import structlog

from stationmaster.command import Cmd
from stationmaster.errors import Bug, Busy, Illegal, StationmasterError, Unavailable
from stationmaster.ledger.ledger import Ledger, Tx

P = ParamSpec("P")
R = TypeVar("R")

_READERS = 4
_NO_EDGE = "illegal_transition"

_log = structlog.get_logger(__name__)


class Dispatch:
    """The ledger for async code, and threads that live as long as the daemon.

    Git and agents are started with a parent-death signal that follows the starting thread, so a thread of `off` must
    never end before the daemon does: the executor keeps its threads until `close`.
    """

    def __init__(self, ledger: Ledger, *, threads: int) -> None:
        self.ledger = ledger
        self._off = ThreadPoolExecutor(threads, thread_name_prefix="off")
        self._read = ThreadPoolExecutor(_READERS, thread_name_prefix="read")

    async def do(self, cmd: Cmd, fn: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs one command and returns once it is durable."""
        try:
            return await _landed(self.ledger.submit(cmd, fn, *args, **kwargs))
        except Bug:
            raise
        except StationmasterError as refused:
            _say(cmd, refused)
            if not isinstance(refused, Illegal):
                raise
            if refused.code == _NO_EDGE and cmd.dedupe is None:  # with a dedupe the refusal is stored already
                _log.error("illegal_transition", command=cmd.name, cause=cmd.cause, error=refused.message)
                await _landed(self.ledger.submit(replace(cmd, name=_NO_EDGE), _alert, cmd.name, refused.message))
            raise

    async def hot(self, fn: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Writes hot tables only."""
        return await _landed(self.ledger.submit_hot(fn, *args, **kwargs))

    async def read(self, fn: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Reads a consistent view."""
        return await _landed(self._read.submit(self.ledger.read, fn, *args, **kwargs))

    async def off(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs blocking work (git, files) on a thread that lives as long as the daemon."""
        context = contextvars.copy_context()
        return await _landed(self._off.submit(context.run, partial(fn, *args, **kwargs)))

    def close(self) -> None:
        """Waits for what is running and ends the threads; the ledger stays open."""
        self._off.shutdown(wait=True, cancel_futures=True)
        self._read.shutdown(wait=True, cancel_futures=True)


def _say(cmd: Cmd, refused: StationmasterError) -> None:
    if isinstance(refused, Busy):
        # Whoever waits for an end asks again and again.
        _log.debug("command.busy", command=cmd.name, cause=cmd.cause, code=refused.code)
    elif isinstance(refused, Unavailable):
        _log.warning("command.failed", command=cmd.name, cause=cmd.cause, code=refused.code, error=refused.message)
    else:
        _log.info("command.refused", command=cmd.name, cause=cmd.cause, kind=refused.kind, code=refused.code)


def _alert(tx: Tx, command: str, sentence: str) -> None:
    # GW-R-072: what was tried is undone, that it was tried is told.
    tx.refusal(_NO_EDGE, _NO_EDGE, command=command, sentence=sentence)


async def _landed(future: Future[R]) -> R:
    """Awaits a future of another thread; asyncio's own wrapper and shield cost every delivery three futures more."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[R] = loop.create_future()

    def tell() -> None:
        # Done already: nobody waits any more, and the outcome is in the ledger.
        if waiter.done():
            return
        if future.cancelled():
            waiter.cancel()
        elif (error := future.exception()) is not None:
            waiter.set_exception(error)
        else:
            waiter.set_result(future.result())

    def landed(_: Future[R]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell)

    future.add_done_callback(landed)
    return await waiter
