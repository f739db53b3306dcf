"""No eviction."""

from __future__ import annotations

from tieredkv.keys import Tenant
from tieredkv.pool.eviction.base import EvictionPolicy

__all__ = ["NoEviction"]


class NoEviction(EvictionPolicy):
    """Notes nothing, holds no name, evicts none: values stay until they are deleted or expire."""

    def insert(self, name: str) -> None:
        """See `EvictionPolicy.insert`; nothing is noted."""

    def access(self, name: str) -> None:
        """See `EvictionPolicy.access`; nothing is noted."""

    def refresh(self, name: str) -> None:
        """See `EvictionPolicy.refresh`; nothing is noted."""

    def remove(self, name: str, *, evicted: bool) -> None:
        """See `EvictionPolicy.remove`; nothing is noted."""

    def park(self, name: str) -> None:
        """See `EvictionPolicy.park`; nothing is noted."""

    def unpark(self, name: str) -> None:
        """See `EvictionPolicy.unpark`; nothing is noted."""

    def __len__(self) -> int:
        return 0

    def _next(self, tenant: Tenant) -> str | None:
        return None
