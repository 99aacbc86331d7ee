from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from stationmaster.ops import standin
from tests.ops.conftest import COMMAND

# As a shell starts what it puts in the background: deaf to the interrupt key.
DEAF = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("words", "path"), [(["forge", "--dir", "kept"], "/api/v1/version"), (["model"], "/v1/models")]
)
def test_a_stand_in_says_where_it_listens_and_ends_when_told(
    tmp_path: Path, words: list[str], path: str, told: signal.Signals
) -> None:
    command = [*DEAF, *COMMAND, "standin", *words, "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = json.loads(process.stdout.readline())
            assert line["event"] == "listening"
            base = line.get("url") or line["base_url"].removesuffix("/v1")
            assert httpx.get(base + path, trust_env=False).status_code < 500
            process.send_signal(told)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_the_stand_in_of_gitea_mcp_speaks_on_standard_input_and_output() -> None:
    greeting = '{"jsonrpc": "2.0", "id": 1, "method": "initialize"}\n'
    done = CliRunner().invoke(standin.app, ["gitea-mcp", "-t", "stdio", "--dialect", "0.4"], input=greeting)
    assert json.loads(done.output)["result"]["serverInfo"] == {"name": "Gitea MCP Server", "version": "0.4"}
    assert done.exit_code == 0
