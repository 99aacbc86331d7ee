"""Makes docs/failures.md: what can fail, what becomes of the task, and which tests show it."""

from __future__ import annotations

from stationmaster.gitea import codes
from tools.failures import failures

PATH = "failures.md"

_HEAD = """# What can fail

Generated from `docs/requirements/failures.toml` and the tests by `make docs`; do not edit. Everything that may be tried
again shares one retry per task; checking an answer, asking for it once more and unblocking have counts of their own.

The words are those that a person reads: in the thread when the task rests there, in the console and in `task show`.

| id | what happens | how it is noticed | what becomes of it | code | its words | retries | shown by |
|---|---|---|---|---|---|---|---|
"""


def render() -> str:
    """Returns the document."""
    rows = []
    for row in failures():
        code = f"`{row.code}`" if row.code else ""
        words = codes.text(row.code) if row.code else ""
        tests = "<br>".join(f"`{test}`" for test in row.tests)
        cells = (row.id, row.situation, row.noticed, row.becomes, code, words, row.retries, tests)
        rows.append(f"| {' | '.join(cells)} |\n")
    return _HEAD + "".join(rows)
