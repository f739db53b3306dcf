"""Defects of reading."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import attrs

from tests.testing.defects.registry import HIT, MISS, address, caught_by, fill
from tieredkv.backends.base import ReadRequest, WriteRequest
from tieredkv.errors import TierUnavailableError
from tieredkv.results import (
    GetStatus,
    ReadOutcome,
    WriteOutcome,
)
from tieredkv.testing.memory import MemoryBackend, MemoryMedium


@caught_by("test_a_read_lands_exactly_the_stored_bytes")
class WritesBeyondTheBuffer(MemoryBackend):
    def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
        outcome = super()._read(client, request)
        if outcome == HIT and request.nbytes:
            ctypes.memset(address(request.buffers[-1]) + request.buffers[-1].nbytes, 0, 1)
        return outcome


@caught_by("test_another_size_than_asked_for_is_a_mismatch")
class ReadsWhatFits(MemoryBackend):
    def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
        value = client.get(request.name)
        if value is None:
            return MISS
        fill(request.buffers, value[: request.nbytes].ljust(request.nbytes, b"\0"))
        return ReadOutcome(request.check.result())


@caught_by(
    "test_a_miss_leaves_the_buffers_alone",
    "test_a_value_that_has_vanished_is_a_miss",
    "test_a_deleted_value_is_gone_until_it_is_written_again",
)
class ClearsTheBufferFirst(MemoryBackend):
    def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
        fill(request.buffers, bytes(request.nbytes))
        return super()._read(client, request)


@caught_by("test_a_value_that_has_vanished_is_a_miss")
class CachesValues(MemoryBackend):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._cache: dict[str, bytes] = {}

    def _write(self, client: MemoryMedium, request: WriteRequest) -> WriteOutcome:
        self._cache[request.name] = bytes(request.seal())
        return super()._write(client, request)

    def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
        if request.name in self._cache and client.get(request.name) is None:
            fill(request.buffers, self._cache[request.name])
            return ReadOutcome(request.check.result())
        return super()._read(client, request)


@caught_by("test_several_buffers_are_filled_in_order")
class FillsTheTrailerFirst(MemoryBackend):
    def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
        return super()._read(client, attrs.evolve(request, buffers=request.buffers[::-1]))


@caught_by("test_what_is_fed_is_the_first_buffer_whole")
class FeedsOnlyTheFirstPiece(MemoryBackend):
    def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
        value = client.get(request.name)
        if value is None or len(value) != request.nbytes:
            return super()._read(client, request)
        fill(request.buffers, value)
        request.check.feed(request.buffers[0][:4096])
        return ReadOutcome(request.check.result())


@caught_by("test_one_name_twice_in_a_batch_fills_both_buffers")
class ReadsEachNameOnce(MemoryBackend):
    async def read_many(self, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        last = {request.name: request for request in requests}
        outcomes = dict(zip(last, await super().read_many(list(last.values())), strict=True))
        return [outcomes[request.name] for request in requests]


@caught_by("test_every_request_has_its_own_outcome_in_the_order_asked")
class SortsTheBatch(MemoryBackend):
    async def read_many(self, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        return await super().read_many(sorted(requests, key=lambda request: request.name))


@caught_by("test_the_answer_of_the_check_is_the_outcome")
class IgnoresTheCheck(MemoryBackend):
    def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
        outcome = super()._read(client, request)
        return outcome if outcome.status in (GetStatus.MISS, GetStatus.REJECTED) else HIT


@caught_by("test_the_check_runs_in_a_worker_when_all_has_landed")
class ChecksTooEarly(MemoryBackend):
    def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
        value = client.get(request.name)
        if value is None or len(value) != request.nbytes:
            return super()._read(client, request)
        status = request.check.result()
        fill(request.buffers, value)
        return ReadOutcome(status)


@caught_by(
    "test_the_check_runs_in_a_worker_when_all_has_landed",
    "test_a_value_is_sealed_in_a_worker",
    "test_a_cancelled_read_comes_back_before_its_worker",
)
class WorksOnTheEventLoop(MemoryBackend):
    async def read_many(self, requests: Sequence[ReadRequest]) -> list[ReadOutcome]:
        await super().read_many([])
        return list(self._read_group(self.medium, requests))

    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        await super().write_many([])
        return list(self._write_group(self.medium, requests))


@caught_by(
    "test_a_check_that_raises_harms_only_its_own_name",
    "test_a_seal_that_raises_harms_only_its_own_name",
)
class LetsOneFailTheBatch(MemoryBackend):
    def _read_group(
        self, client: MemoryMedium, requests: Sequence[ReadRequest]
    ) -> Sequence[ReadOutcome]:
        return [self._read(client, request) for request in requests]

    def _write_group(
        self, client: MemoryMedium, requests: Sequence[WriteRequest]
    ) -> Sequence[WriteOutcome]:
        return [self._write(client, request) for request in requests]


@caught_by("test_a_check_that_raises_harms_only_its_own_name")
class TakesErrorsForMisses(MemoryBackend):
    def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
        try:
            return super()._read(client, request)
        except BaseException:  # noqa: BLE001 - the defect
            return MISS


@caught_by("test_an_outcome_keeps_no_memory_alive")
class KeepsTracebacks(MemoryBackend):
    def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
        try:
            return super()._read(client, request)
        except BaseException as error:  # noqa: BLE001 - what it hands on is the defect
            failure = TierUnavailableError(self.name, "read", "failed")
            failure.__cause__ = error
            return ReadOutcome(GetStatus.UNKNOWN, failure)


@caught_by(
    "test_an_outcome_keeps_no_memory_alive",
    "test_a_cancelled_read_comes_back_before_its_worker",
)
class KeepsItsLastRequest(MemoryBackend):
    def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
        self.last = request
        return super()._read(client, request)


@caught_by(
    "test_a_read_only_buffer_is_no_hit_and_harms_no_neighbour",
    "test_a_buffer_with_gaps_is_filled_right_or_refused",
)
class LandsInACopyOfOddBuffers(MemoryBackend):
    def _read(self, client: MemoryMedium, request: ReadRequest) -> ReadOutcome:
        buffers = tuple(
            memoryview(bytearray(buffer)) if buffer.readonly or not buffer.contiguous else buffer
            for buffer in request.buffers
        )
        return super()._read(client, attrs.evolve(request, buffers=buffers))
