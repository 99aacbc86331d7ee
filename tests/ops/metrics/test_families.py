"""The alert rules ask for metrics and labels that exist, and lead to a page that exists."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from stationmaster.gitea.machine import TASK
from stationmaster.ops.metrics.families import FAMILIES
from tests.ops.metrics.conftest import Watched
from tests.rules.tree import ROOT

RULES = ROOT / "docs" / "prometheus" / "alerts.yml"
# What Prometheus itself gives.
THEIRS = {"up": {"job"}, "process_start_time_seconds": {"job"}}
_NAME = re.compile(r"\b(?:stationmaster_\w+|process_\w+|up)\b")
_SELECTOR = re.compile(r"(\w+)\{([^}]*)\}")
_MATCH = re.compile(r'(\w+)(?:=~|=)"([^"]*)"')


def rules() -> Iterator[dict[str, str]]:
    """Yields each rule as its fields; the file keeps to one line a field."""
    for block in RULES.read_text().split("- alert:")[1:]:
        name, _, rest = block.partition("\n")
        fields = {"alert": name.strip(), "expr": re.search(r"expr: >-\n\s+(.+)\n", rest)[1]}  # type: ignore[index]
        for key in ("for", "severity", "summary", "action", "docs"):
            found = re.search(rf"^\s+{key}: (.+)$", rest, re.MULTILINE)
            if found:
                fields[key] = found[1].strip('"')
        yield fields


@pytest.mark.parametrize("rule", list(rules()), ids=lambda rule: rule["alert"])
def test_a_rule_says_what_to_do_and_where_it_is_written(rule: dict[str, str]) -> None:
    # GW-R-069
    assert rule["severity"] in {"critical", "warning"}
    assert rule["summary"].endswith(".")
    assert len(rule["action"]) > 20
    path, _, anchor = rule["docs"].partition("#")
    heads = [line.removeprefix("## ") for line in (ROOT / path).read_text().splitlines() if line.startswith("## ")]
    assert anchor in {_anchor(head) for head in heads}


@pytest.mark.parametrize("watched", ["sqlite"], indirect=True)
async def test_every_rule_asks_for_what_is_on_the_page(watched: Watched) -> None:
    # GW-R-069
    page = await watched.page()
    shown = {family.shown: set(family.labels) for family in FAMILIES}
    shown |= {f"{name}_bucket": labels | {"le"} for name, labels in shown.items() if name.endswith("_seconds")}
    for rule in rules():
        named = set(_NAME.findall(rule["expr"]))
        assert named
        assert named <= {*shown, *THEIRS}, rule["alert"]
        assert {name for name in named if name.startswith("stationmaster_")} <= {*page, *_labelled(shown)}
        for name, inside in _SELECTOR.findall(rule["expr"]):
            labels = shown[name] if name in shown else THEIRS[name]
            assert {label for label, _ in _MATCH.findall(inside)} <= labels, rule["alert"]
        for label in re.findall(r"\$labels\.(\w+)", rule["summary"] + rule["action"]):
            assert any(label in shown.get(name, ()) for name in named), rule["alert"]


def test_the_states_that_rules_name_exist() -> None:
    named = {
        state
        for rule in rules()
        for label, value in _MATCH.findall(rule["expr"])
        if label in {"to", "state"}
        for state in value.split("|")
    }
    assert named
    assert named <= TASK.states


def _labelled(shown: dict[str, set[str]]) -> set[str]:
    # A family with labels has no sample before the first event; its name is on the page all the same.
    return {name for name, labels in shown.items() if labels}


def _anchor(head: str) -> str:
    return re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")
