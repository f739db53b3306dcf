"""`DiskBackend`: values as files in a directory of the local machine."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import anyio

from tieredkv.backends.base import (
    BackendStatus,
    Capabilities,
    ReadRequest,
    StoredName,
    WriteRequest,
)
from tieredkv.backends.disk.index import BLOCK_BYTES
from tieredkv.backends.disk.volume import NO_ROOM, Volume
from tieredkv.backends.threaded import WRITE, Operation, OutcomeT, ThreadedBackend
from tieredkv.config import MiB, Promotion, Size, WriteOn, choice, parse_size
from tieredkv.errors import (
    ConfigError,
    StoreClosedError,
    TierError,
    TierFullError,
    WrongLoopError,
)
from tieredkv.paths import home_expanded
from tieredkv.results import (
    DeleteOutcome,
    DeleteStatus,
    GetStatus,
    PutStatus,
    ReadOutcome,
    StatOutcome,
    WriteOutcome,
    size_mismatch,
)
from tieredkv.tasks import Detached

__all__ = ["DiskBackend", "Durability"]

Durability: TypeAlias = Literal["none", "fsync"]

_STATUS_DEADLINE_S: Final = 1.0

_REMEDIES: Final = {
    errno.ENOSPC: "free space there, or lower the tier's capacity",
    errno.EDQUOT: "raise the quota, or lower the tier's capacity",
    errno.EROFS: "mount it writable",
    errno.EACCES: "give this user the right to read and write there",
    errno.EPERM: "give this user the right to read and write there",
    errno.EMFILE: "raise this process's limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files (fs.file-max)",
    errno.ENOENT: "the directory has vanished: is it mounted?",
    errno.ENOTDIR: "a file is where a directory should be",
    errno.ENOLCK: "use a file system with locks (flock)",
    errno.EOPNOTSUPP: "use a file system with locks (flock)",
    errno.EIO: "check the disk",
}

_HIT: Final = ReadOutcome(GetStatus.HIT)
_MISS: Final = ReadOutcome(GetStatus.MISS)
_STORED: Final = WriteOutcome(PutStatus.STORED)


class DiskBackend(ThreadedBackend[Volume]):
    """Values as files under one directory, through the page cache.

    Files and directories are readable by their owner only. Any number of processes may share the
    directory: a value appears and is replaced as a whole. One of them keeps it within its capacity,
    least recently used values first to go; all should be given the same one. The order of use
    outlives the process, to the minute.

    The capacity counts values in blocks of 4 KiB, those being written included. It may be exceeded
    by the directories (4 KiB for each of 256, more where names are many), by evicted values that
    are being read, and by what other processes have written in the last 30 s (longer with millions
    of files: listing them takes at most a twentieth of the time).

    Where the disk is full, values are evicted for new ones, whatever the capacity.
    """

    job_bytes: int = 2 * MiB

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        capacity: Size | None = None,
        durability: Durability = "none",
        num_workers: int = 4,
        write_on: WriteOn = "put",
        promotion: Promotion = "always",
        name: str = "disk",
    ) -> None:
        """Set up; nothing is touched before `open`.

        Args:
            path: The directory; it is created if missing, ``~`` is expanded.
            capacity: Bytes (or a size string) that values may take; None for what the disk has.
            durability: ``"none"``: a value that was written survives the end of the process.
                ``"fsync"``: and, once its write is acknowledged, a crash of the machine.
            num_workers: Threads that read and write at a time.
            write_on: When a store writes a value to it; see `Backend`.
            promotion: When what it answers with enters the tiers above; see `Backend`.
            name: How the tier is called.

        Raises:
            ConfigError: A setting is out of range.
        """
        super().__init__(name, num_workers=num_workers, write_on=write_on, promotion=promotion)
        choice(durability, field="durability", choices=("none", "fsync"))
        limit = None
        if capacity is not None:
            limit = parse_size(capacity, field="capacity") // BLOCK_BYTES * BLOCK_BYTES
            if not limit:
                raise ConfigError(
                    f"capacity={capacity!r} is below one block of {BLOCK_BYTES} bytes"
                )
        self.path: Path = home_expanded(path, field="path")
        self.capacity_bytes: int | None = limit
        self.capabilities: Capabilities = Capabilities(
            persistent=True,
            shared=True,
            listable=True,
            scatter=True,
            native_ttl=False,
            max_value_bytes=limit,
        )
        self._fsync = durability == "fsync"
        self._num_processors = _num_processors()
        self._detached = Detached()
        self._surveying = False
        self._troubles: dict[str, str] = {}  # operation → why it failed last, until it succeeds
        self._volume = self._new_volume()

    async def open(self) -> None:
        """See `Backend.open`.

        Lists what is in the directory: 100,000 values take about a second.
        """
        self._volume = self._new_volume()
        self._troubles.clear()
        await super().open()

    async def aclose(self) -> None:
        """See `Backend.aclose`."""
        is_ours = True
        try:
            await super().aclose()
        except WrongLoopError:  # on its own loop it stays in use
            is_ours = False
            raise
        finally:
            if is_ours:
                self._volume.close()

    async def read_many(self, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        """See `Backend.read_many`."""
        self._keep_account()
        return await super().read_many(requests)

    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        """See `Backend.write_many`."""
        self._keep_account()
        return await super().write_many(requests)

    async def status(self) -> BackendStatus:
        """See `Backend.status`.

        The details are of this process but for ``total_bytes`` and ``free_bytes``, which are the
        file system's; what is stored is known to the owner of the directory only.
        """
        try:
            with anyio.fail_after(_STATUS_DEADLINE_S):
                details = await self._workers.run(Volume.figures)
        except TimeoutError:
            reason = f"no worker was free, or the disk did not answer, for {_STATUS_DEADLINE_S} s"
            return BackendStatus(is_healthy=False, reason=reason)
        except StoreClosedError as error:
            return BackendStatus(is_healthy=False, reason=str(error))
        except OSError as error:
            return BackendStatus(is_healthy=False, reason=str(self._map_error("status", error)))
        self._succeeded("status")
        reason = "; ".join(self._troubles.values())
        return BackendStatus(is_healthy=not reason, reason=reason, details=details)

    def _new_volume(self) -> Volume:
        return Volume(os.fspath(self.path), capacity_bytes=self.capacity_bytes, fsync=self._fsync)

    # -- housekeeping ----------------------------------------------------------------------------

    def _keep_account(self) -> None:
        """Begin a survey if one is due; nobody waits for it, and without use there is none."""
        if time.monotonic() >= self._volume.survey.due > 0 and not self._surveying:
            self._surveying = True
            self._detached.spawn(self._survey, self._volume)

    async def _survey(self, volume: Volume) -> None:
        """Run a survey in slices, so that it never holds a worker for long."""
        try:
            while await self._workers.run(lambda _: volume.survey.step()):
                pass
            self._troubles.pop("survey", None)
        except StoreClosedError:
            pass
        except OSError as error:
            self._map_error("survey", error)
        finally:
            self._surveying = False

    # -- in worker threads -----------------------------------------------------------------------

    def _connect(self) -> Volume:
        return self._volume

    def _disconnect(self, client: Volume) -> None:
        pass

    def _most_hops(
        self, operation: Operation[OutcomeT], plan: Sequence[Sequence[int]]
    ) -> int | None:
        """See `ThreadedBackend`.

        A small value takes about as long in the interpreter as in the system, if that need not wait
        for the disk. More threads than processors then only wait for each other.
        """
        if self._fsync if operation is WRITE else self._volume.reads_disk:
            return None
        large = sum(len(places) == 1 for places in plan)
        return max(large, self._num_processors)

    def _probe(self, client: Volume) -> None:
        client.open()

    def _read(self, client: Volume, request: ReadRequest) -> ReadOutcome:
        return self._read_group(client, [request])[0]

    def _read_group(self, client: Volume, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        results = client.read_many(requests)
        if self._troubles and any(map(_is_answer, results)):
            self._succeeded("read")
        hit = GetStatus.HIT
        return [
            _HIT if result is hit else self._other(request, result)
            for request, result in zip(requests, results, strict=True)
        ]

    def _other(self, request: ReadRequest, result: GetStatus | int | BaseException) -> ReadOutcome:
        """Return the outcome of a read that was no hit."""
        if isinstance(result, FileNotFoundError):
            return _MISS
        if isinstance(result, BaseException):
            return ReadOutcome(GetStatus.UNKNOWN, self._mapped("read", result))
        if isinstance(result, GetStatus):
            return ReadOutcome(result)
        return size_mismatch(result, request.nbytes)

    def _write(self, client: Volume, request: WriteRequest) -> WriteOutcome:
        return self._write_group(client, [request])[0]

    def _write_group(
        self, client: Volume, requests: Sequence[WriteRequest]
    ) -> Sequence[WriteOutcome]:
        values, sealed = self._sealed(requests)
        errors = client.write_many([(requests[at].name, value) for at, value in values.items()])
        if None in errors:
            self._succeeded("write")
        answers = iter(errors)
        return [
            outcome
            or (
                _STORED
                if (error := next(answers)) is None
                else WRITE.failed(self._mapped("write", error))
            )
            for outcome in sealed
        ]

    def _stat(self, client: Volume, name: str) -> StatOutcome:
        try:
            nbytes = client.nbytes(name)
        except FileNotFoundError:
            self._succeeded("stat")
            return StatOutcome(GetStatus.MISS)
        self._succeeded("stat")
        return StatOutcome(GetStatus.HIT, nbytes)

    def _delete(self, client: Volume, name: str) -> DeleteOutcome:
        try:
            client.delete(name)
        except FileNotFoundError:
            self._succeeded("delete")
            return DeleteOutcome(DeleteStatus.ABSENT)
        self._succeeded("delete")
        return DeleteOutcome(DeleteStatus.DELETED)

    def _list(
        self, client: Volume, prefix: str
    ) -> Generator[list[StoredName], Volume | None, None]:
        for page in client.names():
            yield [StoredName(name, nbytes) for name, nbytes in page if name.startswith(prefix)]

    def _succeeded(self, operation: str) -> None:
        if self._troubles:
            self._troubles.pop(operation, None)
            if operation == "write":  # where one can write one can delete
                self._troubles.pop("delete", None)

    def _map_error(self, operation: str, error: BaseException) -> TierError:
        if not isinstance(error, OSError):
            return super()._map_error(operation, error)
        code = error.errno or 0
        symbol = errno.errorcode.get(code, "no errno")
        reason = f"{error.strerror or error} ({symbol}, errno {code}) in {self.path}"
        if remedy := _REMEDIES.get(code):
            reason = f"{reason}: {remedy}"
        kind = TierFullError if code in NO_ROOM else TierError
        mapped = kind(self.name, operation, reason)
        self._troubles[operation] = str(mapped)
        return mapped


def _is_answer(result: GetStatus | int | BaseException) -> bool:
    """Return whether the disk has answered a read, be it with a miss."""
    return not isinstance(result, BaseException) or isinstance(result, FileNotFoundError)


def _num_processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
