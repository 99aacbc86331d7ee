from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from stationmaster.control import rest
from stationmaster.control.commands import Site
from stationmaster.control.readiness import Standing
from tests.control.conftest import Running


async def _asked(running: Running, *, going: bool = True, **standing: Any) -> tuple[int, dict[str, Any]]:
    app = rest.app(Site(running.port, lambda: None), (), None, lambda: going, standing=lambda: Standing(**standing))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        answer = await client.get("/readyz")
    return answer.status_code, answer.json()


async def test_ready_means_that_deliveries_are_kept_and_the_rest_is_told(running: Running) -> None:
    status, said = await _asked(running, recovery="pending", isolation="refused", forge="pending", runs_refused="No.")
    assert status == 200
    assert said == {
        "status": "ready",
        "ready": True,
        "ledger": "ok",
        "recovery": "pending",
        "isolation": "refused",
        "forge": "pending",
        "waitsFor": ["recovery", "isolation", "forge"],
        "runsRefused": "No.",
    }
    _, said = await _asked(running, forge="pending", silent=("lab",))
    assert (said["ready"], said["silentForges"]) == (True, ["lab"])
    status, said = await _asked(running, recovery="done", isolation="proven", forge="reached")
    assert (status, said["waitsFor"]) == (200, [])


async def test_a_store_that_keeps_nothing_is_not_ready(running: Running) -> None:
    status, said = await _asked(running, writable=False)
    assert (status, said["status"], said["ledger"], said["waitsFor"]) == (503, "not_ready", "unwritable", ["ledger"])


async def test_a_ledger_that_cannot_be_read_is_not_ready(running: Running, tmp_path: Path) -> None:
    running.ledger.close()
    status, said = await _asked(running)
    assert (status, said["ready"], said["ledger"]) == (503, False, "unreadable")


async def test_a_process_that_stops_says_so(running: Running) -> None:
    status, said = await _asked(running, going=False)
    assert (status, said["status"], said["ready"]) == (503, "stopping", False)
