"""docs/commands.md: every command of the doors, from its one declaration."""

from __future__ import annotations

from stationmaster.control import commands_text

PATH = "commands.md"


def render() -> str:
    """Returns the whole document."""
    return commands_text.render()
