"""S3-FIFO: three first-in, first-out queues."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from tieredkv.keys import Tenant
from tieredkv.pool.eviction.queues import QueuePolicy

__all__ = ["S3FIFO"]

_SMALL_FRACTION: Final = 0.1
_GHOSTS_PER_NAME: Final = 4
_MAX_READS: Final = 3


class S3FIFO(QueuePolicy):
    """Tries new names in a small queue; keeps those that are read there, or come back soon after.

    A name enters *small*. At its end it moves on to *main* if it was read, else it leaves and its
    hash stays as a *ghost*; a name with a ghost enters main at once. At the end of main a name goes
    round again for each read, three at most.

    The paper sizes small by the capacity, in entries of one size. A tier's capacity is bytes, so
    here the capacity is what is held whenever an eviction is due: then the tier is full. The small
    queue is due from a tenth of that on, and there are at most four ghosts for each name held.

    Reads move nothing, so `refresh` does not, either.

    Source: Yang, Zhang, Qiu, Yue, Vinayak, "FIFO queues are all you need for cache eviction", SOSP
    2023. Departures: one read, not two, moves a name on to main, and there are four ghosts for each
    name held, not one.
    """

    def __init__(self) -> None:
        super().__init__(2)
        self._small, self._main = self._queues  # the number of each name is its reads
        # Hashes take less than names, whose strings would live on. Two names in 2**64 collide.
        self._ghosts: OrderedDict[int, None] = OrderedDict()

    def insert(self, name: str) -> None:
        """See `EvictionPolicy.insert`."""
        if name in self._small or name in self._main or name in self._parked:
            self.access(name)
            return
        ghost = hash(name)
        if ghost in self._ghosts:
            del self._ghosts[ghost]
            self._main[name] = 0
        else:
            self._small[name] = 0

    def access(self, name: str) -> None:
        """See `EvictionPolicy.access`."""
        for queue in (self._main, self._small):
            reads = queue.get(name)
            if reads is not None:
                if reads < _MAX_READS:
                    queue[name] = reads + 1
                return
        if name in self._parked:
            self.unpark(name)
            self.access(name)

    def refresh(self, name: str) -> None:
        """See `EvictionPolicy.refresh`; nothing moves."""

    def remove(self, name: str, *, evicted: bool) -> None:
        """See `EvictionPolicy.remove`."""
        self.unpark(name)
        self._main.pop(name, None)
        if self._small.pop(name, None) is not None and evicted:
            self._ghosts[hash(name)] = None
            limit = _GHOSTS_PER_NAME * (len(self) + 1)
            while len(self._ghosts) > limit:
                self._ghosts.popitem(last=False)

    def _next(self, tenant: Tenant) -> str | None:
        small, main = self._small, self._main
        held = len(self)
        due = max(1, int(_SMALL_FRACTION * held))
        if len(small) >= due or not main:
            while small:
                name, reads = next(iter(small.items()))
                if not reads:
                    return name
                del small[name]
                main[name] = 0
                if len(main) > held - due:
                    break
        while main:
            name, reads = next(iter(main.items()))
            if not reads:
                return name
            main[name] = reads - 1
            main.move_to_end(name)
        return None
