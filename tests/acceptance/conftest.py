from __future__ import annotations

from tests.gitea.conftest import world

__all__ = ["world"]
