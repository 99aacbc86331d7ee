"""Runs the stand-in as a program of its own, as an MCP client starts gitea-mcp."""

from __future__ import annotations

import os
import sys

from stationmaster.standins.gitea_mcp.server import main

sys.exit(main(sys.argv[1:], dict(os.environ)))
