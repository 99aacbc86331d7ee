"""The source tree as the rules see it: parsed once, named from the root."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "src" / "stationmaster"
TESTS = ROOT / "tests"
TOOLS = ROOT / "tools"


@cache
def sources(*folders: Path) -> tuple[Path, ...]:
    """Every Python file under the folders, sorted."""
    return tuple(sorted(path for folder in folders for path in folder.rglob("*.py")))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def tracked() -> tuple[Path, ...]:
    """Every file that belongs to the repository and holds text."""
    # The checkout may belong to another user than the one who runs the gate.
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.split(b"\0")
    paths = (ROOT / name.decode() for name in names if name)
    return tuple(path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:4096])


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file; walked once, for every rule walks them all."""
    return tuple(ast.walk(parsed(path)))


def calls(path: Path, dotted: str) -> Iterator[ast.Call]:
    """Calls written as `dotted` in this file."""
    yield from _calls(path).get(dotted, ())


@cache
def _calls(path: Path) -> dict[str, list[ast.Call]]:
    found: dict[str, list[ast.Call]] = {}
    for node in nodes(path):
        if isinstance(node, ast.Call):
            found.setdefault(name_of(node.func), []).append(node)
    return found


def name_of(node: ast.expr) -> str:
    """The dotted name of an expression, or nothing."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = name_of(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))
