"""Defects that callers who give up meet."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import anyio
import attrs

from tests.testing.defects.registry import STORED, address, caught_by
from tieredkv.backends.base import ReadCheck, ReadRequest, WriteRequest
from tieredkv.errors import TierError
from tieredkv.results import (
    GetStatus,
    ReadOutcome,
    WriteOutcome,
)
from tieredkv.testing.memory import MemoryBackend, MemoryMedium


@caught_by(
    "test_a_cancelled_read_comes_back_before_its_worker",
    "test_a_cancelled_write_is_done_whole_or_not_at_all",
)
class WaitsForItsWorker(MemoryBackend):
    async def read_many(self, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        with anyio.CancelScope(shield=True):
            return await super().read_many(requests)
        raise AssertionError("nothing ends the scope before its call does")

    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        with anyio.CancelScope(shield=True):
            return await super().write_many(requests)
        raise AssertionError("nothing ends the scope before its call does")


@caught_by("test_memory_that_came_back_is_not_touched_again")
class KeepsAnAddressInsteadOfTheMemory(MemoryBackend):
    """As a binding does that hands a pointer to foreign code."""

    async def read_many(self, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        return await super().read_many([_staged(request) for request in requests])


def _staged(request: ReadRequest) -> ReadRequest:
    stage = memoryview(bytearray(request.nbytes))
    places = [(address(buffer), buffer.nbytes) for buffer in request.buffers]
    return attrs.evolve(
        request, buffers=(stage,), check=_CopiesAround(request.check, stage, places)
    )


class _CopiesAround:
    """Copies what has landed to where it belongs before the check, and once more after it."""

    def __init__(self, check: ReadCheck, stage: memoryview, places: list[tuple[int, int]]) -> None:
        self._check = check
        self._stage = stage
        self._places = places

    def feed(self, landed: memoryview) -> None:
        pass

    def result(self) -> GetStatus:
        self._copy()
        status = self._check.result()
        self._copy()
        return status

    def _copy(self) -> None:
        at = 0
        for place, nbytes in self._places:
            ctypes.memmove(place, bytes(self._stage[at : at + nbytes]), nbytes)
            at += nbytes


@caught_by("test_a_cancelled_write_is_done_whole_or_not_at_all")
class StopsHalfWay(MemoryBackend):
    abandoned = False

    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        try:
            return await super().write_many(requests)
        except BaseException:
            self.abandoned = True
            raise

    def _write(self, client: MemoryMedium, request: WriteRequest) -> WriteOutcome:
        value = bytes(request.seal())
        client.put(request.name, value[: len(value) // 2] if self.abandoned else value)
        return STORED


@caught_by("test_calls_that_are_cancelled_at_any_point_do_no_harm")
class LosesAWorkerToEachCancellation(MemoryBackend):
    lost = 0

    async def read_many(self, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        if self.lost >= self._workers.num_workers:
            failure = TierError(self.name, "read", "no worker is left")
            return [ReadOutcome(GetStatus.UNKNOWN, failure)] * len(requests)
        try:
            return await super().read_many(requests)
        except BaseException:
            self.lost += 1
            raise


@caught_by("test_a_write_given_up_before_a_worker_began_it_is_never_sent")
class WritesWhatWasGivenUp(MemoryBackend):
    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        try:
            return await super().write_many(requests)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await super().write_many(requests)
            raise
