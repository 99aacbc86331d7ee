"""What the log of a whole run says: ids that lead from a delivery to its turn, no secret, no text of anybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.journeys.rig import Rig, reply, rule
from tests.ops.metrics.conftest import Page, parsed
from tests.support import eventually

ASKED = "please change the zebrafish"
ANSWERED = "The zebrafish is changed."
DEBUG = {"log": {"level": "debug", "format": "json"}}


def _lines(rig: Rig) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rig.product.log.read_text().splitlines()]


def _is_counted(page: Page) -> None:
    """Asserts that the one task of this product is on its page of metrics."""
    once = ("claim_wait", "preparation", "verification", "receipt", "answer")
    assert [page[f"stationmaster_{name}_seconds_count"][()] for name in once] == [1] * len(once)
    assert page["stationmaster_turn_seconds_count"] == {("completed",): 1}
    assert page["stationmaster_task_moves_total"]["succeeded",] == 1
    assert page["stationmaster_deliveries_total"]["default", "queued", "accepted"] == 1
    assert page["stationmaster_comments_total"] == {("confirmed", "mcp_final"): 1, ("confirmed", "status"): 1}
    assert page["stationmaster_outcomes_total"]["reply.verify", "found"] == 1
    assert page["stationmaster_unknown_outcomes_total"][()] == 0
    assert page["stationmaster_forge_requests_total"]["default", "2xx"] > 5
    assert page["stationmaster_live_runs"][()] == 0


def test_a_run_is_told_with_its_ids_and_without_its_words(tmp_path: Path) -> None:
    # GW-R-231
    model = rule("please change", {"shell": "echo zebrafish >> README.md"}, reply(ANSWERED), "Done with the zebrafish.")
    with Rig.made(tmp_path, model) as rig:
        rig.configure(DEBUG)
        rig.start()
        comment = rig.mention(ASKED)
        task_id = rig.accepted(comment)
        found = rig.rests(task_id)
        rig.proves(found)
        # A refusal on the way in, one of a command, and one that the history keeps.
        key = json.loads(rig.product.command_line("operator", "add", "ann", "--json").stdout)["key"]
        rig.product.command_line("operator", "add", "ann")
        rig.get("/api/gitea-workflow/tasks", Authorization="Bearer smk_seeded-wrong-key-0815")
        _is_counted(parsed(rig.get("/metrics", Authorization=f"Bearer {key}").content))
        eventually(lambda: any(line["event"] == "command.refused" for line in _lines(rig)))
        rig.restart()
        rig.mention("status")
        eventually(lambda: len(rig.said()) == 3)
        rig.product.stop()
        lines = _lines(rig)
        written = rig.product.log.read_text()
    for text in ("zebrafish", rig.token, rig.hook_secret, key, "smk_seeded-wrong-key-0815", "too short"):
        assert text not in written
    for line in lines:
        assert {"event", "level", "timestamp", "logger"} <= line.keys()
        # Whatever belongs to a task leads back to what asked for it.
        if "turn" in line:
            assert line["task"] == task_id
            assert line["delivery"]
            assert line["repo"] == "default:acme/widgets"
    refused = next(line for line in lines if line["event"] == "command.refused")
    assert refused["command"] == "operator.add"
    assert refused["code"] == "operator_exists"
    assert refused["request"].startswith("req_")
    told = [line["event"] for line in lines if line.get("task") == task_id]
    assert told == ["webhook.answered", "task.claimed", "turn.opened", "turn.ended", "task.rests"]
    assert all(line["turn"] for line in lines if line["event"] in {"turn.opened", "turn.ended"})
