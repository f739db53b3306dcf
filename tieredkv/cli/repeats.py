"""The same content under several names: what a key function that changes leaves in a tier."""

from __future__ import annotations

from typing import Final

import xxhash

from tieredkv.config import KiB

__all__ = ["Repeats"]

_MIN_BYTES: Final = 4 * KiB
_MAX_CONTENTS: Final = 100_000


class Repeats:
    """Counts values whose content another name has, too.

    Names are compared that differ in nothing but the chunk's hash: two tenants, models or ranks may
    well have the same content. Values below 4 KiB do not count, they may be alike by chance; nor do
    those that come after 100,000 different ones, which bounds the memory that this takes.

    Attributes:
        seen: Values that were compared.
        repeated: Those whose content was there before.
        example: Two names of one content; None without any.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self.seen: int = 0
        self.repeated: int = 0
        self.example: tuple[str, str] | None = None

    def add(self, name: str, payload: memoryview) -> None:
        """Compare a value with those before."""
        if payload.nbytes < _MIN_BYTES:
            return
        self.seen += 1
        fields = name.split("@")
        alike = "@".join((*fields[:3], *fields[4:])) if len(fields) > 1 else ""
        mark = xxhash.xxh3_64_intdigest(payload, seed=xxhash.xxh3_64_intdigest(alike.encode()))
        first = self._names.get(mark)
        if first is None:
            if len(self._names) < _MAX_CONTENTS:
                self._names[mark] = name
        elif first != name:
            self.repeated += 1
            self.example = self.example or (first, name)

    def __str__(self) -> str:
        if self.example is None:
            return ""
        one, other = self.example
        return (
            f"{self.repeated:,} of {self.seen:,} values have the content of another name, such as "
            f"{one:.80} and {other:.80}: if content is to have one key, the key function changes "
            "between processes; see doctor --key-function"
        )
