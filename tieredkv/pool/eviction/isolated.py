"""LRU with tenants kept apart."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from tieredkv.keys import ALL, Tenant, tenant_of
from tieredkv.pool.eviction.base import EvictionPolicy
from tieredkv.pool.eviction.lru import LRU

__all__ = ["IsolatedLRU"]


class IsolatedLRU(EvictionPolicy):
    """One LRU for each tenant: a burst of one tenant does not push out the others' names.

    Victims of one tenant are that tenant's least recent names, found without a look at the others'.
    Victims of all come from whichever tenant has most names that can leave, so under pressure
    tenants come to hold equally many. A tenant that holds nothing takes no memory.
    """

    def __init__(self) -> None:
        self._tenants: dict[str, LRU] = {}
        # Tenants by how many names of theirs can leave. A count changes by one at a time, so the
        # largest is known without a search, also among 10,000 tenants.
        self._by_count: dict[int, OrderedDict[str, None]] = {}
        self._largest = 0
        self._held = 0

    def insert(self, name: str) -> None:
        """See `EvictionPolicy.insert`."""
        tenant = tenant_of(name)
        if tenant not in self._tenants:
            self._tenants[tenant] = LRU()
        self._note(tenant, lambda lru: lru.insert(name))

    def access(self, name: str) -> None:
        """See `EvictionPolicy.access`."""
        tenant = tenant_of(name)
        lru = self._tenants.get(tenant)
        if lru is not None:
            evictable = lru.num_evictable
            lru.access(name)
            self._recount(tenant, evictable, lru.num_evictable)

    def refresh(self, name: str) -> None:
        """See `EvictionPolicy.refresh`."""
        lru = self._tenants.get(tenant_of(name))
        if lru is not None:
            lru.refresh(name)

    def remove(self, name: str, *, evicted: bool) -> None:
        """See `EvictionPolicy.remove`."""
        self._note(tenant_of(name), lambda lru: lru.remove(name, evicted=evicted))

    def park(self, name: str) -> None:
        """See `EvictionPolicy.park`."""
        self._note(tenant_of(name), lambda lru: lru.park(name))

    def unpark(self, name: str) -> None:
        """See `EvictionPolicy.unpark`."""
        self._note(tenant_of(name), lambda lru: lru.unpark(name))

    def __len__(self) -> int:
        return self._held

    def _next(self, tenant: Tenant) -> str | None:
        if tenant is ALL:
            if not self._largest:
                return None
            return self._tenants[next(iter(self._by_count[self._largest]))].oldest()
        lru = self._tenants.get(tenant)
        return None if lru is None else lru.oldest()

    def _note(self, tenant: str, change: Callable[[LRU], None]) -> None:
        """Apply a change to a tenant's LRU, if it has one, and count anew."""
        lru = self._tenants.get(tenant)
        if lru is None:
            return
        held, evictable = len(lru), lru.num_evictable
        change(lru)
        self._held += len(lru) - held
        self._recount(tenant, evictable, lru.num_evictable)
        if not lru:
            del self._tenants[tenant]

    def _recount(self, tenant: str, before: int, now: int) -> None:
        if now == before:
            return
        if before:
            tenants = self._by_count[before]
            del tenants[tenant]
            if not tenants:
                del self._by_count[before]
                if before == self._largest:
                    self._largest -= 1  # nobody was in between; this tenant is there or above
        if now:
            self._by_count.setdefault(now, OrderedDict())[tenant] = None
            self._largest = max(self._largest, now)
