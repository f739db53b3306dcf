"""Least recently used."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from tieredkv.pool.eviction.base import EvictionPolicy

__all__ = ["LRU"]


class LRU(EvictionPolicy):
    """Evicts what has gone unread the longest."""

    def __init__(self) -> None:
        self._order: OrderedDict[str, None] = OrderedDict()  # least recent first

    def insert(self, name: str) -> None:
        """See `EvictionPolicy.insert`."""
        self._order[name] = None
        self._order.move_to_end(name)

    def access(self, name: str) -> None:
        """See `EvictionPolicy.access`."""
        if name in self._order:
            self._order.move_to_end(name)

    def remove(self, name: str, *, evicted: bool) -> None:
        """See `EvictionPolicy.remove`."""
        self._order.pop(name, None)

    def victims(self) -> Iterator[str]:
        """See `EvictionPolicy.victims`."""
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)
