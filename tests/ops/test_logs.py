from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from stationmaster import redact
from stationmaster.ops import logs

SECRET = "log-secret-4711"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    redact.register(SECRET)
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.mark.parametrize("form", ["json", "keyvalue"])
def test_no_known_secret_is_written_whoever_says_it(capsys: pytest.CaptureFixture[str], form: str) -> None:
    # GW-R-231
    logs.setup("info", "json" if form == "json" else "keyvalue")
    log = structlog.get_logger("t")
    structlog.contextvars.bind_contextvars(task=f"t-{SECRET}")
    log.info(
        "said %s", SECRET, deep={"a": [SECRET, {SECRET: (SECRET,)}]}, error=ValueError(SECRET), number=1, none=None
    )
    logging.getLogger("uvicorn.error").error("server %s", SECRET)
    try:
        int(SECRET)
    except ValueError:
        log.exception("failed")
    written = capsys.readouterr().err
    assert SECRET not in written
    assert written.count("[redacted]") >= 8
    assert len(written.splitlines()) == 3


def test_json_lines_are_objects_with_their_correlation_ids(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("info", "json")
    with structlog.contextvars.bound_contextvars(task_id="task-1"):
        structlog.get_logger("a.b").warning("x.happened", count=2)
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["task_id"], line["count"], line["level"]) == ("x.happened", "task-1", 2, "warning")


def test_a_strangers_text_cannot_forge_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("info", "keyvalue")
    structlog.get_logger("t").info("x", said="a\ntimestamp=1 level=error event=forged")
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_requests_of_clients_are_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup("debug", "keyvalue")
    logging.getLogger("httpx").info("HTTP Request: GET http://x/?token=abc")
    logging.getLogger("uvicorn.access").info("GET /?token=abc")
    structlog.get_logger("t").debug("shown")
    assert "token" not in capsys.readouterr().err
