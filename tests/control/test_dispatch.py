from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest
import structlog

from stationmaster.command import Cmd
from stationmaster.control import operators
from stationmaster.control.dispatch import Dispatch
from stationmaster.errors import Busy, Invalid, Unavailable
from stationmaster.ledger.ledger import Ledger, Reader, Tx
from tests.control.conftest import CONTROL

CMD = Cmd("operator.add", "admin:test", "test")


@pytest.fixture
def port(ledger_factory: Callable[..., Ledger]) -> Iterator[Dispatch]:
    made = Dispatch(ledger_factory([CONTROL]), threads=2)
    yield made
    made.close()


async def test_commands_reads_and_refusals_cross(port: Dispatch) -> None:
    await port.do(CMD, operators.add, "ann", "operate", "h")
    rows = await port.read(operators.every)
    assert [row["name"] for row in rows] == ["ann"]
    with pytest.raises(Invalid):
        await port.do(CMD, operators.add, "ann", "operate", "h2")


async def test_what_a_command_came_to_is_one_line_as_loud_as_it_should_be(port: Dispatch) -> None:
    def busy(tx: Tx) -> None:
        raise Busy("Somebody works there.", code="request_in_progress")

    with structlog.testing.capture_logs() as lines:
        with pytest.raises(Invalid):
            await port.do(CMD, operators.add, "no name", "operate", "h2")
        with pytest.raises(Busy):
            await port.do(CMD, busy)
        port.ledger.close()
        with pytest.raises(Unavailable):
            await port.do(CMD, operators.add, "bob", "operate", "h3")
    assert [(line["log_level"], line["event"], line["code"]) for line in lines] == [
        ("info", "command.refused", "invalid_operator"),
        ("debug", "command.busy", "request_in_progress"),
        ("warning", "command.failed", "store_unavailable"),
    ]
    assert lines[0]["command"] == "operator.add"


async def test_a_command_whose_caller_left_is_done_all_the_same(port: Dispatch) -> None:
    entered, go = threading.Event(), threading.Event()

    def slow(tx: Tx) -> str:
        entered.set()
        assert go.wait(20)
        return operators.add(tx, "ann", "operate", "h")

    calling = asyncio.create_task(port.do(CMD, slow))
    await port.off(entered.wait, 20)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    go.set()
    await port.do(CMD, operators.add, "bob", "operate", "h2")
    assert len(await port.read(operators.every)) == 2


async def test_a_refusal_that_nobody_waits_for_is_no_noise(port: Dispatch) -> None:
    entered, go = threading.Event(), threading.Event()

    def refuse(_reader: Reader) -> None:
        entered.set()
        assert go.wait(20)
        raise Invalid("No.")

    calling = asyncio.create_task(port.read(refuse))
    await port.off(entered.wait, 20)
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    noise: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: noise.append(context))
    go.set()
    await port.read(operators.every)
    assert noise == []


async def test_blocking_work_keeps_its_context_and_its_threads(port: Dispatch) -> None:
    with structlog.contextvars.bound_contextvars(task_id="t-1"):
        assert await port.off(structlog.contextvars.get_contextvars) == {"task_id": "t-1"}
    names = {(await port.off(threading.current_thread)).name for _ in range(10)}
    assert names <= {"off_0", "off_1"}
    assert {thread.name for thread in threading.enumerate()} >= names
