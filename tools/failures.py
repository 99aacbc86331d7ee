"""The failure matrix: its rows from docs/requirements/failures.toml, the tests that show each from the citations."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

from tools.trace import ROOT, citations


@dataclass(frozen=True, slots=True)
class Failure:
    """One row; `code` is empty where nothing is wrong with the task."""

    id: str
    situation: str
    noticed: str
    becomes: str
    code: str
    retries: str

    @property
    def tests(self) -> list[str]:
        """The tests that show it."""
        return citations().get(self.id, [])


def failures() -> list[Failure]:
    """Reads the table."""
    with (ROOT / "docs" / "requirements" / "failures.toml").open("rb") as file:
        return [Failure(id=name, **row) for name, row in tomllib.load(file).items()]
