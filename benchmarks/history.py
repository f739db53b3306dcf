"""What was put under each key, and what a read may bring: the oracle of a soak."""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import takewhile
from typing import Final

import anyio
from xxhash import xxh3_128_digest

from tieredkv.config import KiB

__all__ = ["History"]

_SIZES: Final = (16, 1 * KiB, 5_000, 40 * KiB, 100_000, 300 * KiB)
_REMEMBERED: Final = 20_000  # versions: no read takes as long as so many puts and deletes


class History:
    """What was put under each key, and what a read may bring.

    Attributes:
        wrong: In words, what must not be.
        verified_bytes: Bytes that were compared.
    """

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.verified_bytes: int = 0
        self._versions: dict[str, dict[bytes, int]] = defaultdict(dict)
        self._oldest: Counter[str] = Counter()  # version that a read may bring
        self._passed: deque[tuple[int, str, int]] = deque()  # when what of a key became too old
        self._last = 0
        self._changing: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    @asynccontextmanager
    async def changing(self, keys: Sequence[str]) -> AsyncIterator[None]:
        """Let nobody else change these keys: else which of two puts is the later one?"""
        async with AsyncExitStack() as locks:
            for key in sorted(set(keys)):
                await locks.enter_async_context(self._changing[key])
            yield

    def new_value(self, key: str, chance: random.Random) -> tuple[bytes, int]:
        """Return a value for a key, and its version."""
        value = chance.randbytes(chance.choice(_SIZES) + chance.randrange(16))
        digest = xxh3_128_digest(value)
        return value, self._versions[key].setdefault(digest, self.next_version())

    def next_version(self) -> int:
        self._last += 1
        return self._last

    def oldest(self, key: str) -> int:
        """Return the oldest version that a read may bring which begins now."""
        return self._oldest[key]

    def changed(self, key: str, version: int) -> None:
        """Note that a put or delete has returned, or a read that shows it."""
        if version > self._oldest[key]:
            self._oldest[key] = version
            self._passed.append((self._last, key, version))
        while self._passed and self._passed[0][0] < self._last - _REMEMBERED:
            self._forget(*self._passed.popleft()[1:])

    def verify(self, key: str, value: memoryview | bytearray, oldest: int, where: str) -> None:
        """Compare what a read has brought that began when a version was the oldest."""
        version = self._versions[key].get(xxh3_128_digest(value))
        self.verified_bytes += len(value)
        if version is None:
            self.wrong.append(f"{key}: {where} has {len(value)} bytes that nobody put")
        elif version < oldest:
            self.wrong.append(f"{key}: {where} has version {version} after {oldest}")
        else:
            self.changed(key, version)

    def _forget(self, key: str, oldest: int) -> None:
        """Drop the versions of a key that no read can still be at."""
        versions = self._versions[key]
        for digest in [*takewhile(lambda digest: versions[digest] < oldest, versions)]:
            del versions[digest]
