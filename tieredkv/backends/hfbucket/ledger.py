"""What this process has put into the bucket: how much, how recently used, what is not certain."""

from __future__ import annotations

import time
from collections.abc import KeysView
from typing import Final

import attrs

from tieredkv.backends.hfbucket.metadata import MetadataCache
from tieredkv.clients.hub_answers import FileInfo

__all__ = ["Ledger"]

_UNCERTAIN_S: Final = 600.0
"""What has not landed by then will not; as long as a store keeps old bytes out."""

_MAX_ATTEMPTS: Final = 65_536


@attrs.frozen
class _Attempt:
    """A change without an answer: what would be there, and since when."""

    info: FileInfo | None
    began: int
    ends: float


class Ledger:
    """Sizes by path, least recently used first, and changes whose outcome is not known.

    Attributes:
        nbytes: Bytes of all values.
    """

    def __init__(self, cache: MetadataCache) -> None:
        self.nbytes: int = 0
        self._cache = cache
        self._sizes: dict[str, int] = {}
        self._attempts: dict[str, _Attempt] = {}

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def unsettled(self) -> KeysView[str]:
        """Paths whose last change has no certain outcome."""
        return self._attempts.keys()

    def attempt(self, path: str, info: FileInfo | None) -> None:
        """Note that a change is about to be asked for; it stays uncertain until it is settled."""
        self._cache.forget(path)
        self._attempts.pop(path, None)
        self._attempts[path] = _Attempt(info, self._cache.now, time.monotonic() + _UNCERTAIN_S)
        if len(self._attempts) > _MAX_ATTEMPTS:
            del self._attempts[next(iter(self._attempts))]

    def confirm(self, path: str, info: FileInfo | None) -> None:
        """Note that a change has been made."""
        self._attempts.pop(path, None)
        self._cache.change(path, info)
        self._account(path, info)

    def abandon(self, path: str) -> None:
        """Note that a change has certainly not been made."""
        self._attempts.pop(path, None)

    def settle(self, path: str, found: FileInfo | None, *, asked: int) -> None:
        """Take an answer of the Hub, asked at a moment of the cache, about an uncertain change."""
        attempt = self._attempts.get(path)
        if attempt is None or attempt.began > asked:
            return
        landed = attempt.info == found
        if landed or time.monotonic() > attempt.ends:
            del self._attempts[path]
        if landed or path in self._sizes:
            self._account(path, found)

    def touch(self, path: str) -> None:
        """Note a use."""
        size = self._sizes.pop(path, None)
        if size is not None:
            self._sizes[path] = size

    def oldest(self, limit_bytes: int) -> list[str]:
        """Return the least recently used paths without which at most `limit_bytes` are left."""
        left, paths = self.nbytes, []
        for path, size in self._sizes.items():
            if left <= limit_bytes:
                break
            if path not in self._attempts:
                left -= size
                paths.append(path)
        return paths

    def _account(self, path: str, info: FileInfo | None) -> None:
        self.nbytes -= self._sizes.pop(path, 0)
        if info is not None:
            self._sizes[path] = info.size
            self.nbytes += info.size
