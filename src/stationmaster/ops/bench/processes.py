"""Child processes of the bench, each with a pipe; none outlives the bench."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

from stationmaster.errors import Unavailable

_ANSWER_S = 120.0
_END_S = 20.0
# A fresh interpreter: nothing of the measuring process (threads, open databases) is in the measured one.
_spawn = multiprocessing.get_context("spawn")


class Child:
    """A process that answers over its pipe."""

    def __init__(self, target: Callable[..., None], *args: Any) -> None:
        self._pipe, theirs = _spawn.Pipe()
        self._process = _spawn.Process(target=target, args=(*args, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def heard(self) -> Any:
        """Returns what the child says next; raises Unavailable when it died or hangs."""
        try:
            if self._pipe.poll(_ANSWER_S):
                return self._pipe.recv()
        except (EOFError, OSError):
            pass
        raise Unavailable("A process of the bench died or hangs.", hint="Its words are above.")

    def ask(self, question: Any) -> Any:
        """Returns the answer to a question."""
        self._pipe.send(question)
        return self.heard()

    def end(self) -> None:
        """Tells the child to end, and makes it if it does not."""
        with contextlib.suppress(OSError):
            self._pipe.send(None)
        self._process.join(_END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


@contextlib.contextmanager
def child(target: Callable[..., None], *args: Any) -> Iterator[Child]:
    """Runs a child for the length of a block."""
    started = Child(target, *args)
    try:
        yield started
    finally:
        started.end()
