"""Which repositories are watched, how far each was read, and what is known of what was asked there.

Times of the forge are its own; they are compared with one another only, never with our clock.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from stationmaster.gitea.model import read
from stationmaster.gitea.triggers import Origin
from stationmaster.ledger import queries
from stationmaster.ledger.tx import HotTx, Reader

Part = Literal["issues", "comments"]

Q = queries.load("stationmaster.gitea", "reading.sql")


class Watch(msgspec.Struct, frozen=True):
    """A repository that is watched; what is older than `began_at`, by the forge's clock, starts nothing."""

    native_id: int
    owner: str
    name: str
    began_at: int
    looked_at: int | None
    error_code: str | None


class Cursor(msgspec.Struct, frozen=True):
    """How far a part of a repository was read: every change up to `read_to`, everything written up to `new_from`.

    The second stays behind while a long reading is under way: what was written early and changed late is met last.
    """

    read_to: int
    new_from: int


class Listing(msgspec.Struct, frozen=True):
    """What is known of a forge: when it last said which repositories there are, and how the last round went."""

    forge_at: int | None
    round_at: int | None
    found: int
    taken: int
    failed: int
    error_code: str | None


def of(reader: Reader, instance_id: str, native_id: int) -> Watch | None:
    """Returns the watch over a repository."""
    row = reader.one(Q.watched, instance_id=instance_id, native_id=native_id)
    return None if row is None else read(row, Watch)


def named(reader: Reader, instance_id: str, owner: str, name: str) -> Watch | None:
    """Returns the watch over a repository by the name it had when it was last listed."""
    row = reader.one(Q.watched_named, instance_id=instance_id, owner=owner.lower(), name=name.lower())
    return None if row is None else read(row, Watch)


def begin(hot: HotTx, instance_id: str, repositories: list[tuple[int, str, str]], began_at: int) -> None:
    """Begins to watch repositories, given as number, owner and name; of a watched one only the name is renewed."""
    for native_id, owner, name in repositories:
        hot.run(Q.watch, instance_id=instance_id, native_id=native_id, owner=owner, name=name, began_at=began_at)


def looked(hot: HotTx, instance_id: str, native_id: int, error_code: str | None) -> None:
    """Notes that a repository was read to its end, or why it could not be."""
    hot.run(Q.watch_looked, instance_id=instance_id, native_id=native_id, at=hot.now, error_code=error_code)


def cursor(reader: Reader, instance_id: str, native_id: int, part: Part) -> Cursor | None:
    """Returns how far a part of a repository was read."""
    row = reader.one(Q.cursor, instance_id=instance_id, native_id=native_id, kind=part)
    return None if row is None else read(row, Cursor)


def move(hot: HotTx, instance_id: str, native_id: int, part: Part, to: Cursor) -> None:
    """Moves a cursor on, never back; only after everything up to there was admitted."""
    hot.run(
        Q.move_cursor,
        instance_id=instance_id,
        native_id=native_id,
        kind=part,
        read_to=to.read_to,
        new_from=to.new_from,
        at=hot.now,
    )


def listing(reader: Reader, instance_id: str) -> Listing | None:
    """Returns what is known of a forge, None before it was ever asked."""
    row = reader.one(Q.listing, instance_id=instance_id)
    return None if row is None else read(row, Listing)


def listed(hot: HotTx, instance_id: str, forge_at: int) -> None:
    """Notes when, by its own clock, a forge said which repositories the bot sees."""
    hot.run(Q.listed, instance_id=instance_id, forge_at=forge_at)


def not_listed(hot: HotTx, instance_id: str, error_code: str) -> None:
    """Notes why a forge cannot be read."""
    hot.run(Q.not_listed, instance_id=instance_id, error_code=error_code)


def round_done(hot: HotTx, instance_id: str, *, found: int, taken: int, failed: int) -> None:
    """Notes that a forge was read through."""
    hot.run(Q.round_done, instance_id=instance_id, at=hot.now, found=found, taken=taken, failed=failed)


def gap_closed(hot: HotTx, instance_id: str, repo_key: str, *, since: int, until: int, taken: int) -> None:
    """Notes the last gap of a forge that was closed."""
    hot.run(Q.gap_closed, instance_id=instance_id, repo_key=repo_key, since=since, until=until, taken=taken)


def in_all(reader: Reader, instance_id: str) -> dict[str, Any]:
    """Returns how many repositories are watched and how many of them could not be read."""
    return reader.one(Q.watched_in_all, instance_id=instance_id) or {}


def known(reader: Reader, instance_id: str, origin: Origin, native_id: int) -> bool:
    """Tells whether something was asked already, in whatever wording."""
    return reader.one(Q.known, instance_id=instance_id, origin=origin, native_id=native_id) is not None
