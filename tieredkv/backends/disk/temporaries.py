"""Temporary files: each process writes in a locked directory of its own.

A value is written here and then renamed. What a process leaves when it is killed is swept by the
next one: a directory whose lock can be had belongs to nobody.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import threading
from typing import Final

from tieredkv.backends.disk import locks
from tieredkv.errors import StoreClosedError

__all__ = ["Temporaries"]

_DIRECTORY: Final = "tmp"
_DIRECTORY_MODE: Final = 0o700


class Temporaries:
    """Names for temporary files of one opening of a directory; for any thread.

    Attributes:
        swept: Directories of other processes that were removed.
    """

    def __init__(self, root: str) -> None:
        self.swept: int = 0
        self._path = f"{root}/{_DIRECTORY}"
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._own = ""
        self._descriptor: int | None = None
        self._closed = False

    def prepare(self) -> None:
        """Make this process's directory, if it has none or it has vanished.

        Raises:
            OSError: It cannot be made or locked.
            StoreClosedError: Closed meanwhile.
        """
        with self._lock:
            if self._closed:
                raise StoreClosedError("the directory was closed")
            if self._descriptor is not None:
                if locks.is_current(self._descriptor, self._own):
                    return
                locks.release(self._descriptor)
                self._descriptor = None
            os.makedirs(self._path, mode=_DIRECTORY_MODE, exist_ok=True)
            while self._descriptor is None:  # a sweeper may take it before its lock is taken
                self._own = f"{self._path}/{os.urandom(8).hex()}"
                os.mkdir(self._own, _DIRECTORY_MODE)
                with contextlib.suppress(FileNotFoundError):
                    self._descriptor = locks.take(self._own, locks.DIRECTORY)

    def new(self, count: int) -> list[str]:
        """Return paths that no other file has or had."""
        head = f"{self._own}/{os.getpid()}-"
        return [f"{head}{number}" for number in itertools.islice(self._numbers, count)]

    def sweep(self) -> None:
        """Remove what processes that have ended left.

        Raises:
            OSError: It cannot be removed.
        """
        try:
            entries = os.listdir(self._path)
        except FileNotFoundError:
            return
        for entry in entries:
            path = f"{self._path}/{entry}"
            if path == self._own:
                continue
            try:
                descriptor = locks.take(path, locks.DIRECTORY)
            except (FileNotFoundError, NotADirectoryError):  # gone meanwhile, or never ours
                continue
            if descriptor is not None:
                try:
                    shutil.rmtree(path)
                    self.swept += 1
                finally:
                    locks.release(descriptor)

    def close(self) -> None:
        """Remove this process's directory; what a worker still writes in it goes to a sweeper."""
        with self._lock:
            self._closed = True
            if self._descriptor is not None:
                with contextlib.suppress(OSError):  # not empty, or gone: left to a sweeper
                    os.rmdir(self._own)
                locks.release(self._descriptor)
                self._descriptor = None
