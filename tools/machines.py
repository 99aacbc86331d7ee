"""Finds every state machine of the product by importing the modules that make one."""

from __future__ import annotations

import importlib
from pathlib import Path

import stationmaster
from stationmaster.machine import Machine


def machines() -> list[Machine]:
    """Returns the machines of all slices, sorted by table; two machines for one table are an error."""
    package = Path(stationmaster.__path__[0])
    found: dict[str, Machine] = {}
    for path in sorted(package.rglob("*.py")):
        if "Machine(" not in path.read_text(encoding="utf-8") or path == package / "machine.py":
            continue
        parts = path.relative_to(package.parent).with_suffix("").parts
        module = importlib.import_module(".".join(part for part in parts if part != "__init__"))
        for value in vars(module).values():
            if isinstance(value, Machine) and found.setdefault(value.table, value) is not value:
                message = f"{value.table} has two machines"
                raise ValueError(message)
    return [found[table] for table in sorted(found)]
