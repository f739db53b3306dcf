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
from typing import TYPE_CHECKING

from tieredkv.backends.disk.index import Index, Oldest, room_bytes
from tieredkv.backends.disk.names import SHARDS, name_of

if TYPE_CHECKING:
    from tieredkv.backends.disk.files import Files

__all__ = ["Space"]


class Space:
    """Keeps the values of a directory within its capacity, least recently used first to go.

    The capacity holds values that are being written, too, so it is met at any time, except for

    - directories (4 KiB for each of the 256 shards, more where names are many or long);
    - what is being evicted: a value is out of the account a moment before its file is gone, at most
      one value a worker;
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
        self._stripes = tuple(threading.Lock() for _ in SHARDS)

    @property
    def count(self) -> int:
        """Number of values."""
        return self._index.count

    @property
    def used_bytes(self) -> int:
        """Room that is taken, by values that are being written as well."""
        with self._lock:
            return self._index.room_bytes + self._coming_bytes

    def stripe(self, shard: int) -> threading.Lock:
        """Return the lock under which files of a shard get and lose their names."""
        return self._stripes[shard]

    def reserve(self, nbytes: int) -> None:
        """Make room for a value of at most the capacity; `commit` or `cancel` must follow.

        Waits while values that others write need all of the capacity.

        Raises:
            OSError: Nothing could be evicted; there is nothing to cancel then.
        """
        room = room_bytes(nbytes)
        with self._lock:
            if self._capacity_bytes is not None:
                while self._coming_bytes and self._coming_bytes + room > self._capacity_bytes:
                    self._changed.wait()
            self._coming_bytes += room
        try:
            self.trim()
        except BaseException:
            self.cancel(nbytes)
            raise

    def commit(self, shard: int, file: str, nbytes: int) -> None:
        """Note that a value whose room was reserved has its name now; under the shard's stripe."""
        with self._lock:
            self._index.put(shard, file, nbytes)
            self._coming_bytes -= room_bytes(nbytes)
            self._changed.notify_all()

    def cancel(self, nbytes: int) -> None:
        """Give reserved room back."""
        with self._lock:
            self._coming_bytes -= room_bytes(nbytes)
            self._changed.notify_all()

    def touch(self, shard: int, file: str) -> None:
        """Note that a value was read."""
        with self._lock:
            self._index.touch(shard, file)

    def forget(self, shard: int, file: str) -> None:
        """Note that a value is gone; under the shard's stripe."""
        with self._lock:
            self._index.forget(shard, file)

    def trim(self) -> None:
        """Evict until all fits.

        Raises:
            OSError: A file could not be removed.
        """
        while self._capacity_bytes is not None and self.used_bytes > self._capacity_bytes:
            if self._evict_oldest() is None:
                return

    def evict(self, nbytes: int) -> bool:
        """Evict as much as a value needs, whatever the capacity; return whether anything went.

        Raises:
            OSError: A file could not be removed.
        """
        freed = 0
        while freed < nbytes and (gone := self._evict_oldest()) is not None:
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

    def _evict_oldest(self) -> int | None:
        """Remove the value that was not used for the longest time.

        Returns:
            The bytes that its file had; 0 if it was gone, or may stay after all; None if there is
            no value.
        """
        with self._lock:
            oldest = self._index.pop_oldest()
        if oldest is None:
            return None
        shard, file, _ = oldest
        path = self._files.path(shard, file)
        with self._stripes[shard]:
            if (shard, file) in self._index:  # written again since: its old file is gone
                return 0
            try:
                status = os.stat(path)
            except FileNotFoundError:  # deleted or evicted by another process
                return 0
            if _used_by_others(oldest, status):
                with self._lock:
                    self._index.put(shard, file, status.st_size)
                return 0
            if name_of(shard, file) is None:  # whatever it is, it is not ours
                return 0
            try:
                self._files.delete(path)
            except FileNotFoundError:
                return 0
            except OSError:
                with self._lock:
                    self._index.put(shard, file, status.st_size)
                raise
            self.evicted += 1
            return status.st_size


def _used_by_others(oldest: Oldest, status: os.stat_result) -> bool:
    """Return whether a file was read or written later than this process knows of.

    A time that is still to come says nothing: by a wrong clock a value would stay for ever.
    """
    return oldest.used_us < status.st_mtime_ns // 1000 <= time.time_ns() // 1000
