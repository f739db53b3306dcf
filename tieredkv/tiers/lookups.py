"""Questions that are answered without reading values: what is there, and under which names."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from tieredkv.errors import KeyFormatError, TierUnavailableError
from tieredkv.frames import now_ms
from tieredkv.keys import ALL, Key, Tenant, key_of, tenant_of
from tieredkv.results import GetStatus, StatResult, ValueInfo, merge_reads

if TYPE_CHECKING:
    from tieredkv.pool.arena import Entry
    from tieredkv.tiers.framing import Framing
    from tieredkv.tiers.memory import MemoryTier
    from tieredkv.tiers.tier import Tier

__all__ = ["Lookups"]

_UNANSWERED: Final = "the tier has not answered to the last put of this key, so this may be older"


class Lookups:
    """Looks names up in all tiers of one store."""

    def __init__(
        self,
        l1: MemoryTier,
        tiers: Sequence[Tier],
        framing: Framing,
        pending: Callable[[str], Entry | None],
    ) -> None:
        """Compose; `pending` returns a name's value if some tier may hold an older one."""
        self._l1 = l1
        self._pending = pending
        self._tiers = tiers
        self._framing = framing

    async def stat_many(self, keys: Sequence[Key], names: Sequence[str]) -> list[StatResult]:
        """Return one result a key, in order; each tier is asked for what those above have not.

        An L2 tier answers for what is stored under the name, which it does not read.
        """
        results: dict[str, StatResult] = {}
        settled: set[str] = set()
        for key, name in zip(keys, names, strict=True):
            results[name] = StatResult(key, GetStatus.MISS)
            entry = self._l1.peek(name) or self._pending(name)
            if entry is None:
                continue
            settled.add(name)
            if not entry.expires_ms or entry.expires_ms > now_ms():
                info = ValueInfo(entry.nbytes, self._l1.name)
                results[name] = StatResult(key, GetStatus.HIT, info, self._l1.name)
        for tier in tuple(self._tiers):
            if tier.is_draining:
                continue
            left = [name for name in results if name not in settled]
            outcomes = await tier.stat_many(left)
            for name, outcome in zip(left, outcomes, strict=True):
                status, nbytes = outcome.status, None
                if status is GetStatus.HIT:
                    nbytes = self._framing.payload_bytes(outcome.stored_bytes)
                    status = GetStatus.MISS if nbytes is None else self._held(tier, name, nbytes)
                before = results[name]
                if merge_reads((before.status, status)) is not before.status:
                    error = outcome.error
                    found = None
                    if status is GetStatus.HIT:
                        found = ValueInfo(nbytes or 0, tier.name)
                    elif error is None:
                        error = TierUnavailableError(tier.name, "stat", _UNANSWERED)
                    results[name] = StatResult(before.key, status, found, tier.name, error)
                if status is GetStatus.HIT:
                    settled.add(name)
        return [results[name] for name in names]

    async def keys(self, tier: str, prefix: str, tenant: Tenant) -> AsyncGenerator[Key, None]:
        """Iterate over the keys of one tier; names there that are not ours are passed over."""
        async with aclosing(self.names(tier, prefix, tenant)) as names:
            async for name in names:
                yield key_of(name)

    async def names(self, tier: str, prefix: str, tenant: Tenant) -> AsyncGenerator[str, None]:
        """Iterate over the wire names of one tier that are ours.

        Raises:
            TierError: The listing broke off, or the tier has just been removed.
        """
        if tier == self._l1.name:
            for name in self._l1.names():
                if name.startswith(prefix) and tenant in (ALL, tenant_of(name)):
                    yield name
            return
        asked = next((t for t in self._tiers if t.name == tier), None)
        if asked is None:
            raise TierUnavailableError(tier, "list", "it has just been removed")
        async with aclosing(asked.list_names(prefix)) as listing:
            async for stored in listing:
                try:
                    key_of(stored.name)
                except KeyFormatError:
                    continue
                if tenant in (ALL, tenant_of(stored.name)):
                    yield stored.name

    def _held(self, tier: Tier, name: str, nbytes: int) -> GetStatus:
        """Return what it means that a tier has something under a name."""
        held = tier.fences.holds(name, nbytes)
        if held is None:
            return GetStatus.HIT
        return held if self._framing.framed else GetStatus.MISS  # a bare value cannot be told
