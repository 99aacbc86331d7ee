"""Words everything the process says: one line an event on standard error, every known secret masked.

Modules emit facts through structlog or logging; nothing else here decides what is said. Standard output belongs to
the command line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from stationmaster import redact

# These talk about every request or connection at "info": addresses and queries that are none of a log's business.
_QUIET = ("httpx", "httpcore", "uvicorn", "asyncio")


def setup(level: Literal["debug", "info", "warning", "error"], form: Literal["keyvalue", "json"]) -> None:
    """Sends structlog and logging (uvicorn's too) through one chain to standard error."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            masked,
            _renderer(form),
        ],
    )
    handler = _Handler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


class _Handler(logging.StreamHandler[TextIO]):
    """A stream handler whose finished line is masked once more: a secret may sit across two fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line without any known secret."""
        return redact.clean(super().format(record))


def masked(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Masks every known secret in every text of an event, however deep."""
    return {key: _mask(value) for key, value in event.items()}


def _mask(value: Any) -> Any:
    if isinstance(value, str):
        return redact.clean(value)
    if isinstance(value, Mapping):
        return {_mask(key): _mask(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_mask(inner) for inner in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return redact.clean(str(value))


def _renderer(form: Literal["keyvalue", "json"]) -> Processor:
    if form == "json":
        return structlog.processors.JSONRenderer(sort_keys=True)
    # A newline inside a value would let a stranger's text forge a line of the log; logfmt quotes and escapes it.
    return structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], bool_as_flag=False)
