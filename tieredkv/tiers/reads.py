"""The read side of a store: L1 first, then one load a key through the chain, then leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tieredkv.errors import SizeMismatchError
from tieredkv.pool.lease import GetResult, MemoryObject
from tieredkv.results import GetStatus
from tieredkv.tiers.chain import Wanted
from tieredkv.tiers.inflight import InFlight, Load
from tieredkv.tiers.pacing import BUDGET_BYTES, HIT_BYTES, Pacer

if TYPE_CHECKING:
    from tieredkv.keys import Key
    from tieredkv.pool.arena import Entry
    from tieredkv.tasks import Detached
    from tieredkv.tiers.chain import Chain
    from tieredkv.tiers.memory import MemoryTier

__all__ = ["Reads"]


class Reads:
    """Gets values of one store.

    Attributes:
        inflight: The loads that run.
    """

    def __init__(
        self, l1: MemoryTier, chain: Chain, inflight: InFlight, detached: Detached, pacer: Pacer
    ) -> None:
        self.inflight = inflight
        self._l1 = l1
        self._chain = chain
        self._detached = detached
        self._pacer = pacer

    def hit(self, key: Key, name: str, size: int | None) -> MemoryObject | None:
        """Return a lease if L1 holds the value, in the size asked for."""
        entry = self._l1.find(name)
        if entry is None or (size is not None and size != entry.nbytes):
            return None
        self._pacer.spent += HIT_BYTES
        return self._l1.lease(entry, key)

    def from_l1(self, key: Key, name: str, size: int | None) -> GetResult | None:
        """Return the result that L1 alone gives, or None if it does not hold the name."""
        lease = self.hit(key, name, size)
        if lease is not None:
            return GetResult(key, GetStatus.HIT, lease, lease.tier)
        entry = self._l1.peek(name)
        if entry is not None and size is not None:
            return self._mismatch(key, entry, size)
        self._l1.misses += 1
        return None

    async def get_many(
        self, keys: Sequence[Key], names: Sequence[str], sizes: Sequence[int | None]
    ) -> list[GetResult]:
        """Return one result a key, in order; a caller that is cancelled keeps no lease."""
        results: list[GetResult | None] = []
        joined: list[Load] = []
        try:
            for key, name, size in zip(keys, names, sizes, strict=True):
                if self._pacer.spent >= BUDGET_BYTES:
                    await self._pacer.pause()
                results.append(self.from_l1(key, name, size))
            # From here to the start of the loads nothing waits: others may join them already.
            fresh: list[Wanted] = []
            for name, size, result in zip(names, sizes, results, strict=True):
                if result is None:
                    load, is_new = self.inflight.join(name, size)
                    joined.append(load)
                    if is_new:
                        fresh.append(Wanted(load))
            if fresh:
                self._detached.spawn(self._chain.load, fresh)
            for load in joined:
                await load.wait()
        except BaseException:
            for result in results:
                if result is not None and result.object is not None:
                    result.object.release()
            for load in joined:
                load.leave(self._l1.arena)
            raise
        loads = iter(joined)
        return [
            result or self._loaded(key, next(loads), size)
            for key, result, size in zip(keys, results, sizes, strict=True)
        ]

    async def get_into_many(
        self, keys: Sequence[Key], names: Sequence[str], outs: Sequence[memoryview]
    ) -> list[GetResult]:
        """Fill the caller's buffers; one result a key, in order, none with a lease.

        Values that are not in L1 do not enter it: the caller has them. Cancellation takes effect
        when no worker touches the buffers any more.
        """
        results: list[GetResult | None] = []
        direct: list[Wanted] = []
        for key, name, out in zip(keys, names, outs, strict=True):
            result = self.from_l1(key, name, out.nbytes)
            if result is None:
                load = Load(name, out.nbytes)
                load.current = False
                direct.append(Wanted(load, out))
            elif result.object is not None:
                with result.object as lease:
                    await self._pacer.copy(out, lease.view)
                result.object = None
            results.append(result)
        await self._chain.load(direct)
        loads = iter(direct)
        return [
            result or self._result(key, next(loads).load)
            for key, result in zip(keys, results, strict=True)
        ]

    def _loaded(self, key: Key, load: Load, size: int | None) -> GetResult:
        """Turn what joining a load brought into a result."""
        entry = load.entry
        if entry is None:
            return self._result(key, load)
        if size is not None and size != entry.nbytes:
            result = self._mismatch(key, entry, size)
            self._l1.arena.drop(entry)
            return result
        tier = load.tier or self._l1.name
        lease = MemoryObject(entry, self._l1.arena, self._l1.leases, key, tier)
        return GetResult(key, GetStatus.HIT, lease, tier)

    @staticmethod
    def _result(key: Key, load: Load) -> GetResult:
        return GetResult(key, load.status, None, load.tier, load.error)

    def _mismatch(self, key: Key, entry: Entry, size: int) -> GetResult:
        error = SizeMismatchError(entry.nbytes, size)
        return GetResult(key, GetStatus.REJECTED, None, self._l1.name, error)
