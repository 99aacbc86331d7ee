"""No file and no function grows beyond what a reader holds in mind."""

from __future__ import annotations

import ast

from tests.rules.tree import PACKAGE, TESTS, TOOLS, nodes, short, sources

FILE, FUNCTION = 500, 60


def test_no_file_is_longer_than_its_budget() -> None:
    code = [*sources(PACKAGE, TOOLS, TESTS), *PACKAGE.rglob("*.sql")]
    over = {short(p): n for p in code if (n := len(p.read_text().splitlines())) > FILE}
    assert not over, f"split by what changes together: {over}"


def test_no_function_is_longer_than_its_budget() -> None:
    over = {}
    for path in sources(PACKAGE, TOOLS, TESTS):
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION:
                    over[f"{short(path)}:{node.lineno} {node.name}"] = length
    assert not over, f"split by steps that have names: {over}"
