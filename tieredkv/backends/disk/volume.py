"""One directory of values, from its opening to its closing; blocking, for worker threads.

Any number of processes may use a directory. Each reads and writes files by itself and asks nobody;
what makes that safe is that files appear whole and are never changed. Who keeps the directory
within its capacity, says `tieredkv.backends.disk.survey`.
"""

from __future__ import annotations

import contextlib
import errno
import resource
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tieredkv.backends.disk.files import Files, is_fed
from tieredkv.backends.disk.index import room_bytes
from tieredkv.backends.disk.names import SHARDS, name_of, place_of
from tieredkv.backends.disk.space import Space
from tieredkv.backends.disk.survey import Survey
from tieredkv.config import KiB
from tieredkv.errors import without_frames
from tieredkv.results import GetStatus

if TYPE_CHECKING:
    from tieredkv.backends.base import ReadRequest

__all__ = ["NO_ROOM", "Volume"]

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)

_REMEDIED: Final = (*NO_ROOM, errno.ENOENT)  # by what `Volume.write` does about it

_TOUCH_INTERVAL_S: Final = 60
_PAGE_NAMES: Final = 1000
_PROBE_ROOM_BYTES: Final = 64 * KiB


class Volume:
    """A directory of values as one process uses it.

    Attributes:
        files: Its files.
        survey: Who keeps it within its capacity.
        reads_disk: Whether the latest reads had to wait for the disk, in part: what they wanted was
            not in the page cache. True where the system does not tell.
    """

    def __init__(self, root: str, *, capacity_bytes: int | None, fsync: bool) -> None:
        self.files: Files = Files(root, fsync=fsync)
        self.survey: Survey = Survey(self.files, capacity_bytes)
        self.reads_disk: bool = True
        self._root = root
        self._capacity_bytes = capacity_bytes

    def open(self) -> None:
        """Create what is missing, check that files can be written, survey the directory.

        Raises:
            OSError: It is not fit for use.
            StoreClosedError: Closed meanwhile.
        """
        try:
            self._prepare()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self.survey.finish()
            if not self._made_room(_PROBE_ROOM_BYTES):
                raise
            self._prepare()
        self.survey.finish()

    def close(self) -> None:
        """Give up locks; what workers still write is finished, or swept by another process."""
        self.survey.close()
        self.files.temporaries.close()

    def read_many(self, requests: Sequence[ReadRequest]) -> list[GetStatus | int | BaseException]:
        """Fill the requests' buffers and check what has landed.

        After a call of the system a thread has to wait for the interpreter if another one has it.
        So what else there is to do is done before and after all the calls, not between them.

        Returns:
            For each request: what its check says; the size of the value if that is another; or the
            error: `FileNotFoundError` if there is no such value and the buffers are untouched.
        """
        places = [_place_or_error(request.name) for request in requests]
        readings = [
            (
                place if isinstance(place, Exception) else self.files.path(*place),
                request.buffers,
                request.nbytes,
                request.check.feed if is_fed(request.buffers) else None,
            )
            for place, request in zip(places, requests, strict=True)
        ]
        blocks_before = _blocks_read()
        landed: list[int | BaseException | None] = []
        read = self.files.read
        for path, buffers, nbytes, feed in readings:
            try:
                landed.append(
                    path if isinstance(path, Exception) else read(path, buffers, nbytes, feed)
                )
            except BaseException as error:  # noqa: BLE001 - of this request alone
                landed.append(without_frames(error))  # its frames hold the buffers
        self.reads_disk = _blocks_read() != blocks_before
        results = [
            _checked(request) if missed is None else missed
            for request, missed in zip(requests, landed, strict=True)
        ]
        self._touch(
            [
                place
                for place, missed in zip(places, landed, strict=True)
                if missed is None and not isinstance(place, Exception)
            ]
        )
        return results

    def write_many(self, values: Sequence[tuple[str, memoryview]]) -> list[BaseException | None]:
        """Store values in place of what their names held; calls of the system as in `read_many`.

        Where the disk is full, values are evicted, and where the directory has vanished, it is made
        again; both once.

        Returns:
            For each value None, or why it was not stored: the name holds what it held, or nothing.
        """
        return [
            self._written_again(*value, error)
            if isinstance(error, OSError) and error.errno in _REMEDIED
            else error
            for value, error in zip(values, self._written(values), strict=True)
        ]

    def nbytes(self, name: str) -> int:
        """Return the bytes stored under a name.

        Raises:
            FileNotFoundError: None are.
        """
        return self.files.nbytes(self.files.path(*place_of(name)))

    def delete(self, name: str) -> None:
        """Remove a value.

        Raises:
            FileNotFoundError: There is none.
            OSError: It cannot be removed.
        """
        shard, file = place_of(name)
        self._remove(shard, file)

    def names(self) -> Iterator[list[tuple[str, int]]]:
        """Yield wire names and sizes, in pages of whole shards.

        Raises:
            OSError: A shard cannot be listed.
        """
        page: list[tuple[str, int]] = []
        for shard in range(len(SHARDS)):
            found = self.files.shard(shard)
            named = [(name_of(shard, file), nbytes) for file, nbytes, _ in found]
            page += [(name, nbytes) for name, nbytes in named if name is not None]
            if len(page) >= _PAGE_NAMES:
                yield page
                page = []
        yield page

    def figures(self) -> dict[str, object]:
        """Return what there is to know.

        Raises:
            OSError: The file system does not answer.
        """
        usage = shutil.disk_usage(self._root)
        figures: dict[str, object] = {
            "path": self._root,
            "capacity_bytes": self._capacity_bytes,
            "is_owner": self.survey.space is not None,
            "total_bytes": usage.total,
            "free_bytes": usage.free,
            "swept": self.files.temporaries.swept,
        }
        if self.survey.space is not None:
            figures["objects"] = self.survey.space.count
            figures["used_bytes"] = self.survey.space.used_bytes
            figures["evicted"] = self.survey.space.evicted
        return figures

    def _touch(self, places: Sequence[tuple[int, str]]) -> None:
        older_than_s = 0
        if (space := self.survey.space) is None:
            older_than_s = _TOUCH_INTERVAL_S
        else:
            places = space.touch(places)
        for place in places:
            self.files.touch(self.files.path(*place), older_than_s=older_than_s)

    def _prepare(self) -> None:
        self.files.prepare()
        self.files.probe()

    def _written(self, values: Sequence[tuple[str, memoryview]]) -> list[BaseException | None]:
        """Store values; return for each why it was not stored, or None."""
        space = self.survey.space
        if space is not None:
            try:
                self._reserve(space, [value.nbytes for _, value in values])
            except OSError as error:
                if len(values) == 1:
                    return [without_frames(error)]
                return [self._written([value])[0] for value in values]  # some may find room
        temporaries = self.files.temporaries.new(len(values))
        writes = [
            _Write(self.files, name, value, temporary)
            for (name, value), temporary in zip(values, temporaries, strict=True)
        ]
        store = self.files.write
        for write in writes:
            if write.error is None:
                try:
                    store(write.temporary, write.value)
                except BaseException as error:  # noqa: BLE001 - of this value alone
                    write.error = without_frames(error)
        if space is None:
            self._publish(writes)
        else:
            with space.stripes(write.shard for write in writes):
                self._publish(writes)
                space.commit([write.stored for write in writes if write.error is None])
            space.cancel(*(write.value.nbytes for write in writes if write.error is not None))
        for write in writes:
            if write.error is None:
                write.error = self._unsettled(write)
        return [write.error for write in writes]

    def _publish(self, writes: Sequence[_Write]) -> None:
        """Give the values that were written their names."""
        publish = self.files.publish
        for write in writes:
            if write.error is None:
                try:
                    publish(write.temporary, write.path)
                except BaseException as error:  # noqa: BLE001 - of this value alone
                    self.files.discard(write.temporary)
                    write.error = without_frames(error)

    def _written_again(self, name: str, value: memoryview, error: OSError) -> BaseException | None:
        """Do something about why a value was not stored, and store it; if not, return why."""
        try:
            if error.errno == errno.ENOENT:
                self.files.prepare()
            elif not self._made_room(value.nbytes):
                return error
        except BaseException as worse:  # noqa: BLE001 - handed on
            return without_frames(worse)
        return self._written([(name, value)])[0]

    def _reserve(self, space: Space, sizes: Sequence[int]) -> None:
        """Reserve room for several values, if they can be there at a time.

        Raises:
            OSError: They cannot, or nothing could be evicted.
        """
        if len(sizes) > 1 and (limit_bytes := self._capacity_bytes) is not None:
            needed_bytes = sum(map(room_bytes, sizes))
            if needed_bytes > limit_bytes:
                raise OSError(errno.ENOSPC, f"{needed_bytes} bytes are more than {limit_bytes}")
        space.reserve(*sizes)

    def _unsettled(self, write: _Write) -> BaseException | None:
        """Return why a value that has its name may not survive a crash; it is gone then."""
        try:
            self.files.settle(write.path)
        except BaseException as error:  # noqa: BLE001 - handed on
            with contextlib.suppress(OSError):  # the error that led here is the one to tell
                self._remove(write.shard, write.file)
            return without_frames(error)
        return None

    def _made_room(self, nbytes: int) -> bool:
        """Evict for so many bytes on a full disk; nothing, if all of ours would not be enough."""
        space = self.survey.space
        if space is None or shutil.disk_usage(self._root).free + space.used_bytes < nbytes:
            return False
        return space.evict(nbytes)

    def _remove(self, shard: int, file: str) -> None:
        path = self.files.path(shard, file)
        if (space := self.survey.space) is None:
            self.files.delete(path)
            return
        with space.stripe(shard):
            self.files.delete(path)
            space.forget(shard, file)


class _Write:
    """A value on its way to its name."""

    __slots__ = ("error", "file", "path", "shard", "temporary", "value")

    def __init__(self, files: Files, name: str, value: memoryview, temporary: str) -> None:
        self.value: memoryview = value
        self.temporary: str = temporary
        self.error: BaseException | None = None
        try:
            self.shard, self.file = place_of(name)
        except UnicodeError as error:
            self.shard, self.file = 0, ""
            self.error = without_frames(error)
        self.path: str = files.path(self.shard, self.file)

    @property
    def stored(self) -> tuple[int, str, int]:
        """Shard, file and bytes, for the account."""
        return self.shard, self.file, self.value.nbytes


def _checked(request: ReadRequest) -> GetStatus | BaseException:
    try:
        return request.check.result()
    except BaseException as error:  # noqa: BLE001 - of this request alone
        return without_frames(error)


def _blocks_read() -> float:
    """Return how much this thread has read from disks; where that is unknown, never the same."""
    if sys.platform != "linux":
        return time.monotonic()
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


def _place_or_error(name: str) -> tuple[int, str] | UnicodeError:
    try:
        return place_of(name)
    except UnicodeError as error:
        return without_frames(error)
