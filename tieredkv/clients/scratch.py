"""A directory for the temporary files of this process, and those of processes that were killed.

The directory is locked (`flock`) as long as its process lives, in whatever container: one whose
lock can be had belongs to nobody, and goes when the next one is made.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Final

__all__ = ["Scratch"]

_PREFIX: Final = "tieredkv-xet-"
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Scratch:
    """A temporary directory that goes with its process, or with the next one that makes one.

    A forked child that inherits it does not remove it.

    Attributes:
        path: Where it is.
    """

    def __init__(self) -> None:
        """Make it, and remove what others have left.

        Raises:
            OSError: There is no place for it.
        """
        _sweep(Path(tempfile.gettempdir()))
        while True:
            path = tempfile.mkdtemp(prefix=_PREFIX)
            descriptor = _locked(path)
            if descriptor is not None:  # else a sweeper was quicker
                break
        self.path: Path = Path(path)
        self._remove = weakref.finalize(self, _removed, path, descriptor, os.getpid())

    def remove(self) -> None:
        """Remove it with all that is in it; twice is fine."""
        self._remove()


def _sweep(parent: Path) -> None:
    for left in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # it is gone meanwhile, or another user's
            if left.lstat().st_uid != os.getuid():
                continue
            descriptor = _locked(str(left))
            if descriptor is not None:
                _removed(str(left), descriptor, os.getpid())


def _locked(path: str) -> int | None:
    """Return a descriptor that holds the lock; None if somebody else has it, or has removed it."""
    try:
        descriptor = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), Path(path).stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _removed(path: str, descriptor: int, pid: int) -> None:
    if pid == os.getpid():
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)
