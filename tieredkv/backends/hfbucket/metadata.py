"""What is known of files for a while: hash and size, or that there is none."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import attrs

from tieredkv.clients.hub_answers import FileInfo

__all__ = ["MetadataCache"]

MAX_ENTRIES: Final = 65_536
LONGEST_ABSENCE_S: Final = 2.0
"""An absence is believed for a shorter time: others write, and a value is worth a question."""


@attrs.define
class _Entry:
    info: FileInfo | None
    expires: float
    changed: int


class MetadataCache:
    """Files by path, each with a time to live; the oldest entries go when there are too many.

    An answer is older than the moment it arrives. `now` gives the moment of the question, and
    `learn` takes it: what this process has changed since is not overwritten.
    """

    def __init__(self, ttl_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._changes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def now(self) -> int:
        """The moment, for `learn`: how many changes there have been."""
        return self._changes

    def find(self, path: str) -> tuple[FileInfo | None] | None:
        """Return what is known, in a tuple of one; None if nothing is."""
        entry = self._entries.get(path)
        if entry is None or self._clock() >= entry.expires:
            return None
        return (entry.info,)

    def learn(self, path: str, info: FileInfo | None, *, asked: int) -> None:
        """Note an answer to a question of moment `asked`."""
        entry = self._entries.get(path)
        if entry is None or entry.changed <= asked:
            self._put(path, info, entry.changed if entry else 0)

    def change(self, path: str, info: FileInfo | None) -> None:
        """Note what this process has just put there, or (None) removed."""
        self._changes += 1
        self._put(path, info, self._changes)

    def forget(self, path: str) -> None:
        """Know nothing any more; nor believe an answer to an older question."""
        self._changes += 1
        self._put(path, None, self._changes, ttl_s=0.0)

    def clear(self) -> None:
        """Know nothing."""
        self._entries.clear()

    def _put(
        self, path: str, info: FileInfo | None, changed: int, *, ttl_s: float | None = None
    ) -> None:
        if ttl_s is None:
            ttl_s = self._ttl_s if info is not None else min(self._ttl_s, LONGEST_ABSENCE_S)
        self._entries.pop(path, None)
        self._entries[path] = _Entry(info, self._clock() + ttl_s, changed)
        if len(self._entries) > MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]
