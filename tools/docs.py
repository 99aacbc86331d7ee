"""Writes the generated documents, or with --check says which of them are stale.

`python -m tools.docs [--check]`; every module in tools/generate makes one document.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools import generate

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Document:
    """A document and the function that makes its text."""

    path: Path
    render: Callable[[], str]

    def is_fresh(self) -> bool:
        """Tells whether the file holds what would be written now."""
        return self.path.is_file() and self.path.read_text(encoding="utf-8") == self.render()


def documents() -> list[Document]:
    """Returns every generated document, sorted by name."""
    modules = [
        importlib.import_module(f"{generate.__name__}.{found.name}")
        for found in pkgutil.iter_modules(generate.__path__)
    ]
    return [Document(ROOT / "docs" / module.PATH, module.render) for module in modules]


def main(arguments: list[str]) -> int:
    """Writes or checks; returns the exit status."""
    stale = [document for document in documents() if not document.is_fresh()]
    for document in stale:
        name = document.path.relative_to(ROOT)
        if "--check" in arguments:
            sys.stderr.write(f"{name} is stale: run `make docs` and commit the result.\n")
        else:
            document.path.write_text(document.render(), encoding="utf-8")
            sys.stdout.write(f"{name} written\n")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
