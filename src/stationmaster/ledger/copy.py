"""Copies a SQLite ledger while it is written: one consistent moment of it, in one file that needs no other.

SQLite's own online backup in a single step. The writer goes on meanwhile; only its log cannot be reset before the end.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from stationmaster.errors import Unavailable
from stationmaster.ledger import sqlite


def copy(source: Path, target: Path) -> None:
    """Writes a copy of the ledger at `source` to the new file `target`; raises Unavailable when it cannot."""
    reading = sqlite.connect(source, writing=False)
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with contextlib.closing(sqlite3.connect(target)) as writing:
            reading.backup(writing, pages=-1)
            # The copy carries the mark of a log that it has no file of.
            writing.execute("PRAGMA journal_mode = DELETE")
    except (sqlite3.Error, OSError) as error:
        raise Unavailable(
            f"The ledger could not be copied to {target} ({error}).",
            code="backup_failed",
            hint="Check that the folder is ours and has space.",
        ) from error
    finally:
        reading.close()
