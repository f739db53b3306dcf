"""Defects of writing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import attrs

from tests.testing.defects.registry import STORED, caught_by
from tieredkv.backends.base import WriteRequest
from tieredkv.results import (
    StatOutcome,
    WriteOutcome,
)
from tieredkv.testing.memory import MemoryBackend, MemoryMedium


@caught_by("test_a_write_stores_exactly_the_sealed_bytes")
class CutsLargeValues(MemoryBackend):
    def _write(self, client: MemoryMedium, request: WriteRequest) -> WriteOutcome:
        client.put(request.name, bytes(request.seal())[:1_000_000])
        return STORED


@caught_by("test_a_write_replaces_the_value_and_its_size")
class KeepsTheFirstSize(MemoryBackend):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sizes: dict[str, StatOutcome] = {}

    def _stat(self, client: MemoryMedium, name: str) -> StatOutcome:
        return self._sizes.setdefault(name, super()._stat(client, name))


@caught_by("test_the_last_of_one_name_in_a_batch_wins")
class WritesEveryDuplicate(MemoryBackend):
    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        outcomes = [await super(WritesEveryDuplicate, self).write_many([one]) for one in requests]
        return [outcome for (outcome,) in outcomes]


@caught_by("test_the_last_of_one_name_in_a_batch_wins")
class LetsTheFirstWin(MemoryBackend):
    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        return (await super().write_many(requests[::-1]))[::-1]


@caught_by("test_a_seal_that_raises_harms_only_its_own_name")
class ClearsTheOldValueFirst(MemoryBackend):
    def _write(self, client: MemoryMedium, request: WriteRequest) -> WriteOutcome:
        client.delete(request.name)
        return super()._write(client, request)


@caught_by("test_a_seal_that_raises_harms_only_its_own_name")
class ReportsSuccessWithoutWriting(MemoryBackend):
    def _write(self, client: MemoryMedium, request: WriteRequest) -> WriteOutcome:
        try:
            return super()._write(client, request)
        except BaseException:  # noqa: BLE001 - the defect
            return STORED


@caught_by("test_nothing_of_a_written_value_is_kept")
class StoresTheWritersMemory(MemoryBackend):
    def _write(self, client: MemoryMedium, request: WriteRequest) -> WriteOutcome:
        client.put(request.name, request.seal())  # type: ignore[arg-type]  # the defect
        return STORED


@caught_by("test_a_value_with_gaps_is_stored_right_or_not_at_all")
class TakesAValueForContiguous(MemoryBackend):
    def _write(self, client: MemoryMedium, request: WriteRequest) -> WriteOutcome:
        value = request.seal()
        stored = bytes(value) if value.contiguous else bytes(value.obj)[: value.nbytes]
        client.put(request.name, stored)
        return STORED


@caught_by("test_a_value_over_the_limit_is_refused_unsent")
class IgnoresItsLimit(MemoryBackend):
    def __init__(self, medium: MemoryMedium) -> None:
        super().__init__(medium, max_value_bytes=4 << 20)

    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteOutcome]:
        limited = self.capabilities
        self.capabilities = attrs.evolve(limited, max_value_bytes=None)
        try:
            return await super().write_many(requests)
        finally:
            self.capabilities = limited


class _WithTtl(MemoryBackend):
    def __init__(self, medium: MemoryMedium) -> None:
        super().__init__(medium, native_ttl=True)


@caught_by("test_a_value_lives_for_its_ttl_or_for_good")
class NeverExpires(_WithTtl):
    def _write(self, client: MemoryMedium, request: WriteRequest) -> WriteOutcome:
        return super()._write(client, attrs.evolve(request, ttl_s=None))


@caught_by("test_a_value_lives_for_its_ttl_or_for_good")
class KeepsTheFirstTtl(_WithTtl):
    def __init__(self, medium: MemoryMedium) -> None:
        super().__init__(medium)
        self._ttls: dict[str, float | None] = {}

    def _write(self, client: MemoryMedium, request: WriteRequest) -> WriteOutcome:
        ttl_s = self._ttls.setdefault(request.name, request.ttl_s)
        return super()._write(client, attrs.evolve(request, ttl_s=ttl_s))


@caught_by("test_a_reader_sees_the_old_value_or_the_new_one")
class WritesInTwoParts(MemoryBackend):
    def _write(self, client: MemoryMedium, request: WriteRequest) -> WriteOutcome:
        new, old = bytes(request.seal()), client.get(request.name)
        if old is not None and len(old) == len(new):
            client.put(request.name, new[: len(new) // 2] + old[len(new) // 2 :])
            time.sleep(0.01)
        client.put(request.name, new)
        return STORED
