"""The read side of a store: L1 first, then one load a key through the chain, then leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

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

_PACE: Final = 64  # hits between looks at the pacer
_HIT: Final = GetStatus.HIT  # Python 3.11 takes its time to look a member up


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

    async def get_many(
        self,
        keys: Sequence[Key],
        names: Sequence[str],
        sizes: Sequence[int | None],
        *,
        urgent: bool = True,
    ) -> list[GetResult]:
        """Return one result a key, in order; a caller that is cancelled keeps no lease.

        Loads that are not `urgent` let others overtake them, until an urgent call joins them.
        """
        results: list[GetResult] = []
        joined: list[tuple[int, Load]] = []
        try:
            missing = await self._from_l1(keys, names, sizes, results)
            # From here to the start of the loads nothing waits: others may join them already.
            fresh: list[Wanted] = []
            if missing:
                self._l1.expect(names, dict.fromkeys(names[place] for place in missing))
            for place in missing:
                load, is_new = self.inflight.join(names[place], sizes[place], urgent=urgent)
                joined.append((place, load))
                if is_new:
                    fresh.append(Wanted(load))
            if fresh:
                self._detached.spawn(self._chain.load, fresh)
            for _, load in joined:
                await load.wait()
        except BaseException:
            for result in results:
                if result.object is not None:
                    result.object.release()
            for _, load in joined:
                load.leave(self._l1.arena)
            raise
        for place, load in joined:
            results[place] = self._loaded(keys[place], load, sizes[place])
        return results

    async def _from_l1(
        self,
        keys: Sequence[Key],
        names: Sequence[str],
        sizes: Sequence[int | None],
        results: list[GetResult],
    ) -> list[int]:
        """Append to `results` what L1 says of each key; return the places of what it lacks."""
        self._l1.settle()
        missing: list[int] = []
        hits: list[Entry] = []
        for at in range(0, len(keys), _PACE):
            if self._pacer.spent >= BUDGET_BYTES:
                await self._pacer.pause()
            turn = slice(at, at + _PACE)
            leases = self._l1.lease_many(names[turn], keys[turn], hits)
            self._pacer.spent += len(leases) * HIT_BYTES
            for key, size, lease in zip(keys[turn], sizes[turn], leases, strict=True):
                if lease is None:
                    missing.append(len(results))
                    results.append(GetResult(key, GetStatus.MISS))
                elif size is None or size == lease.nbytes:
                    results.append(GetResult(key, _HIT, lease, "l1"))
                else:
                    lease.release()
                    results.append(self._mismatch(key, lease.nbytes, size))
        self._l1.touch(hits)
        self._l1.misses += len(missing)
        return missing

    async def get_into_many(
        self, keys: Sequence[Key], names: Sequence[str], outs: Sequence[memoryview]
    ) -> list[GetResult]:
        """Fill the caller's buffers; one result a key, in order, none with a lease.

        Values that are not in L1 do not enter it: the caller has them. Cancellation takes effect
        when no worker touches the buffers any more.
        """
        self._l1.settle()
        results: list[GetResult | None] = []
        direct: list[Wanted] = []
        for key, name, out in zip(keys, names, outs, strict=True):
            lease = self._l1.lease(name, key)
            if lease is None:
                self._l1.misses += 1
                load = Load(name, out.nbytes)
                load.current = False
                direct.append(Wanted(load, out))
                results.append(None)
                continue
            with lease:
                if out.nbytes == lease.nbytes:
                    await self._pacer.copy(out, lease.view)
                    results.append(GetResult(key, _HIT, None, "l1"))
                else:
                    results.append(self._mismatch(key, lease.nbytes, out.nbytes))
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
            result = self._mismatch(key, entry.nbytes, size)
            self._l1.arena.drop(entry)
            return result
        tier = load.tier or self._l1.name
        lease = MemoryObject(entry, self._l1.arena, self._l1.leases, key, tier)
        return GetResult(key, GetStatus.HIT, lease, tier)

    @staticmethod
    def _result(key: Key, load: Load) -> GetResult:
        return GetResult(key, load.status, None, load.tier, load.error)

    def _mismatch(self, key: Key, nbytes: int, size: int) -> GetResult:
        error = SizeMismatchError(nbytes, size)
        return GetResult(key, GetStatus.REJECTED, None, self._l1.name, error)
