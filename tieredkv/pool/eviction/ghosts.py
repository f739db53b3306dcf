"""Names that were evicted, remembered in a few bytes each."""

from __future__ import annotations

import mmap
from typing import Final

__all__ = ["NOTE_BITS", "Ghosts"]

NOTE_BITS: Final = 48
"""Width of what can be noted with a name."""

_NOTE_MASK: Final = (1 << NOTE_BITS) - 1
# A tag is of the hash's upper bits, as the lower ones say where; with its top bit set none is 0.
_TAG_MASK: Final = 0x7FFF
_TAG_BIT: Final = 0x8000
_TAKEN: Final = 1  # no tag, but not empty: a search goes on behind it
_SLOTS_PER_NAME: Final = 2  # at least, up to twice as many


class Ghosts:
    """A set of names with a note each, in two generations of 16 to 32 bytes a name.

    The recent generation takes names until its quota is full. `turn` then makes it the older one
    and forgets what was that, all at once and without a look at any of it. So the memory covers the
    last one to two quotas of evictions *without holes*. Cheaper tables that lose one name here and
    there, by chance, do not work for chains: one missing chunk makes those behind it useless.

    A slot holds a tag of 15 bits of the name's hash and the note. A name is taken for another with
    a chance of about 1 in 2**15 for each slot that is looked at, less than one on average.

    Attributes:
        room: Names that can be added before the next `turn`.
    """

    def __init__(self) -> None:
        self.room: int = 0
        self._recent = self._older = _table(1)

    def turn(self, quota: int) -> None:
        """Start a new generation, for this many names."""
        self.room = quota
        self._older = self._recent
        self._recent = _table(_SLOTS_PER_NAME * self.room)

    def add(self, name: str, note: int) -> None:
        """Remember a name that is not remembered; there must be room."""
        self.room -= 1
        table = self._recent
        digest = hash(name)
        mask = len(table) - 1
        at = digest & mask
        while table[at]:
            at = (at + 1) & mask
        table[at] = (digest >> NOTE_BITS & _TAG_MASK | _TAG_BIT) << NOTE_BITS | note

    def take(self, name: str) -> int | None:
        """Forget a name and return its note, or None if it is not remembered."""
        digest = hash(name)
        for table in (self._recent, self._older):
            mask = len(table) - 1
            at = digest & mask
            while slot := table[at]:
                if slot >> NOTE_BITS == (digest >> NOTE_BITS & _TAG_MASK | _TAG_BIT):
                    table[at] = _TAKEN
                    return slot & _NOTE_MASK
                at = (at + 1) & mask
        return None


def _table(slots: int) -> memoryview:
    """Return empty slots, as many as asked for or the next power of two."""
    size = 8 << (slots - 1).bit_length()
    # Pages come into being when they are touched, so that a large table costs no pause.
    region = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return memoryview(region).cast("Q")
