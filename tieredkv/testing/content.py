"""Bytes that tell which value they are."""

from __future__ import annotations

import hashlib

__all__ = ["content", "gist"]


def content(seed: object, nbytes: int) -> bytes:
    """Return the bytes that belong to a seed and a size: always the same, like no others."""
    return hashlib.shake_128(f"{seed!r}/{nbytes}".encode()).digest(nbytes)


def gist(value: bytes | bytearray | memoryview | None) -> str:
    """Return a few words that differ whenever the bytes do: for assertions to compare.

    pytest shows two operands that differ side by side, and for long values of bytes that takes
    hours; in a CI it does so without being asked.
    """
    if value is None:
        return "nothing"
    return f"{len(value)} bytes {hashlib.sha256(value).hexdigest()}"
