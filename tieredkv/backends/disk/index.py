"""The index: which values there are, how much room they take, and in which order they were used.

It serves eviction only. What a read answers comes from the file system, so an index that is behind
what other processes do costs room, never a wrong answer.

**Size.** Millions of values are usual, so a value costs its file name, a slot in a dict, and one
integer that packs size and time of use; there is no object for it. Dicts keep the order of
insertion, and using a value puts it at the end again. There is one dict a shard: a scan of a shard
is compared with that shard alone, and when a dict is rebuilt by the interpreter, as happens now and
then to one whose entries move, it is a small one. All other threads wait for that.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from tieredkv.backends.disk.names import SHARDS
from tieredkv.config import KiB

if TYPE_CHECKING:
    from tieredkv.backends.disk.files import Found

__all__ = ["BLOCK_BYTES", "Index", "Oldest", "room_bytes"]

BLOCK_BYTES: Final = 4 * KiB

_TIME_BITS: Final = 53
_TIME_MASK: Final = (1 << _TIME_BITS) - 1
_NEVER: Final = 1 << _TIME_BITS
_MINUTE_US: Final = 60_000_000


class Oldest(NamedTuple):
    """The value that was not used for the longest time: its place, and when it was used."""

    shard: int
    file: str
    used_us: int


def room_bytes(nbytes: int) -> int:
    """Return the room that a value takes: whole blocks, and at least one."""
    return -(-nbytes // BLOCK_BYTES) * BLOCK_BYTES or BLOCK_BYTES


class Index:
    """Values in order of use. Not thread-safe.

    Attributes:
        count: Number of values.
        room_bytes: Room that they take together.
    """

    def __init__(self) -> None:
        self.count: int = 0
        self.room_bytes: int = 0
        # file → room in blocks << _TIME_BITS | Unix us of its last use, in ascending order of use
        self._shards: tuple[dict[str, int], ...] = tuple({} for _ in SHARDS)
        # No value of a shard was used earlier than this.
        self._earliest = [_NEVER] * len(SHARDS)
        self._now_us = 0

    def __contains__(self, place: tuple[int, str]) -> bool:
        shard, file = place
        return file in self._shards[shard]

    def put(self, shard: int, file: str, nbytes: int) -> None:
        """Note that a value was written, in place of what had its name."""
        self.put_many([(shard, file, nbytes)])

    def put_many(self, values: Iterable[tuple[int, str, int]]) -> int:
        """Note that values were written, in this order, in place of what had their names.

        Args:
            values: Shard, file and bytes of each.

        Returns:
            The room that they take.
        """
        used_us = self._next_us()
        blocks = 0
        for shard, file, nbytes in values:
            files = self._shards[shard]
            if file in files:
                self.forget(shard, file)
            taken = -(-nbytes // BLOCK_BYTES) or 1
            files[file] = taken << _TIME_BITS | used_us
            self._earliest[shard] = min(self._earliest[shard], used_us)
            used_us += 1
            blocks += taken
            self.count += 1
        self._now_us = used_us
        self.room_bytes += blocks * BLOCK_BYTES
        return blocks * BLOCK_BYTES

    def touch(self, places: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
        """Note that values were used, in this order; those that are not known stay so.

        Returns:
            Those of which it is the first use in this minute of the clock.
        """
        first: list[tuple[int, str]] = []
        shards = self._shards
        used_us = self._next_us()
        minute_us = used_us - used_us % _MINUTE_US
        for place in places:
            shard, file = place
            files = shards[shard]
            packed = files.pop(file, None)
            if packed is None:
                continue
            files[file] = packed & ~_TIME_MASK | used_us
            used_us += 1
            if packed & _TIME_MASK < minute_us:
                first.append(place)
        self._now_us = used_us
        return first

    def forget(self, shard: int, file: str) -> None:
        """Note that a value is gone."""
        packed = self._shards[shard].pop(file, None)
        if packed is not None:
            self.count -= 1
            self.room_bytes -= (packed >> _TIME_BITS) * BLOCK_BYTES

    def pop_oldest(self) -> Oldest | None:
        """Take out the value that was not used for the longest time; None if there is none."""
        while (earliest := min(self._earliest)) < _NEVER:
            shard = self._earliest.index(earliest)
            files = self._shards[shard]
            file = next(iter(files), None)
            used_us = _NEVER if file is None else files[file] & _TIME_MASK
            self._earliest[shard] = used_us
            if file is not None and used_us == earliest:
                self.forget(shard, file)
                return Oldest(shard, file, used_us)
        return None

    def replace(self, shard: int, found: Iterable[Found]) -> None:
        """Take over what a scan of a shard has found.

        A value counts as used when its file says so, or when it was used by this process, if that
        is later.
        """
        now_us = self._next_us()
        known = self._shards[shard]
        used = sorted(
            (max(min(used_us, now_us), known.get(file, 0) & _TIME_MASK), file, nbytes)
            for file, nbytes, used_us in found
        )
        self.count += len(used) - len(known)
        self.room_bytes -= sum(packed >> _TIME_BITS for packed in known.values()) * BLOCK_BYTES
        known.clear()
        for used_us, file, nbytes in used:
            room = room_bytes(nbytes)
            known[file] = room // BLOCK_BYTES << _TIME_BITS | used_us
            self.room_bytes += room
        self._earliest[shard] = used[0][0] if used else _NEVER

    def _next_us(self) -> int:
        """Return a time that is later than any before: two uses are never at once."""
        now_us = time.time_ns() // 1000
        if now_us <= self._now_us:
            now_us = self._now_us + 1
        self._now_us = now_us
        return now_us
