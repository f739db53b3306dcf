"""The room in a directory: what is in it, what is on its way, and what has to leave.

Only the owner of a directory keeps account of it. Worker threads call this, several at a time:

- `_lock` guards the index and the bytes on their way. Nothing waits for the disk under it.
- `stripe` gives the lock of a shard, under which a file gets or loses its name *and* the index
  hears of it. So the two never disagree about what this process did. It is taken before `_lock`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tieredkv.backends.disk.index import Index, Oldest, room_bytes
from tieredkv.backends.disk.names import SHARDS, name_of

if TYPE_CHECKING:
    from tieredkv.backends.disk.files import Files

__all__ = ["Space"]


class Space:
    """Keeps the values of a directory within its capacity, least recently used first to go.

    The capacity holds values that are being written and evicted, too, so it is met at any time, but
    for

    - directories (4 KiB for each of the 256 shards, more where names are many or long);
    - values that are gone while readers still have their files open;
    - what other processes have written since the last scan.

    Attributes:
        evicted: Values evicted so far.
    """

    def __init__(self, files: Files, capacity_bytes: int | None) -> None:
        self.evicted: int = 0
        self._files = files
        self._capacity_bytes = capacity_bytes
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._index = Index()
        self._coming_bytes = 0
        self._leaving_bytes = 0
        self._waiting = 0
        self._stripes = tuple(threading.Lock() for _ in SHARDS)

    @property
    def count(self) -> int:
        """Number of values."""
        return self._index.count

    @property
    def used_bytes(self) -> int:
        """Room that is taken, by values that are being written or evicted as well."""
        with self._lock:
            return self._index.room_bytes + self._coming_bytes + self._leaving_bytes

    def stripe(self, shard: int) -> threading.Lock:
        """Return the lock under which files of a shard get and lose their names."""
        return self._stripes[shard]

    @contextmanager
    def stripes(self, shards: Iterable[int]) -> Iterator[None]:
        """Hold the locks of several shards; taken in order, so that two such wait for no circle."""
        locks = [self._stripes[shard] for shard in sorted(set(shards))]
        for lock in locks:
            lock.acquire()
        try:
            yield
        finally:
            for lock in locks:
                lock.release()

    def reserve(self, *sizes: int) -> None:
        """Make room for values that fit into the capacity together.

        `commit` or `cancel` must follow for each. Waits while values that others write need all of
        the capacity.

        Raises:
            OSError: Nothing could be evicted; there is nothing to cancel then.
        """
        room = sum(map(room_bytes, sizes))
        with self._lock:
            if self._capacity_bytes is not None:
                while self._coming_bytes and self._coming_bytes + room > self._capacity_bytes:
                    self._wait_for_change()
            self._coming_bytes += room
            if self._fits(self._leaving_bytes):
                return
        try:
            self.trim()
        except BaseException:
            self.cancel(*sizes)
            raise
        with self._lock:  # others' evictions wait for nobody, so this ends
            while self._leaving_bytes and not self._fits(self._leaving_bytes):
                self._wait_for_change()

    def commit(self, stored: Sequence[tuple[int, str, int]]) -> None:
        """Note that values whose room was reserved have their names now.

        Under the stripes of their shards.

        Args:
            stored: Shard, file and bytes of each.
        """
        with self._lock:
            self._coming_bytes -= self._index.put_many(stored)
            self._tell_change()

    def cancel(self, *sizes: int) -> None:
        """Give reserved room back."""
        with self._lock:
            self._coming_bytes -= sum(map(room_bytes, sizes))
            self._tell_change()

    def touch(self, places: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
        """Note that values were read; return those whose files should say so, too."""
        with self._lock:
            return self._index.touch(places)

    def forget(self, shard: int, file: str) -> None:
        """Note that a value is gone; under the shard's stripe."""
        with self._lock:
            self._index.forget(shard, file)

    def trim(self) -> None:
        """Evict until all fits.

        Raises:
            OSError: A file could not be removed.
        """
        while self._evict_oldest() is not None:
            pass

    def evict(self, nbytes: int) -> bool:
        """Evict as much as a value needs, whatever the capacity; return whether anything went.

        Raises:
            OSError: A file could not be removed.
        """
        freed = 0
        while freed < nbytes and (gone := self._evict_oldest(even_if_it_fits=True)) is not None:
            freed += gone
        return freed > 0

    def scan(self, shard: int) -> None:
        """Bring the account of one shard up to date with its files.

        Raises:
            OSError: The shard cannot be listed.
        """
        with self._stripes[shard]:
            found = self._files.shard(shard)
            with self._lock:
                self._index.replace(shard, found)

    def _wait_for_change(self) -> None:
        self._waiting += 1
        try:
            self._changed.wait()
        finally:
            self._waiting -= 1

    def _tell_change(self) -> None:
        if self._waiting:  # seldom; a call that wakes nobody costs as much as the rest of a commit
            self._changed.notify_all()

    def _evict_oldest(self, *, even_if_it_fits: bool = False) -> int | None:
        """Remove the value that was not used for the longest time, if it has to go.

        Returns:
            The bytes that its file had; 0 if it was gone, or may stay after all; None if there is
            no value or no need.
        """
        with self._lock:  # seen and done at once: else two workers would evict for one need
            if self._fits(0) and not even_if_it_fits:
                return None
            taken = self._index.room_bytes
            oldest = self._index.pop_oldest()
            leaving = taken - self._index.room_bytes
            self._leaving_bytes += leaving
        if oldest is None:
            return None
        try:
            with self._stripes[oldest.shard]:
                return self._evict(oldest)
        except FileNotFoundError:  # deleted or evicted by another process
            return 0
        finally:
            with self._lock:
                self._leaving_bytes -= leaving
                self._tell_change()

    def _fits(self, extra_bytes: int) -> bool:
        """Return whether what is there and coming fits, with so many bytes more; under the lock."""
        taken = self._index.room_bytes + self._coming_bytes + extra_bytes
        return self._capacity_bytes is None or taken <= self._capacity_bytes

    def _evict(self, oldest: Oldest) -> int:
        shard, file, _ = oldest
        # Written again since, so that its old file is gone; or whatever it is, it is not ours.
        if (shard, file) in self._index or name_of(shard, file) is None:
            return 0
        path = self._files.path(shard, file)
        status = os.stat(path)
        if _used_by_others(oldest, status):
            self._keep(oldest, status)
            return 0
        try:
            self._files.delete(path)
        except FileNotFoundError:
            raise
        except OSError:
            self._keep(oldest, status)
            raise
        with self._lock:
            self.evicted += 1
        return status.st_size

    def _keep(self, oldest: Oldest, status: os.stat_result) -> None:
        with self._lock:
            self._index.put(oldest.shard, oldest.file, status.st_size)


def _used_by_others(oldest: Oldest, status: os.stat_result) -> bool:
    """Return whether a file was read or written later than this process knows of.

    A time that is still to come says nothing: by a wrong clock a value would stay for ever.
    """
    return oldest.used_us < status.st_mtime_ns // 1000 <= time.time_ns() // 1000
