"""Loading into L1 ahead of need.

Plan: look all keys up, keep the leading ones (``"prefix"``) or all that were found (``"full"``),
and of these the first ones that fit into half of L1: a prefetch must push out neither itself nor
what is in use. Then load them, an eighth of L1 at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from tieredkv.pool.lease import GetResults
from tieredkv.results import GetStatus, PrefetchResult, StatResult, prefix_length

if TYPE_CHECKING:
    from tieredkv.keys import Key
    from tieredkv.tiers.lookups import Lookups
    from tieredkv.tiers.memory import MemoryTier
    from tieredkv.tiers.reads import Reads

__all__ = ["Prefetch"]

_SHARE_OF_L1: Final = 2
_WINDOW_SHARE_OF_L1: Final = 8


class Prefetch:
    """Loads values of one store into its L1."""

    def __init__(self, l1: MemoryTier, lookups: Lookups, reads: Reads) -> None:
        self._l1 = l1
        self._lookups = lookups
        self._reads = reads

    async def load(
        self, keys: Sequence[Key], names: Sequence[str], *, prefix_only: bool
    ) -> PrefetchResult:
        """Load what is found; returns one result a key, in order."""
        stats = await self._lookups.stat_many(keys, names)
        leading = prefix_length(stats) if prefix_only else len(stats)
        results: dict[str, StatResult] = {}
        wanted: dict[str, StatResult] = {}
        left_bytes = self._l1.arena.capacity_bytes // _SHARE_OF_L1
        for place, (name, stat) in enumerate(zip(names, stats, strict=True)):
            if name in wanted or stat.info is None or self._l1.peek(name) is not None:
                results.setdefault(name, stat)
                continue
            results[name] = attrs.evolve(stat, status=GetStatus.REJECTED)
            block_bytes = self._l1.arena.block_bytes(stat.info.nbytes)
            if place >= leading:
                continue
            if block_bytes <= left_bytes:
                left_bytes -= block_bytes
                wanted[name] = stat
            else:
                left_bytes = 0  # what follows matters less
        loaded_bytes = 0
        for window in self._windows(wanted):
            loaded_bytes += await self._load(window, wanted, results)
        for name, result in results.items():  # some may have made room for others
            if result.status is GetStatus.HIT and self._l1.peek(name) is None:
                results[name] = attrs.evolve(result, status=GetStatus.REJECTED)
        return PrefetchResult(tuple(results[name] for name in names), loaded_bytes)

    async def _load(
        self, window: Sequence[str], wanted: dict[str, StatResult], results: dict[str, StatResult]
    ) -> int:
        """Load some names and note what came of it; returns the bytes that L1 has gained."""
        loaded_bytes = 0
        keys = [wanted[name].key for name in window]
        loads = self._reads.get_many(keys, window, [None] * len(keys), urgent=False)
        with GetResults(await loads) as got:
            for name, result in zip(window, got, strict=True):
                status = result.status
                if status is GetStatus.HIT:
                    if self._l1.peek(name) is None:  # there was no room
                        continue
                    loaded_bytes += result.object.nbytes if result.object else 0
                results[name] = attrs.evolve(
                    wanted[name],
                    status=status,
                    info=wanted[name].info if status is GetStatus.HIT else None,
                    tier=result.tier,
                    error=result.error,
                )
        return loaded_bytes

    def _windows(self, wanted: dict[str, StatResult]) -> Iterator[list[str]]:
        window: list[str] = []
        window_bytes = 0
        most_bytes = self._l1.arena.capacity_bytes // _WINDOW_SHARE_OF_L1
        for name, stat in wanted.items():
            nbytes = stat.info.nbytes if stat.info else 0
            if window and window_bytes + nbytes > most_bytes:
                yield window
                window, window_bytes = [], 0
            window.append(name)
            window_bytes += nbytes
        if window:
            yield window
