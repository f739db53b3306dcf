"""A tier that can be held still, or made to fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from tieredkv.backends import DiskBackend, ReadRequest, ThreadedBackend, WriteRequest
from tieredkv.backends.disk.names import path_of
from tieredkv.config import WriteOn
from tieredkv.results import ReadOutcome, StatOutcome, WriteOutcome


class StoppableDisk(DiskBackend):
    """A disk whose workers can be made to wait or to fail, and that counts what it is asked for."""

    def __init__(
        self,
        path: Path,
        *,
        name: str = "disk",
        num_workers: int = 4,
        write_on: WriteOn = "put",
    ) -> None:
        super().__init__(path, name=name, num_workers=num_workers, write_on=write_on)
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.error: OSError | None = None
        self.waiting = threading.Semaphore(0)
        self._steps: threading.Semaphore | None = None
        self._go = threading.Event()
        self._go.set()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let workers wait before each read and write."""
        self._go.clear()
        try:
            yield
        finally:
            self._go.set()

    def let_go(self) -> None:
        """Let the workers go on, before the block is left."""
        self._go.set()

    @contextmanager
    def one_by_one(self) -> Iterator[None]:
        """Let workers wait before each read and write for `let_one_go`."""
        self._steps = threading.Semaphore(0)
        try:
            yield
        finally:
            steps, self._steps = self._steps, None
            steps.release(1000)

    def let_one_go(self) -> None:
        """Let one worker go on."""
        assert self._steps is not None
        self._steps.release()

    @contextmanager
    def failing(self, error: OSError) -> Iterator[None]:
        """Let every read, write and look-up raise."""
        self.error = error
        try:
            yield
        finally:
            self.error = None

    async def entered(self, count: int = 1) -> None:
        """Wait until `count` more reads or writes have reached their worker."""
        with anyio.fail_after(60):
            for _ in range(count):
                while not self.waiting.acquire(blocking=False):
                    await anyio.sleep(0.001)

    def file_of(self, name: str) -> Path:
        """Return the file that holds a value."""
        return self.path / path_of(name)

    def _pass(self) -> None:
        self.waiting.release()
        assert self._go.wait(timeout=60)
        steps = self._steps
        assert steps is None or steps.acquire(timeout=60)
        if self.error is not None:
            raise self.error

    def _read(self, client: Any, request: ReadRequest) -> ReadOutcome:
        self.reads.append(request.name)
        self._pass()
        return super()._read_group(client, [request])[0]

    def _read_group(self, client: Any, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        # One by one, through `_read`.
        return list(ThreadedBackend._read_group(self, client, requests))

    def _write_group(self, client: Any, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        # One by one, through `_write`.
        return list(ThreadedBackend._write_group(self, client, requests))

    def _write(self, client: Any, request: WriteRequest) -> WriteOutcome:
        self.writes.append(request.name)
        self._pass()
        return super()._write_group(client, [request])[0]

    def _stat(self, client: Any, name: str) -> StatOutcome:
        if self.error is not None:
            raise self.error
        return super()._stat(client, name)
