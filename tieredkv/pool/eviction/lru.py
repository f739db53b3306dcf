"""Least recently used."""

from __future__ import annotations

from tieredkv.keys import Tenant
from tieredkv.pool.eviction.queues import QueuePolicy

__all__ = ["LRU"]


class LRU(QueuePolicy):
    """Evicts what has gone unread the longest."""

    def __init__(self) -> None:
        super().__init__(1)
        (self._order,) = self._queues

    @property
    def num_evictable(self) -> int:
        """Number of names held that are not parked."""
        return len(self._order)

    def oldest(self) -> str | None:
        """Return the name unread for longest of those that are not parked, or None."""
        return next(iter(self._order), None)

    def insert(self, name: str) -> None:
        """See `EvictionPolicy.insert`."""
        self._parked.pop(name, None)
        self._order[name] = 0
        self._order.move_to_end(name)

    def access(self, name: str) -> None:
        """See `EvictionPolicy.access`."""
        try:
            self._order.move_to_end(name)
        except KeyError:
            if name in self._parked:
                self.insert(name)

    def refresh(self, name: str) -> None:
        """See `EvictionPolicy.refresh`."""
        if name in self._order:
            self._order.move_to_end(name)

    def remove(self, name: str, *, evicted: bool) -> None:
        """See `EvictionPolicy.remove`."""
        self._order.pop(name, None)
        self._parked.pop(name, None)

    def _next(self, tenant: Tenant) -> str | None:
        return self.oldest()
