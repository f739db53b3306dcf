"""Values as files, each whole or absent; blocking, for worker threads.

A value is written to a temporary name and renamed, so a reader that has opened a file reads that
value to its end whatever happens to the name. The modification time of a file is when its value was
last used, at most a minute old: by it the order of use survives the process, and other processes
see it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from tieredkv.backends.disk.names import OBJECTS, SHARDS
from tieredkv.backends.disk.temporaries import Temporaries
from tieredkv.config import KiB

__all__ = ["Files", "Found", "is_fed"]

# A link would lead out of the directory, and a pipe without a writer would never open.
_OPEN_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_OPEN_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700

_PIECE_BYTES: Final = 256 * KiB
"""Bytes that are read before they are handed to a check: they are still in a core's own cache."""

_PUBLISH_TRIES: Final = 3

_BEYOND: Final = bytearray(1)
"""Takes the byte behind a value that should not be there; nobody looks at it."""


class Found(NamedTuple):
    """A file of a shard: its name there, its size, and when it was last used (Unix us)."""

    file: str
    nbytes: int
    used_us: int


def is_fed(buffers: Sequence[memoryview]) -> bool:
    """Return whether what lands in these buffers should be handed on in pieces."""
    return len(buffers) > 1 and buffers[0].nbytes > _PIECE_BYTES


class Files:
    """The files under one root."""

    def __init__(self, root: str, *, fsync: bool) -> None:
        self.root = root
        self.temporaries: Temporaries = Temporaries(root)
        self._fsync = fsync
        self._shards = tuple(f"{root}/{OBJECTS}/{shard}" for shard in SHARDS)

    def prepare(self) -> None:
        """Create the directories that are missing.

        Raises:
            OSError: They cannot be created.
            StoreClosedError: Closed meanwhile.
        """
        os.makedirs(self.root, mode=_DIRECTORY_MODE, exist_ok=True)
        os.makedirs(f"{self.root}/{OBJECTS}", mode=_DIRECTORY_MODE, exist_ok=True)
        self.temporaries.prepare()

    def probe(self) -> None:
        """Check that files can be written, renamed and removed.

        Raises:
            OSError: They cannot.
        """
        temporary, moved = self.temporaries.new(2)
        self.write(temporary, memoryview(b"probe"))
        os.rename(temporary, moved)
        os.unlink(moved)

    def path(self, shard: int, file: str) -> str:
        """Return the path of a file."""
        return f"{self._shards[shard]}/{file}"

    def read(
        self,
        path: str,
        buffers: Sequence[memoryview],
        nbytes: int,
        feed: Callable[[memoryview], None] | None,
    ) -> int | None:
        """Fill the buffers if the value has exactly their size.

        Args:
            path: Where it is.
            buffers: Where it lands.
            nbytes: Their size.
            feed: Takes what landed in the first of several buffers, piece by piece; None if it need
                not, see `is_fed`.

        Returns:
            None if they are filled, else the size that the value has; they may hold anything then.

        Raises:
            FileNotFoundError: No such value; the buffers are untouched.
            OSError: It cannot be read; the buffers may hold anything.
        """
        try:
            descriptor = os.open(path, _OPEN_READ)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise FileNotFoundError(errno.ENOENT, "a link is no value", path) from None
            raise
        try:
            # Asked for a byte more than there should be, the system tells the size by itself.
            if feed is None and os.preadv(descriptor, [*buffers, _BEYOND], 0) == nbytes:
                return None
            stored = os.fstat(descriptor).st_size
            if stored != nbytes:
                return stored
            if feed is None:
                _read_fully(descriptor, list(buffers), 0)
            else:
                _read_in_pieces(descriptor, buffers, feed)
            return None
        finally:
            os.close(descriptor)

    def nbytes(self, path: str) -> int:
        """Return the size of a value.

        Raises:
            FileNotFoundError: No such value.
        """
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(errno.ENOENT, "neither a link nor a directory is a value", path)
        return status.st_size

    def touch(self, path: str, *, older_than_s: float = 0) -> None:
        """Note that a value was used; if it was not for so many seconds."""
        with contextlib.suppress(OSError):  # gone, or read-only: nothing depends on it
            if not older_than_s or abs(time.time() - os.stat(path).st_mtime) > older_than_s:
                os.utime(path)

    def write(self, temporary: str, value: memoryview) -> None:
        """Write a value to a new temporary file.

        Raises:
            OSError: It cannot be written; nothing is left of it.
        """
        descriptor = os.open(temporary, _OPEN_NEW, _FILE_MODE)
        try:
            try:
                written = os.write(descriptor, value)
                while written < value.nbytes:
                    written += os.write(descriptor, value[written:])
                if self._fsync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except BaseException:
            self.discard(temporary)
            raise

    def publish(self, temporary: str, path: str) -> None:
        """Give a temporary file its name, in place of what has that name.

        Raises:
            OSError: It did not get it; what had the name still has it.
        """
        for _ in range(_PUBLISH_TRIES - 1):
            try:
                os.rename(temporary, path)
            except FileNotFoundError:  # the first value of a shard, or a directory just removed
                self._make_directories(os.path.dirname(path))
            else:
                return
        os.rename(temporary, path)

    def settle(self, path: str) -> None:
        """Make a name that was just published survive a crash of the machine, if that is wanted.

        Raises:
            OSError: It may not survive.
        """
        if self._fsync:
            _sync_directory(os.path.dirname(path))

    def discard(self, temporary: str) -> None:
        """Remove a temporary file that will not be published."""
        with contextlib.suppress(OSError):  # the error that led here is the one to tell
            os.unlink(temporary)

    def delete(self, path: str) -> None:
        """Remove a value, and directories that held only its long name.

        Raises:
            FileNotFoundError: There is none.
            OSError: It cannot be removed.
        """
        os.unlink(path)
        directory = os.path.dirname(path)
        while directory.endswith("+"):
            try:
                os.rmdir(directory)
            except OSError:  # others use it
                break
            directory = os.path.dirname(directory)

    def shard(self, shard: int) -> list[Found]:
        """Return the files of one shard.

        Raises:
            OSError: It cannot be listed.
        """
        return list(_files_in(self._shards[shard], ""))

    def _make_directories(self, directory: str) -> None:
        path = self.root
        for part in directory.removeprefix(f"{path}/").split("/"):
            parent, path = path, f"{path}/{part}"
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, _DIRECTORY_MODE)
                if self._fsync:
                    _sync_directory(parent)


def _files_in(directory: str, prefix: str) -> Iterator[Found]:
    try:
        entries = os.scandir(directory)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            if entry.name.endswith("+"):
                yield from _files_in(entry.path, f"{prefix}{entry.name}/")
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed meanwhile
                continue
            if stat.S_ISREG(status.st_mode):
                yield Found(prefix + entry.name, status.st_size, status.st_mtime_ns // 1000)


def _read_in_pieces(
    descriptor: int, buffers: Sequence[memoryview], feed: Callable[[memoryview], None]
) -> None:
    first, *rest = buffers
    last = (first.nbytes - 1) // _PIECE_BYTES * _PIECE_BYTES
    for at in range(0, last, _PIECE_BYTES):
        piece = first[at : at + _PIECE_BYTES]
        _read_fully(descriptor, [piece], at)
        feed(piece)
    piece = first[last:]
    _read_fully(descriptor, [piece, *rest], last)
    feed(piece)


def _read_fully(descriptor: int, left: list[memoryview], offset: int) -> None:
    while left:
        count = os.preadv(descriptor, left, offset)
        offset += count
        if not count and any(buffer.nbytes for buffer in left):
            raise OSError(f"the file ended at {offset} bytes while it was read")
        while left and count >= left[0].nbytes:
            count -= left[0].nbytes
            del left[0]
        if left:
            left[0] = left[0][count:]


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
