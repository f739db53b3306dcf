"""A tier that can be held still."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from tieredkv.backends import DiskBackend, ReadRequest, WriteRequest
from tieredkv.results import ReadOutcome, WriteOutcome


class StoppableDisk(DiskBackend):
    """A disk whose workers can be made to wait, and that counts what it is asked for."""

    def __init__(self, path: Path, *, name: str = "disk", num_workers: int = 4) -> None:
        super().__init__(path, name=name, num_workers=num_workers)
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.stats: list[str] = []
        self._go = threading.Event()
        self._go.set()
        self.waiting = threading.Semaphore(0)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let workers wait before each read and write."""
        self._go.clear()
        try:
            yield
        finally:
            self._go.set()

    def _pass(self) -> None:
        self.waiting.release()
        assert self._go.wait(timeout=60)

    def _read(self, client: None, request: ReadRequest) -> ReadOutcome:
        self.reads.append(request.name)
        self._pass()
        return super()._read(client, request)

    def _write(self, client: None, request: WriteRequest) -> WriteOutcome:
        self.writes.append(request.name)
        self._pass()
        return super()._write(client, request)

    async def entered(self, count: int = 1) -> None:
        """Wait until `count` more reads or writes have reached their worker."""
        with anyio.fail_after(60):
            for _ in range(count):
                while not self.waiting.acquire(blocking=False):
                    await anyio.sleep(0.001)
