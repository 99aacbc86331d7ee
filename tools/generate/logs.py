"""docs/logs.md: every event that the log may tell of, from the calls in the code."""

from __future__ import annotations

from itertools import groupby

from tools import logged

PATH = "logs.md"

_HEAD = """# What the log says

Generated from the calls in the code, by `make docs`. One line an event on standard error; `event` is the stable name,
the fields stand beside it. A line that belongs to a delivery, a task, a turn or a request also carries `delivery`,
`repo`, `task`, `resource`, `turn` and `request`, as far as they are known; `request` is the answer's `X-Request-Id`.
No line holds the text of an issue, a comment or an agent, and every secret that Stationmaster ever read is masked in
every field.

Beside these, each refusal and each alert that is written into the history is told once, at `warning`, by the daemon
that runs then: `event` is its action (`webhook.bad_signature`, `alert.reply_unknown`, …) with `command`, `code` and the
ids. The same actions are in the audit, which is complete; the log is not.

| event | level | fields | where |
|---|---|---|---|
"""


def render() -> str:
    """Returns the whole document."""
    found = sorted((line for line in logged.lines() if line.event), key=lambda line: line.event or "")
    return (
        _HEAD
        + "\n".join(_row(name or "", list(same)) for name, same in groupby(found, key=lambda line: line.event))
        + "\n"
    )


def _row(name: str, same: list[logged.Line]) -> str:
    levels = ", ".join(sorted({line.level for line in same}, key=logged.LEVELS.index))
    fields = sorted({field for line in same for field in line.fields})
    places = ", ".join(f"`{place}`" for place in sorted({line.place for line in same}))
    return f"| `{name}` | {levels} | {', '.join(f'`{field}`' for field in fields)} | {places} |"
