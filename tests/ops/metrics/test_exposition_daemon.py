"""A running daemon as its monitoring sees it: what it waits for, its page of metrics, the log of what it refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx

from tests.ops.conftest import CONFIG, Daemon
from tests.ops.metrics.conftest import Page, parsed
from tests.support import eventually

Start = Callable[..., Daemon]
Run = Callable[..., CompletedProcess[str]]
WEBHOOK = "/api/gitea/webhook"


def test_a_daemon_is_watched(start: Start, run: Run) -> None:
    # GW-R-069
    daemon = start()
    ready = f"{daemon.url}/readyz"
    said = eventually(lambda: _settled(httpx.get(ready, trust_env=False).json())) or {}
    # Nobody answers at the forge's address; deliveries are taken all the same.
    assert (said["ready"], said["recovery"], said["isolation"], said["waitsFor"]) == (True, "done", "proven", ["forge"])
    key = json.loads(run("operator", "add", "prometheus", "--scope", "read", "--json").stdout)["key"]
    with httpx.Client(base_url=daemon.url, trust_env=False) as client:
        assert client.get("/metrics").status_code == 401
        for _ in range(3):
            assert client.post(WEBHOOK, json={}).status_code == 401
        page = eventually(lambda: _refused(client, key)) or {}
    assert page["stationmaster_deliveries_total"]["default", "invalid_signature", "rejected"] == 3
    assert page["stationmaster_http_responses_total"]["401", "webhook"] == 3
    assert page["stationmaster_refusals_total"]["webhook.bad_signature", "invalid_signature"] == 1
    assert page["stationmaster_forge_requests_total"]["default", "forge_unreachable"] > 0
    assert page["stationmaster_loop_ticks_total"]["recovery",] > 0
    assert page["stationmaster_loop_failures_total"]["bot",] > 0
    assert page["stationmaster_max_runs"][()] > 0
    assert ("default",) not in page["stationmaster_reading_age_seconds"]
    _, log = daemon.stop()
    assert log.count("event=webhook.bad_signature") == 1


def test_metrics_may_be_off(start: Start, home: Path) -> None:
    (home / "stationmaster.toml").write_text(CONFIG.replace("[web]\n", '[web]\nmetrics = "off"\n'))
    assert httpx.get(f"{start().url}/metrics", trust_env=False).status_code == 404


def _settled(said: dict[str, Any]) -> dict[str, Any] | None:
    return said if (said["recovery"], said["isolation"]) == ("done", "proven") else None


def _refused(client: httpx.Client, key: str) -> Page | None:
    page = parsed(client.get("/metrics", headers={"Authorization": f"Bearer {key}"}).content)
    return page if page["stationmaster_refusals_total"] else None
