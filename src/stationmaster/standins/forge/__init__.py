"""A Gitea-compatible forge: stateful, on disk, hostile on request; imports nothing of the product."""

from __future__ import annotations

from stationmaster.standins.forge.admin_client import ForgeAdmin, ForgeAdminError
from stationmaster.standins.forge.server import Forge, main

__all__ = ["Forge", "ForgeAdmin", "ForgeAdminError", "main"]
