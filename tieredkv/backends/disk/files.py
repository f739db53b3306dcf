"""File operations of the disk backend; blocking, for worker threads."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tieredkv.backends.disk.names import OBJECTS, SHARDS, name_of, path_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Files"]

_TEMPORARY: Final = "tmp"
_OPEN_READ: Final = os.O_RDONLY | os.O_CLOEXEC
_OPEN_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700


class Files:
    """Values in files under one root, each whole or absent.

    A value is written to a temporary name and renamed, so a reader that has opened a file reads
    that value to its end whatever happens to the name.
    """

    def __init__(self, root: Path, *, fsync: bool) -> None:
        self._root = os.fspath(root)
        self._fsync = fsync
        self._numbers = itertools.count()

    def prepare(self) -> None:
        """Create the directories that are missing and check that files can be written.

        Raises:
            OSError: They cannot.
        """
        os.makedirs(self._root, mode=_DIRECTORY_MODE, exist_ok=True)
        for directory in (_TEMPORARY, OBJECTS, *(f"{OBJECTS}/{shard}" for shard in SHARDS)):
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{self._root}/{directory}", _DIRECTORY_MODE)
        probe = self._temporary()
        os.close(os.open(probe, _OPEN_NEW, _FILE_MODE))
        os.unlink(probe)

    def size(self, name: str) -> int:
        """Return the bytes stored under a name.

        Raises:
            FileNotFoundError: None are.
        """
        return os.stat(self._path(name)).st_size

    def read(self, name: str, buffers: Sequence[memoryview]) -> int:
        """Fill the buffers if the value has exactly their size; return its size.

        Raises:
            FileNotFoundError: No such value; the buffers are untouched.
        """
        wanted = sum(buffer.nbytes for buffer in buffers)
        descriptor = os.open(self._path(name), _OPEN_READ)
        try:
            stored = os.fstat(descriptor).st_size
            if stored == wanted and wanted:
                _read_fully(descriptor, buffers, wanted)
        finally:
            os.close(descriptor)
        return stored

    def write(self, name: str, value: memoryview) -> None:
        """Store a value, replacing what the name held.

        Raises:
            OSError: It was not stored; what the name held is as it was.
        """
        temporary = self._temporary()
        try:
            descriptor = os.open(temporary, _OPEN_NEW, _FILE_MODE)
            try:
                written = 0
                while written < value.nbytes:
                    written += os.write(descriptor, value[written:])
                if self._fsync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            path = self._path(name)
            try:
                os.rename(temporary, path)
            except FileNotFoundError:  # a long name's own directory, or one that vanished
                os.makedirs(os.path.dirname(path), mode=_DIRECTORY_MODE, exist_ok=True)
                os.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        if self._fsync:
            self._sync_directory(os.path.dirname(path))

    def delete(self, name: str) -> None:
        """Remove a value.

        Raises:
            FileNotFoundError: There is none.
        """
        os.unlink(self._path(name))

    def walk(self) -> Iterator[list[tuple[str, int]]]:
        """Yield wire names and sizes, a page for each shard."""
        for shard in SHARDS:
            page = []
            for directory, _, files in os.walk(f"{self._root}/{OBJECTS}/{shard}"):
                for file in files:
                    path = f"{directory}/{file}"
                    name = name_of(path[len(self._root) + 1 :])
                    if name is not None:
                        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                            page.append((name, os.stat(path).st_size))
            yield page

    def usage(self) -> tuple[int, int]:
        """Return total and free bytes of the file system."""
        usage = shutil.disk_usage(self._root)
        return usage.total, usage.free

    def _path(self, name: str) -> str:
        return f"{self._root}/{path_of(name)}"

    def _temporary(self) -> str:
        return (
            f"{self._root}/{_TEMPORARY}/{os.getpid()}-{os.urandom(6).hex()}-{next(self._numbers)}"
        )

    @staticmethod
    def _sync_directory(path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read_fully(descriptor: int, buffers: Sequence[memoryview], wanted: int) -> None:
    left = [buffer for buffer in buffers if buffer.nbytes]
    done = 0
    while done < wanted:
        count = os.preadv(descriptor, left, done)
        if count == 0:
            raise OSError(f"the file ended after {done} of {wanted} bytes")
        done += count
        while left and count >= left[0].nbytes:
            count -= left[0].nbytes
            del left[0]
        if left:
            left[0] = left[0][count:]
