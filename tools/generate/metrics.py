"""docs/metrics.md: every metric with its kind, labels and meaning, from the families in the code."""

from __future__ import annotations

from stationmaster.ops.metrics.families import FAMILIES, Family

PATH = "metrics.md"

_HEAD = """# Metrics

Generated from the code, by `make docs`. `GET /metrics` gives these to Prometheus ([operations.md](operations.md) says
how to ask and what to watch), and beside them `process_*` (memory, processor time, open files, start). No label holds
the name of a repository, a person or an address.

| from | means |
|---|---|
| ledger | read from the ledger at the scrape: true of everything that works on this ledger |
| history | counted from the ledger's history since this process began, for every process: of several look at one |
| process | seen in this process since it began |

Counters and histograms begin at zero with the process, as Prometheus expects. A histogram has `_bucket`, `_sum` and
`_count`.
"""


def render() -> str:
    """Returns the whole document."""
    rows = [_row(family) for family in FAMILIES]
    return "\n".join([_HEAD, "| metric | kind | from | labels | meaning |", "|---|---|---|---|---|", *rows, ""])


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.shown}` | {family.kind} | {family.source} | {labels} | {family.about} |"
