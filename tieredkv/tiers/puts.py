"""The write side of a store: a copy in L1 first, then every L2 tier."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tieredkv.config import MiB
from tieredkv.errors import OutOfMemoryError
from tieredkv.outcomes import WriteOutcome
from tieredkv.results import PutStatus

if TYPE_CHECKING:
    from tieredkv.pool.arena import Entry
    from tieredkv.tiers.fences import Generations
    from tieredkv.tiers.inflight import InFlight
    from tieredkv.tiers.memory import MemoryTier
    from tieredkv.tiers.pacing import Pacer
    from tieredkv.tiers.put import Put
    from tieredkv.tiers.writes import Writes

__all__ = ["NewValue", "PutOutcomes", "Puts", "Reservation"]

_SUBMIT_BYTES: Final = 16 * MiB

_STORED: Final = WriteOutcome(PutStatus.STORED)
_IN_OVERFLOW: Final = WriteOutcome(PutStatus.SKIPPED, "no_memory")
_OVER_QUOTA: Final = WriteOutcome(PutStatus.REJECTED, "quota")
_NOT_TRIED: Final = WriteOutcome(PutStatus.SKIPPED, "no_memory")


class NewValue(NamedTuple):
    """A value to put: its wire name, its bytes, and when it expires (Unix ms, 0 for never)."""

    name: str
    source: memoryview
    expires_ms: int


PutOutcomes: TypeAlias = tuple[bool, dict[str, WriteOutcome]]
"""How a put ended: whether the policy's requirement is met, and each tier's outcome."""


class Reservation:
    """Memory that the caller fills.

    Attributes:
        view: Writable bytes of the value, format ``"B"``; what is in them at first is undefined.
        outcomes: How the put ended; None before.
    """

    __slots__ = ("outcomes", "view")

    def __init__(self, view: memoryview) -> None:
        self.view: memoryview = view
        self.outcomes: PutOutcomes | None = None


class Puts:
    """Puts values of one store."""

    def __init__(
        self,
        l1: MemoryTier,
        writes: Writes,
        inflight: InFlight,
        pacer: Pacer,
        generations: Generations,
    ) -> None:
        self._l1 = l1
        self._writes = writes
        self._inflight = inflight
        self._pacer = pacer
        self._generations = generations

    async def put(self, name: str, source: memoryview, expires_ms: int) -> PutOutcomes:
        """Do as `put_many` for one value, without the machinery of a batch where L1 is alone."""
        if self._writes.writers:
            return (await self.put_many((NewValue(name, source, expires_ms),)))[0]
        l1 = self._l1
        entry = l1.reserve(name, source.nbytes, waits=True)
        if entry is None:
            entry = await l1.reserve_soon(name, source.nbytes)
            if entry is None:
                return self._outcome(l1.why_not(name, source.nbytes))
        await self._fill(entry, source)
        if self._writes.writers:  # since a moment ago
            return await self._finish(entry, expires_ms)
        outcome = self._admit(entry, expires_ms)
        self._inflight.outdate(name)
        l1.arena.drop(entry)
        return outcome is _STORED, {l1.name: outcome}

    async def put_many(self, values: Sequence[NewValue]) -> list[PutOutcomes]:
        """Store values, the last first; one outcome a value, in the order given.

        The values of a request form a chain, of which the head is worth most: when it comes in
        last, the tail makes room for it. A caller that is cancelled leaves what has begun to run
        its course.
        """
        backwards = len({value.name for value in values}) == len(values)  # else the last put wins
        puts: list[Put | str] = []  # or why there is none
        ready: list[Put] = []
        ready_bytes = 0
        try:
            for value in reversed(values) if backwards else values:
                nbytes = value.source.nbytes
                if ready_bytes >= _SUBMIT_BYTES:
                    await self._submit(ready)
                    ready_bytes = 0
                entry = self._l1.reserve(value.name, nbytes, waits=True)
                if entry is None:
                    await self._submit(ready)
                    ready_bytes = 0
                    entry = await self._l1.reserve_soon(value.name, nbytes)
                if entry is None:
                    puts.append(self._l1.why_not(value.name, nbytes))
                    continue
                await self._fill(entry, value.source)
                put = self._commit(entry, value.expires_ms)
                ready.append(put)
                ready_bytes += nbytes
                puts.append(put)
                if not self._writes.writers:  # nobody is going to read it
                    await self._submit(ready)
            await self._submit(ready)
        finally:
            for put in ready:  # not submitted: the caller was cancelled
                self._writes.withdraw(put)
        for waiting in puts:
            if not isinstance(waiting, str):
                await waiting.wait()
        if backwards:
            puts.reverse()
        return [self._outcome(put) for put in puts]

    @asynccontextmanager
    async def reserve(self, name: str, nbytes: int) -> AsyncIterator[Reservation]:
        """Hand out memory for a value; it is put when the block is left without an exception.

        Raises:
            OutOfMemoryError: There is none, also after a second of waiting.
        """
        entry = await self._l1.reserve_soon(name, nbytes)
        if entry is None:
            raise OutOfMemoryError(nbytes)
        reservation = Reservation(self._l1.arena.writable(entry)[:nbytes])
        try:
            yield reservation
        except BaseException:
            self._l1.arena.drop(entry)
            raise
        reservation.outcomes = await self._finish(entry, 0)

    async def _fill(self, entry: Entry, source: memoryview) -> None:
        """Copy a value into an entry, of which the caller remains a user if that works."""
        try:
            target = self._l1.arena.fresh(entry)
            if not self._pacer.copied(target, source):
                await self._pacer.copy(target, source)
        except BaseException:
            self._l1.arena.drop(entry)
            raise

    async def _finish(self, entry: Entry, expires_ms: int) -> PutOutcomes:
        """Put a filled entry, of which the caller is a user no more."""
        put = self._commit(entry, expires_ms)
        ready = [put]
        try:
            await self._submit(ready)
        finally:
            for left in ready:
                self._writes.withdraw(left)
        await put.wait()
        return self._outcome(put)

    def _commit(self, entry: Entry, expires_ms: int) -> Put:
        """Make a filled entry the value of its name, for all tiers that there are now."""
        put = self._writes.put(entry)
        put.l1 = self._admit(entry, expires_ms)
        put.in_l1 = put.l1 is _STORED
        self._writes.commit(put)
        self._inflight.outdate(entry.name)
        return put

    def _admit(self, entry: Entry, expires_ms: int) -> WriteOutcome:
        """Number a filled entry and make it resident, or say why it cannot be."""
        entry.generation = self._generations.draw()
        entry.expires_ms = expires_ms
        if self._l1.admit(entry):
            return _STORED
        over_quota = self._l1.why_not(entry.name, entry.nbytes) == "quota"
        self._l1.discard(entry.name, "replaced")  # what L1 has is older
        return _OVER_QUOTA if over_quota else _IN_OVERFLOW

    async def _submit(self, ready: list[Put]) -> None:
        """Hand puts to the writers, who use the entries from now on, and empty the list."""
        await self._writes.submit(ready)
        for put in ready:
            self._l1.arena.drop(put.entry)
        ready.clear()

    def _outcome(self, put: Put | str) -> PutOutcomes:
        if isinstance(put, str):
            not_tried = {writer.tier.name: _NOT_TRIED for writer in self._writes.writers}
            no_memory = WriteOutcome(PutStatus.REJECTED, put)
            return False, {self._l1.name: no_memory, **not_tried}
        return put.met, {self._l1.name: put.l1, **put.outcomes}
