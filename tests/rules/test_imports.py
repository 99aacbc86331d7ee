"""The import contracts hold, and no slice was left out of them."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from typing import Any

from tests.rules.tree import PACKAGE, ROOT, nodes, short, sources

# A contract would have to name modules that may not exist; the rule is the same one.
MAY_USE_STANDINS = ("demo", "standin", "bench")


def _contracts() -> list[dict[str, Any]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return list(tomllib.load(file)["tool"]["importlinter"]["contracts"])


def test_dependencies_point_down() -> None:
    # GW-R-009, GW-R-010
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


def test_every_module_has_a_rank() -> None:
    layers = next(contract["layers"] for contract in _contracts() if contract["type"] == "layers")
    ranked = {name.strip().removeprefix("stationmaster.") for layer in layers for name in layer.split("|")}
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert ranked == (folders | modules) - {"standins"}


def test_every_store_is_protected() -> None:
    protected = {name for contract in _contracts() for name in contract.get("protected_modules", [])}
    stores = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in PACKAGE.rglob("store.py")}
    # A stand-in is a program of its own; nothing of the product may see any part of it.
    stores = {store for store in stores if not store.startswith("stationmaster.standins.")}
    assert stores <= protected, f"add a protected contract for {sorted(stores - protected)}"


def test_only_demo_standin_and_bench_use_the_stand_ins() -> None:
    users = [
        short(path)
        for path in sources(PACKAGE)
        for node in nodes(path)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any(name.startswith("stationmaster.standins") for name in _imported(node))
    ]
    inside = str((PACKAGE / "standins").relative_to(ROOT))
    allowed = [str((PACKAGE / "ops" / name).relative_to(ROOT)) for name in MAY_USE_STANDINS]
    assert not [user for user in users if not user.startswith((inside, *allowed))]


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    names = [alias.name for alias in node.names]
    return names if isinstance(node, ast.Import) else [f"{node.module}.{name}" for name in names]
