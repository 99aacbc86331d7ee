"""A rig for each story; stories that need other settings or another model make their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.record import Recorder
from tests.journeys.rig import Rig


@pytest.fixture(autouse=True)
def _recorded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes down what each story with kills came to, when that was asked for."""
    path = request.config.getoption("--record")
    if path is not None:
        monkeypatch.setattr(Rig, "recorder", Recorder(path))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A running product whose model changes two files, or answers what it did."""
    with Rig.made(tmp_path) as made:
        made.start()
        yield made
