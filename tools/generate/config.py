"""docs/config.md: every setting with its default and meaning, from `default.toml`."""

from __future__ import annotations

from stationmaster.ops import config_text

PATH = "config.md"


def render() -> str:
    """Returns the whole document."""
    return config_text.render()
