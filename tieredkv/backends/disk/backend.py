"""`DiskBackend`: values as files in a directory of the local machine."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from tieredkv.backends.base import (
    BackendStatus,
    Capabilities,
    ReadRequest,
    StoredName,
    WriteRequest,
)
from tieredkv.backends.disk.files import Files
from tieredkv.backends.threaded import ThreadedBackend
from tieredkv.config import choice
from tieredkv.errors import TierError, TierFullError
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

__all__ = ["DiskBackend", "Durability"]

Durability: TypeAlias = Literal["none", "fsync"]


class DiskBackend(ThreadedBackend[None]):
    """Values as files under one directory, through the page cache.

    Files and directories are readable by their owner only. Several processes may share the
    directory: a value appears and is replaced as a whole.
    """

    capabilities = Capabilities(
        persistent=True, shared=True, listable=True, scatter=True, native_ttl=False
    )

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "none",
        num_workers: int = 4,
        name: str = "disk",
    ) -> None:
        """Set up; nothing is touched before `open`.

        Args:
            path: The directory; it is created if missing, ``~`` is expanded.
            durability: ``"none"``: a value that was written survives the end of the process.
                ``"fsync"``: and, once its write is acknowledged, a crash of the machine.
            num_workers: Threads that read and write at a time.
            name: How the tier is called.

        Raises:
            ConfigError: A setting is out of range.
        """
        super().__init__(name, num_workers=num_workers)
        choice(durability, field="durability", choices=("none", "fsync"))
        self.path = Path(path).expanduser()
        self._files = Files(self.path, fsync=durability == "fsync")

    async def status(self) -> BackendStatus:
        """See `Backend.status`."""
        try:
            total, free = await self._workers.run(lambda _: self._files.usage())
        except OSError as error:
            return BackendStatus(is_healthy=False, reason=str(self._map_error("status", error)))
        return BackendStatus(is_healthy=True, details={"total_bytes": total, "free_bytes": free})

    def _connect(self) -> None:
        return None

    def _disconnect(self, client: None) -> None:
        pass

    def _probe(self, client: None) -> None:
        self._files.prepare()

    def _read(self, client: None, request: ReadRequest) -> ReadOutcome:
        try:
            stored = self._files.read(request.name, request.buffers)
        except FileNotFoundError:
            return ReadOutcome(GetStatus.MISS)
        if stored != request.nbytes:
            return size_mismatch(stored, request.nbytes)
        return ReadOutcome(request.check.result())

    def _write(self, client: None, request: WriteRequest) -> WriteOutcome:
        self._files.write(request.name, request.seal())
        return WriteOutcome(PutStatus.STORED)

    def _stat(self, client: None, name: str) -> StatOutcome:
        try:
            return StatOutcome(GetStatus.HIT, self._files.size(name))
        except FileNotFoundError:
            return StatOutcome(GetStatus.MISS)

    def _delete(self, client: None, name: str) -> DeleteOutcome:
        try:
            self._files.delete(name)
        except FileNotFoundError:
            return DeleteOutcome(DeleteStatus.ABSENT)
        return DeleteOutcome(DeleteStatus.DELETED)

    def _list(self, client: None, prefix: str) -> Iterator[list[StoredName]]:
        for page in self._files.walk():
            yield [StoredName(name, size) for name, size in page if name.startswith(prefix)]

    def _map_error(self, operation: str, error: BaseException) -> TierError:
        if not isinstance(error, OSError):
            return super()._map_error(operation, error)
        reason = f"{error.strerror or error} (errno {error.errno}) in {self.path}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return TierFullError(self.name, operation, f"{reason}: free space there")
        return TierError(self.name, operation, reason)
