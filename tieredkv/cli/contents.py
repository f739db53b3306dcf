"""Checkable contents: what a chunk must hold follows from its id and a seed, to the last byte.

A value is the chunk's id in 8 bytes, then a window of one random block, at a place that no other of
2**20 neighbouring ids shares. So a check is one comparison in memory, 10 GB/s and more, without a
copy and without any code of the store: no wrong byte passes it, and no other chunk's value.
"""

from __future__ import annotations

import random
from typing import Final

from tieredkv.config import MiB
from tieredkv.keys import ObjectKey

__all__ = ["MAX_VALUE_BYTES", "MIN_VALUE_BYTES", "Contents"]

_ID_BYTES: Final = 8
_PLACES: Final = 1 * MiB
_STRIDE: Final = 405_029  # odd, so that ids meet only after 2**20; far, so that neighbours differ

MIN_VALUE_BYTES: Final = 2 * _ID_BYTES
MAX_VALUE_BYTES: Final = 128 * MiB  # Python's generator gives less than 256 MiB at once


class Contents:
    """The values of all chunks, each of one size.

    Attributes:
        value_bytes: Size of a value.
    """

    def __init__(self, seed: int, value_bytes: int) -> None:
        if value_bytes < MIN_VALUE_BYTES:
            raise ValueError(f"value_bytes={value_bytes} is below {MIN_VALUE_BYTES}")
        self.value_bytes = value_bytes
        dice = random.Random(seed)  # noqa: S311 - to be repeatable, not secret
        self._block = dice.randbytes(_PLACES + value_bytes - _ID_BYTES)

    @staticmethod
    def key(chunk: int) -> ObjectKey:
        """Return the key of a chunk."""
        return ObjectKey("demo", 0, chunk.to_bytes(_ID_BYTES, "big"))

    def value(self, chunk: int) -> bytes:
        """Return what a chunk holds."""
        start = self._start(chunk)
        window = self._block[start : start + self.value_bytes - _ID_BYTES]
        return chunk.to_bytes(_ID_BYTES, "big") + window

    def is_right(self, chunk: int, value: memoryview) -> bool:
        """Return whether every byte of a chunk's value is what it must be.

        Args:
            chunk: Its id.
            value: C-contiguous bytes (format ``"B"``); no reference is kept.
        """
        # `startswith` compares memory; `==` of memoryviews unpacks every item in CPython < 3.15.
        return (
            value.nbytes == self.value_bytes
            and value[:_ID_BYTES] == chunk.to_bytes(_ID_BYTES, "big")
            and self._block.startswith(value[_ID_BYTES:], self._start(chunk))
        )

    def problem(self, chunk: int, value: memoryview) -> str:
        """Return what is wrong with a chunk's value that is not right, in words."""
        if value.nbytes != self.value_bytes:
            return f"{value.nbytes} bytes instead of {self.value_bytes}"
        other = int.from_bytes(value[:_ID_BYTES], "big")
        # With one window for both, wrong bytes of the id are what was found.
        if self._start(other) != self._start(chunk) and self.is_right(other, value):
            return f"the value of chunk {other} instead"
        pairs = zip(value, self.value(chunk), strict=True)
        wrong = [place for place, (actual, right) in enumerate(pairs) if actual != right]
        return f"{len(wrong)} of {self.value_bytes} bytes are wrong, the first is byte {wrong[0]}"

    @staticmethod
    def _start(chunk: int) -> int:
        return chunk * _STRIDE % _PLACES
