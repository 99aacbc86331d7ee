from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stationmaster.standins.forge import Forge, ForgeAdmin
from tests.standins.forge.world import Receiver, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with Forge(tmp_path / "forge") as forge, ForgeAdmin(forge.url) as admin:
        made = World.make(forge, admin, tmp_path)
        yield made
        for client in made.clients:
            client.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made
