"""Things that only one place may do: read the environment, print, sleep, name a fault point."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rules.tree import PACKAGE, ROOT, TESTS, TOOLS, calls, name_of, nodes, short, sources, tracked

# Git speaks to the forge's own hook through its environment, and the hook to the person who pushes by printing.
HOOK = PACKAGE / "standins" / "forge" / "pre_receive.py"
# gitea-mcp is told by its environment where the forge is, and so is what stands in for it.
BRIDGE = PACKAGE / "standins" / "gitea_mcp" / "__main__.py"
ENVIRONMENT = {PACKAGE / "ops" / "config.py", HOOK, BRIDGE}
# The command line speaks to a person, a stand-in says where it listens; everything else reports through the log.
SPEAKS = {
    HOOK,
    PACKAGE / "standins" / "forge" / "server.py",
    PACKAGE / "control" / "cli.py",
    *(PACKAGE / "ops" / f"{name}.py" for name in ("main", "demo", "standin")),
}
EXCEPTION = re.compile(r"#\s*noqa\b")
REASONED = re.compile(r"# noqa: [A-Z]+\d+(?:, [A-Z]+\d+)* - \w")
FAULT = re.compile(r"[a-z_]+(\.[a-z_]+)+")
PACKAGE_HOST = re.compile(r"https?://\S*(?:/simple\b|pypi|pythonhosted)|--(?:extra-)?index-url")


def _names(path: Path) -> set[str]:
    named = {name_of(node) for node in nodes(path) if isinstance(node, ast.Attribute | ast.Name)}
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            named |= {f"{node.module}.{alias.name}" for alias in node.names}
    return named


def calls_any(path: Path, names: set[str]) -> Iterator[ast.Call]:
    return (call for name in names for call in calls(path, name))


def test_only_the_configuration_reads_the_environment() -> None:
    doors = {"os.environ", "os.environb", "os.getenv", "os.getenvb"}
    readers = [short(path) for path in sources(PACKAGE) if path not in ENVIRONMENT and _names(path) & doors]
    assert not readers, "take the value as a parameter; ops/config.py reads it"


def test_whatever_starts_an_effect_asks_whether_it_may() -> None:
    # K6. Above the slices nothing runs inside a command; below them every door outwards has the question in it.
    doors = {"subprocess.run", "subprocess.Popen", "asyncio.create_subprocess_exec", "httpx.AsyncClient"}
    above = {PACKAGE / "ops", PACKAGE / "control", PACKAGE / "standins"}
    inside = [path for path in sources(PACKAGE) if not above & set(path.parents) and any(calls_any(path, doors))]
    assert len(inside) > 3
    asking = {"assert_outside", "command.assert_outside", "commands.assert_outside"}
    assert not [short(path) for path in inside if not any(calls_any(path, asking))]


def test_threads_and_the_event_loop_meet_in_one_place() -> None:
    # K12. The scan for a run's processes only reads /proc.
    bridges = {"asyncio.to_thread", "asyncio.wrap_future", "asyncio.run_coroutine_threadsafe", "asyncio.run"}
    methods = re.compile(r"\.(?:run_in_executor|call_soon_threadsafe)\(")
    allowed = {PACKAGE / "control" / "dispatch.py", PACKAGE / "agents" / "process.py"}
    free = {PACKAGE / "ops", PACKAGE / "standins"}
    assert not [
        short(path)
        for path in sources(PACKAGE)
        if path not in allowed
        and not free & set(path.parents)
        and (any(calls_any(path, bridges)) or methods.search(path.read_text(encoding="utf-8")))
    ]


def test_only_the_command_line_prints() -> None:
    printing = [
        f"{short(path)}:{call.lineno}"
        for path in sources(PACKAGE)
        if path not in SPEAKS and PACKAGE / "ops" / "bench" not in path.parents
        for call in calls(path, "print")
    ]
    assert not printing


def test_fault_points_are_literal_and_unique() -> None:
    named: Counter[str] = Counter()
    for path in sources(PACKAGE):
        for call in (*calls(path, "faults.point"), *calls(path, "point")):
            [argument] = call.args
            assert isinstance(argument, ast.Constant), f"{short(path)}:{call.lineno}: a point has a literal name"
            named[str(argument.value)] += 1
    assert not [name for name, count in named.items() if count > 1 or not FAULT.fullmatch(name)]


def test_every_exception_to_a_rule_says_why() -> None:
    silent = [
        f"{short(path)}:{number}"
        for path in sources(PACKAGE, TOOLS, TESTS)
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if EXCEPTION.search(line) and not REASONED.search(line)
    ]
    assert not silent, "write `# noqa: RULE - reason`"


@pytest.mark.parametrize("sleep", ["time.sleep", "asyncio.sleep", "anyio.sleep", "sleep"])
def test_tests_wait_for_something_and_never_sleep(sleep: str) -> None:
    # asyncio.sleep(0) only lets other tasks run.
    asleep = [
        f"{short(path)}:{call.lineno}"
        for path in sources(TESTS)
        if path.name != "support.py"
        for call in calls(path, sleep)
        if not (isinstance(call.args[0], ast.Constant) and call.args[0].value == 0)
    ]
    assert not asleep, "poll with tests.support.eventually"


def test_no_file_names_the_folder_it_was_written_in_or_a_package_host() -> None:
    places = {f"{ROOT}/"}
    # A checkout in a folder of its own has siblings that no reader has.
    if len(ROOT.parts) > 2 and ROOT.parent not in {Path("/tmp"), Path("/home"), Path("/root"), Path.home()}:
        places.add(f"{ROOT.parent}/")
    here = Path(__file__)
    found = [
        short(path)
        for path in tracked()
        if path != here
        and ((text := path.read_text(encoding="utf-8", errors="replace")) and any(place in text for place in places))
    ]
    found += [
        short(path) for path in tracked() if path != here and PACKAGE_HOST.search(path.read_text(errors="replace"))
    ]
    assert not found
