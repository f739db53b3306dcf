"""`MemoryBackend`: the contract of `Backend` and nothing else, to read and to test against."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import Final

import attrs

from tieredkv.backends.base import (
    BackendStatus,
    Capabilities,
    ReadRequest,
    StoredName,
    WriteRequest,
)
from tieredkv.backends.threaded import ThreadedBackend
from tieredkv.config import Promotion, WriteOn
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

__all__ = ["MemoryBackend", "MemoryMedium"]

_PAGE_NAMES: Final = 1000


@attrs.frozen(eq=False)
class _Stored:
    value: bytes
    expires: float


class MemoryMedium:
    """Values that outlive the backends over them, as a server's outlive its clients.

    Safe in any thread.

    Attributes:
        num_clients: Clients that are connected now, by the medium's own count.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Set up an empty medium.

        Args:
            clock: Seconds, by which values expire.
        """
        self.num_clients: int = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._stored: dict[str, _Stored] = {}

    def connect(self) -> MemoryMedium:
        """Count one more client."""
        with self._lock:
            self.num_clients += 1
        return self

    def disconnect(self) -> None:
        """Count one client less."""
        with self._lock:
            self.num_clients -= 1

    def put(self, name: str, value: bytes, ttl_s: float | None = None) -> None:
        """Store a value, for `ttl_s` seconds or for good."""
        expires = float("inf") if ttl_s is None else self._clock() + ttl_s
        with self._lock:
            self._stored[name] = _Stored(value, expires)

    def get(self, name: str) -> bytes | None:
        """Return the value, or None."""
        with self._lock:
            stored = self._stored.get(name)
        return None if stored is None or stored.expires <= self._clock() else stored.value

    def delete(self, name: str) -> bool:
        """Drop a value; return whether there was one."""
        with self._lock:
            stored = self._stored.pop(name, None)
        return stored is not None and stored.expires > self._clock()

    def names(self, prefix: str = "") -> list[str]:
        """Return the names that begin with `prefix`, expired ones included."""
        with self._lock:
            return [name for name in self._stored if name.startswith(prefix)]


class MemoryBackend(ThreadedBackend[MemoryMedium]):
    """Values in a dictionary, reached through worker threads like any other medium's."""

    def __init__(
        self,
        medium: MemoryMedium | None = None,
        *,
        num_workers: int = 4,
        scatter: bool = True,
        native_ttl: bool = False,
        max_value_bytes: int | None = None,
        write_on: WriteOn = "put",
        promotion: Promotion = "always",
        name: str = "memory",
    ) -> None:
        """Set up over a medium.

        Args:
            medium: What keeps the values; None for a new one.
            num_workers: Threads that read and write at a time.
            scatter: See `Capabilities`.
            native_ttl: See `Capabilities`.
            max_value_bytes: See `Capabilities`.
            write_on: When a store writes a value to it; see `Backend`.
            promotion: When what it answers with enters the tiers above; see `Backend`.
            name: How the tier is called.

        Raises:
            ConfigError: A setting is out of range.
        """
        super().__init__(name, num_workers=num_workers, write_on=write_on, promotion=promotion)
        self.medium: MemoryMedium = MemoryMedium() if medium is None else medium
        self.capabilities: Capabilities = Capabilities(
            persistent=False,
            shared=False,
            listable=True,
            scatter=scatter,
            native_ttl=native_ttl,
            max_value_bytes=max_value_bytes,
        )

    async def status(self) -> BackendStatus:
        """See `Backend.status`."""
        return BackendStatus(is_healthy=True, details={"objects": len(self.medium.names())})

    def _connect(self) -> MemoryMedium:
        return self.medium.connect()

    def _disconnect(self, client: MemoryMedium) -> None:
        client.disconnect()

    def _probe(self, client: MemoryMedium) -> None:
        """Nothing can be wrong with memory."""

    def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
        value = client.get(request.name)
        if value is None:
            return ReadOutcome(GetStatus.MISS)
        if len(value) != request.nbytes:
            return size_mismatch(len(value), request.nbytes)
        landed = 0
        for buffer in request.buffers:
            buffer[:] = value[landed : landed + buffer.nbytes]
            landed += buffer.nbytes
        if self.capabilities.scatter:
            request.check.feed(request.buffers[0])
        return ReadOutcome(request.check.result())

    def _write(self, client: MemoryMedium, request: WriteRequest) -> WriteOutcome:
        value = bytes(request.seal())
        client.put(request.name, value, request.ttl_s if self.capabilities.native_ttl else None)
        return WriteOutcome(PutStatus.STORED)

    def _stat(self, client: MemoryMedium, name: str) -> StatOutcome:
        value = client.get(name)
        if value is None:
            return StatOutcome(GetStatus.MISS)
        return StatOutcome(GetStatus.HIT, len(value))

    def _delete(self, client: MemoryMedium, name: str) -> DeleteOutcome:
        existed = client.delete(name)
        return DeleteOutcome(DeleteStatus.DELETED if existed else DeleteStatus.ABSENT)

    def _list(
        self, client: MemoryMedium, prefix: str
    ) -> Generator[list[StoredName], MemoryMedium | None, None]:
        names = client.names(prefix)
        for at in range(0, len(names), _PAGE_NAMES):
            page = names[at : at + _PAGE_NAMES]
            values = ((name, client.get(name)) for name in page)
            yield [StoredName(name, len(value)) for name, value in values if value is not None]
