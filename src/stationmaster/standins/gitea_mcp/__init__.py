"""A program that stands in for the official gitea-mcp: stdio, three dialects, misbehaving on request."""

from __future__ import annotations

from stationmaster.standins.gitea_mcp.dialects import DIALECTS
from stationmaster.standins.gitea_mcp.server import PLAYS, GiteaMcp, main

__all__ = ["DIALECTS", "PLAYS", "GiteaMcp", "main"]
