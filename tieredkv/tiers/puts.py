"""The write side of a store: a copy in L1 first, then every L2 tier."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import attrs

from tieredkv.config import MiB
from tieredkv.results import PutStatus, WriteOutcome

if TYPE_CHECKING:
    from tieredkv.pool.arena import Entry
    from tieredkv.tiers.inflight import InFlight
    from tieredkv.tiers.memory import MemoryTier
    from tieredkv.tiers.pacing import Pacer
    from tieredkv.tiers.writes import Put, Writes

__all__ = ["NewValue", "Puts"]

_SUBMIT_BYTES: Final = 16 * MiB

_STORED: Final = WriteOutcome(PutStatus.STORED)
_IN_OVERFLOW: Final = WriteOutcome(PutStatus.SKIPPED, "no_memory")
_NO_MEMORY: Final = WriteOutcome(PutStatus.REJECTED, "no_memory")
_NOT_TRIED: Final = WriteOutcome(PutStatus.SKIPPED, "no_memory")


@attrs.frozen(eq=False)
class NewValue:
    """A value to put: its wire name, its bytes, and when it expires."""

    name: str
    source: memoryview
    ttl_s: float | None
    expires_ms: int


class Puts:
    """Puts values of one store."""

    def __init__(self, l1: MemoryTier, writes: Writes, inflight: InFlight, pacer: Pacer) -> None:
        self._l1 = l1
        self._writes = writes
        self._inflight = inflight
        self._pacer = pacer
        self._generation = 0

    async def put_many(
        self, values: Sequence[NewValue]
    ) -> list[tuple[bool, dict[str, WriteOutcome]]]:
        """Return for each value whether the policy's requirement is met, and every outcome.

        A caller that is cancelled leaves what has begun to run its course.
        """
        puts: list[Put | None] = []
        ready: list[Put] = []
        ready_bytes = 0
        with ExitStack() as barred:
            try:
                for value in values:
                    entry = self._l1.reserve(value.name, value.source.nbytes)
                    if entry is None or ready_bytes >= _SUBMIT_BYTES:
                        await self._submit(ready)
                        ready_bytes = 0
                    if entry is None:
                        entry = await self._l1.reserve_soon(value.name, value.source.nbytes)
                    if entry is None:
                        puts.append(None)
                        continue
                    put = self._writes.put(entry, value.ttl_s)
                    ready.append(put)
                    ready_bytes += entry.nbytes
                    await self._fill(entry, value)
                    if not self._l1.admit(entry):
                        self._l1.discard(value.name)  # what L1 has is older
                        barred.enter_context(self._inflight.changing((value.name,)))
                    self._inflight.outdate(value.name)
                    puts.append(put)
                await self._submit(ready)
            finally:
                for put in ready:  # not submitted: the caller was cancelled
                    self._l1.arena.drop(put.entry)
            for waiting in puts:
                if waiting is not None:
                    await waiting.wait()
            return [self._outcome(put) for put in puts]

    async def _submit(self, ready: list[Put]) -> None:
        """Hand puts to the writers, who use the entries from now on, and empty the list."""
        await self._writes.submit(ready)
        for put in ready:
            self._l1.arena.drop(put.entry)
        ready.clear()

    async def _fill(self, entry: Entry, value: NewValue) -> None:
        target = self._l1.arena.writable(entry)
        await self._pacer.copy(target, value.source)
        self._generation = max(self._generation + 1, time.time_ns() // 1000)
        entry.generation = self._generation
        entry.expires_ms = value.expires_ms

    def _outcome(self, put: Put | None) -> tuple[bool, dict[str, WriteOutcome]]:
        if put is None:
            not_tried = {writer.tier.name: _NOT_TRIED for writer in self._writes.writers}
            return False, {self._l1.name: _NO_MEMORY, **not_tried}
        outcomes = {self._l1.name: _STORED if put.in_l1 else _IN_OVERFLOW, **put.outcomes}
        return put.met, outcomes
