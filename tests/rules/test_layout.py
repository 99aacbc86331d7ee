"""Where things are and what they are called."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.rules.tree import PACKAGE, ROOT, TESTS, TOOLS, nodes, parsed, short, sources

# Folders of tests that tell a story or hold a law across modules instead of testing one.
FREE = {"acceptance", "contract", "crash", "races", "properties", "journeys", "rules", "standins", "console"}
BANNED = re.compile(r"Manager|Service|Helper|Util")
BANNED_FILES = {"common", "util", "utils", "helper", "helpers", "manager", "service", "misc"}
DOTTED = re.compile(r"(?<![\w.])\.\./[\w.-]+")


def test_tests_mirror_the_tree() -> None:
    strays = []
    for path in sources(TESTS):
        parts = path.relative_to(TESTS).parts
        if not path.name.startswith("test_") or parts[0] in FREE:
            continue
        base = TOOLS.joinpath(*parts[1:-1]) if parts[0] == "tools" else PACKAGE.joinpath(*parts[:-1])
        stem = path.stem.removeprefix("test_")
        # One module may have several files of tests: test_ledger.py, test_ledger_groups.py.
        names = [stem[:at] for at in range(1, len(stem) + 1) if at == len(stem) or stem[at] == "_"]
        if not any((base / f"{name}.py").is_file() or (base / name).is_dir() for name in names):
            strays.append(short(path))
    assert not strays, f"no such module: {strays}"


def test_names_say_what_a_thing_is() -> None:
    classes = [
        f"{short(path)}:{node.lineno} {node.name}"
        for path in sources(PACKAGE, TOOLS, TESTS)
        for node in nodes(path)
        if isinstance(node, ast.ClassDef) and BANNED.search(node.name)
    ]
    files = [short(path) for path in sources(PACKAGE, TOOLS, TESTS) if path.stem in BANNED_FILES]
    folders = [short(path) for path in PACKAGE.rglob("*") if path.is_dir() and path.name in BANNED_FILES]
    assert not classes + files + folders, f"name the thing, not its helpfulness: {classes + files + folders}"


def test_every_package_says_what_it_owns() -> None:
    silent = [short(path) for path in sources(PACKAGE, TOOLS) if not ast.get_docstring(parsed(path))]
    assert not silent


def test_text_for_readers_points_nowhere_outside_the_repository() -> None:
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *PACKAGE.rglob("*.md")]
    outside = [
        f"{short(path)}: {found.group()}"
        for path in texts
        for found in DOTTED.finditer(path.read_text(encoding="utf-8"))
        if not _inside(path, found.group())
    ]
    assert not outside


def _inside(path: Path, link: str) -> bool:
    return (path.parent / link).resolve().is_relative_to(ROOT)
