"""What this process knows to be in the server, where the capacity is ours to keep.

What is being written counts before it is there, so the capacity is kept at any time. Called from
worker threads; nothing waits for the server under the lock.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Account"]


class Account:
    """Sizes of values, least recently used first, and how many bytes that is.

    Attributes:
        capacity_bytes: What all values may take together.
        evicted: Values evicted so far.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes: int = capacity_bytes
        self.evicted: int = 0
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._coming_bytes = 0
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._used_bytes = 0
        self._gone: set[str] | None = None  # while somebody counts

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Take what is `found` for true only if it has not gone since the count began."""
        with self._lock:
            self._gone = set()
        try:
            yield
        finally:
            with self._lock:
                self._gone = None

    @property
    def used_bytes(self) -> int:
        """Bytes of all values that are known."""
        return self._used_bytes

    @property
    def count(self) -> int:
        """Number of values that are known."""
        return len(self._sizes)

    def stored(self, name: str, nbytes: int) -> None:
        """Note a value that was written, or may have been, into room that was reserved."""
        with self._lock:
            self._arrived(nbytes)
            self._used_bytes += nbytes - self._sizes.pop(name, 0)
            self._sizes[name] = nbytes

    def found(self, name: str, nbytes: int) -> None:
        """Note a value that was counted: it is older than all that this process used."""
        with self._lock:
            if name not in self._sizes and name not in (self._gone or ()):
                self._sizes[name] = nbytes
                self._sizes.move_to_end(name, last=False)
                self._used_bytes += nbytes

    def used(self, name: str) -> None:
        """Note that a value was read."""
        with self._lock:
            if name in self._sizes:
                self._sizes.move_to_end(name)

    def gone(self, name: str) -> None:
        """Note that there is no such value any more."""
        with self._lock:
            self._used_bytes -= self._sizes.pop(name, 0)
            if self._gone is not None:
                self._gone.add(name)

    def stayed(self, name: str, nbytes: int) -> None:
        """Note that a value could not be evicted."""
        with self._lock:
            if self._gone is not None:
                self._gone.discard(name)
            self.evicted -= 1
        self.found(name, nbytes)

    def reserve(self, nbytes: int) -> list[tuple[str, int]]:
        """Reserve room, and return the values that have to go for it, as if they were gone.

        `stored` or `cancel` must follow. Waits while values that others write need all of the
        capacity.
        """
        leaving = []
        with self._lock:
            while self._coming_bytes and self._coming_bytes + nbytes > self.capacity_bytes:
                self._changed.wait()
            self._coming_bytes += nbytes
            while self._sizes and self._used_bytes + self._coming_bytes > self.capacity_bytes:
                name, size = self._sizes.popitem(last=False)
                self._used_bytes -= size
                leaving.append((name, size))
                if self._gone is not None:
                    self._gone.add(name)
            self.evicted += len(leaving)
        return leaving

    def cancel(self, nbytes: int) -> None:
        """Give reserved room back: nothing was written."""
        with self._lock:
            self._arrived(nbytes)

    def _arrived(self, nbytes: int) -> None:
        self._coming_bytes -= nbytes
        self._changed.notify_all()
