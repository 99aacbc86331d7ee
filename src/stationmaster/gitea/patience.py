"""When something that did not come to its end is tried again; what is lost with the process is only patience."""

from __future__ import annotations

from collections.abc import Collection


class Patience:
    """Pauses by key, in microseconds: each twice as long as the one before, up to the longest."""

    def __init__(self, first: int, longest: int) -> None:
        self._first = first
        self._longest = longest
        self._later: dict[str, tuple[int, int]] = {}

    def over(self, key: str, now: int) -> bool:
        """Tells whether something may be tried now."""
        return self._later.get(key, (0, 0))[0] <= now

    def put_off(self, key: str, now: int, again_at: int | None = None) -> None:
        """Lets something wait, until `again_at` when that is known."""
        _, last = self._later.get(key, (0, 0))
        pause = min(last * 2 or self._first, self._longest)
        self._later[key] = (again_at or now + pause, pause)

    def forget(self, key: str) -> None:
        """Lets the next pause of something be the first again."""
        self._later.pop(key, None)

    def keep(self, keys: Collection[str]) -> None:
        """Forgets everything but these."""
        self._later = {key: at for key, at in self._later.items() if key in keys}
