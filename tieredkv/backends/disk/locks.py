"""Locks that end with their holder, however that ends: `flock` on a file or directory.

The kernel drops such a lock when the last descriptor of its open file is closed, so also after
``kill -9``; no number of a process has to be looked up, and processes in different containers see
each other's. A lock is only worth something while its path still leads to what was locked: another
process may have removed that between `open` and `flock`, hence the second look.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Final

__all__ = ["DIRECTORY", "FILE", "is_current", "release", "take"]

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
FILE: Final = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC


def take(path: str, flags: int) -> int | None:
    """Lock what is at a path; return the descriptor that holds the lock.

    Returns:
        None if another holder has it, or it was replaced right now.

    Raises:
        OSError: It cannot be opened, or the file system has no such locks.
    """
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_current(descriptor, path):
            return descriptor
    except OSError as error:
        if error.errno != errno.EWOULDBLOCK:
            os.close(descriptor)
            raise
    os.close(descriptor)
    return None


def is_current(descriptor: int, path: str) -> bool:
    """Return whether the path still leads to what is open."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def release(descriptor: int) -> None:
    """Give a lock up, also for forked children that have inherited the descriptor."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
