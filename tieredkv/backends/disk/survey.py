"""Who keeps a directory of values within its capacity; blocking, for worker threads.

One process, the *owner* (it holds a lock on the directory), keeps account of what is there and
evicts. What other processes write and remove it learns by a survey, every now and then. When the
owner ends, the next process that surveys the directory takes over; while an owner is idle, the
processes that are not see to the capacity themselves.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tieredkv.backends.disk import locks
from tieredkv.backends.disk.names import SHARDS
from tieredkv.backends.disk.space import Space
from tieredkv.errors import StoreClosedError

if TYPE_CHECKING:
    from tieredkv.backends.disk.files import Files

__all__ = ["Survey"]

_LOCK: Final = "lock"
_SURVEY_INTERVAL_S: Final = 30
_SURVEY_SHARE: Final = 20
"""A survey takes at most one part in so many of the time: millions of files are not listed twice a
minute."""
_IDLE_OWNER_S: Final = 2 * _SURVEY_INTERVAL_S
_SLICE_S: Final = 0.02


class Survey:
    """The surveys of one process, and its part in keeping the capacity.

    Attributes:
        space: The account, of the owner; None in other processes.
        due: When to begin the next survey, on the monotonic clock; 0 before the first.
    """

    def __init__(self, files: Files, capacity_bytes: int | None) -> None:
        self.space: Space | None = None
        self.due: float = 0.0
        self._files = files
        self._lock_path = f"{files.root}/{_LOCK}"
        self._capacity_bytes = capacity_bytes
        self._guard = threading.Lock()  # of _closed and _owner_lock
        self._closed = False
        self._owner_lock: int | None = None
        self._steps: Iterator[None] | None = None

    def close(self) -> None:
        """Give up ownership, for good."""
        with self._guard:
            self._closed = True
            if self._owner_lock is not None:
                locks.release(self._owner_lock)
                self._owner_lock = None

    def step(self) -> bool:
        """Do a slice of a survey, by one thread at a time; return whether there is more to do.

        Raises:
            OSError: The directory cannot be surveyed; the next survey begins anew.
        """
        if self._steps is None:
            self._steps = self._surveying()
        until = time.monotonic() + _SLICE_S
        try:
            for _ in self._steps:
                if self._closed or time.monotonic() > until:
                    return not self._closed
        except BaseException:
            self._steps = None
            raise
        self._steps = None
        return False

    def finish(self) -> None:
        """Do a whole survey, or what is left of the one that has begun.

        Raises:
            OSError: As `step`.
            StoreClosedError: Closed meanwhile.
        """
        while self.step():
            pass

    def _surveying(self) -> Iterator[None]:
        """Sweep, become the owner if there is none, and bring the account up to date."""
        began = time.monotonic()
        self.due = began + _SURVEY_INTERVAL_S
        self._files.temporaries.sweep()
        yield
        if not self._own() and self._is_watched():
            return
        space = self.space or Space(self._files, self._capacity_bytes)
        for shard in range(len(SHARDS)):
            space.scan(shard)
            yield
        space.trim()
        now = time.monotonic()
        self.due = max(self.due, now + (now - began) * _SURVEY_SHARE)

    def _own(self) -> bool:
        """Return whether this process is the owner; become it if nobody is."""
        with self._guard:
            if self._closed:
                raise StoreClosedError("the directory was closed")
            if self._owner_lock is not None:
                if locks.is_current(self._owner_lock, self._lock_path):
                    os.utime(self._owner_lock)
                    return True
                locks.release(self._owner_lock)
                self._owner_lock = self.space = None
            self._owner_lock = locks.take(self._lock_path, locks.FILE)
            if self._owner_lock is None:
                return False
            os.utime(self._owner_lock)
            self.space = Space(self._files, self._capacity_bytes)
            return True

    def _is_watched(self) -> bool:
        """Return whether the owner has surveyed the directory lately, or nobody has to."""
        if self._capacity_bytes is None:
            return True
        with contextlib.suppress(FileNotFoundError):
            # Far in the future, it was surveyed before the clock was set back: who knows when.
            return abs(time.time() - os.stat(self._lock_path).st_mtime) < _IDLE_OWNER_S
        return False
