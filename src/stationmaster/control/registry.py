"""Every command there is, in the order of the reference page."""

from __future__ import annotations

from typing import Any

from stationmaster.control import audit, change, holds, keys, look, timeline, upkeep
from stationmaster.control.commands import Command

COMMANDS: tuple[Command[Any, Any], ...] = (
    look.overview,
    look.tasks,
    look.task,
    look.repositories,
    timeline.timeline,
    change.pause,
    change.resume,
    change.cancel,
    change.abort,
    change.unblock,
    change.retry,
    holds.every,
    change.release,
    holds.show,
    change.disable,
    change.enable,
    change.catchup,
    audit.audit,
    keys.add,
    keys.every,
    keys.revoke,
    upkeep.backup,
    upkeep.retention,
)
