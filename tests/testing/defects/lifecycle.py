"""Defects of opening, closing, and of what is used meanwhile."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextvars import ContextVar

import anyio
import attrs

from tests.testing.defects.registry import MISS, caught_by, fill
from tieredkv.backends.base import ReadRequest, WriteRequest
from tieredkv.errors import StoreClosedError, WrongLoopError
from tieredkv.results import (
    ReadOutcome,
    WriteOutcome,
)
from tieredkv.testing.memory import MemoryBackend, MemoryMedium


@caught_by(
    "test_use_before_opening_is_refused",
    "test_use_after_closing_is_refused",
    "test_another_event_loop_is_refused",
)
class AnswersMisuse(MemoryBackend):
    async def read_many(self, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        try:
            return await super().read_many(requests)
        except (StoreClosedError, WrongLoopError):
            return [MISS] * len(requests)


@caught_by("test_closing_twice_is_fine")
class ClosesOnce(MemoryBackend):
    closed = False

    async def aclose(self) -> None:
        assert not self.closed
        self.closed = True
        await super().aclose()


@caught_by("test_the_tasks_that_open_use_and_close_may_differ")
class BelongsToATask(MemoryBackend):
    def __init__(self, medium: MemoryMedium) -> None:
        super().__init__(medium)
        self._is_mine = ContextVar("is_mine", default=False)

    async def open(self) -> None:
        self._is_mine.set(True)
        await super().open()

    async def aclose(self) -> None:
        await super().aclose()
        assert self._is_mine.get(), "closed in another task"


@caught_by("test_values_outlive_a_persistent_backend")
class ForgetsWhenClosed(MemoryBackend):
    def __init__(self, medium: MemoryMedium) -> None:
        super().__init__(medium)
        self.capabilities = attrs.evolve(self.capabilities, persistent=True)

    async def aclose(self) -> None:
        await super().aclose()
        for name in self.medium.names():
            self.medium.delete(name)


@caught_by("test_closing_waits_for_what_runs")
class ClosesAtOnce(MemoryBackend):
    async def aclose(self) -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await super().aclose()


@caught_by("test_closing_that_is_cancelled_still_frees_everything")
class CannotBeStoppedFromClosing(MemoryBackend):
    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await super().aclose()


@caught_by("test_closing_that_is_cancelled_still_frees_everything")
class LeavesBusyClientsOpen(MemoryBackend):
    def _disconnect(self, client: MemoryMedium) -> None:
        if self._workers.num_running == 0:
            super()._disconnect(client)


@caught_by("test_calls_beside_each_other_do_not_mix")
class SharesOneBuffer(MemoryBackend):
    scratch = b""

    def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
        self.scratch = client.get(request.name) or b""
        if len(self.scratch) != request.nbytes:
            return super()._read(client, request)
        time.sleep(0.001)
        fill(request.buffers, self.scratch[: request.nbytes].ljust(request.nbytes, b"\0"))
        return ReadOutcome(request.check.result())


@caught_by("test_bursts_leave_no_more_clients_threads_and_descriptors")
class HasAClientForEachThread(MemoryBackend):
    def __init__(self, medium: MemoryMedium) -> None:
        super().__init__(medium)
        self._local = threading.local()

    def _write(self, client: MemoryMedium, request: WriteRequest) -> WriteOutcome:
        if not hasattr(self._local, "client"):
            self._local.client = client.connect()
        return super()._write(client, request)


@caught_by("test_bursts_leave_no_more_clients_threads_and_descriptors")
class LeavesDescriptorsOpen(MemoryBackend):
    def __init__(self, medium: MemoryMedium) -> None:
        super().__init__(medium)
        self.descriptors: list[int] = []

    def _write(self, client: MemoryMedium, request: WriteRequest) -> WriteOutcome:
        self.descriptors.append(os.open(os.devnull, os.O_RDONLY))
        return super()._write(client, request)

    async def aclose(self) -> None:
        await super().aclose()
        while self.descriptors:
            os.close(self.descriptors.pop())
