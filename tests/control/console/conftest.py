"""People at the console."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.control.conftest import Running
from tests.control.console.person import Crowd


@pytest.fixture
async def crowd(running: Running) -> AsyncIterator[Crowd]:
    made = Crowd(running)
    yield made
    await made.close()
