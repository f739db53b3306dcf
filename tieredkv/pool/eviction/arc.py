"""ARC: the adaptive replacement cache."""

from __future__ import annotations

from collections import OrderedDict

from tieredkv.keys import Tenant
from tieredkv.pool.eviction.queues import QueuePolicy

__all__ = ["ARC"]


class ARC(QueuePolicy):
    """Balances names read once against names read more often, by which of them it misses more.

    ``t1`` holds names seen once, ``t2`` names seen again, each in order of recency; ``b1`` and
    ``b2`` remember the hashes of names evicted from them, together as many as are held. A name that
    returns while ``b1`` remembers it raises the target length of ``t1``, one in ``b2`` lowers it.

    The target counts entries, never sizes: the variant for entries of unequal size is the subject
    of US patent 7,469,320, listed as active until 2027-02-13.

    The paper's capacity is a number of entries. A tier's is bytes, so here it is what was held when
    something was last evicted, for then the tier was full, or what is held now if that is more. As
    room is made before a name comes in, a return moves the target for the next eviction, not for
    its own.

    Source: Megiddo, Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003.
    """

    def __init__(self) -> None:
        super().__init__(2)
        self._t1, self._t2 = self._queues
        # Hashes take less than names, whose strings would live on. Two names in 2**64 collide.
        self._b1: OrderedDict[int, None] = OrderedDict()
        self._b2: OrderedDict[int, None] = OrderedDict()
        self._held_when_full = 0
        self._target = 0.0

    def insert(self, name: str) -> None:
        """See `EvictionPolicy.insert`."""
        if name in self._t1 or name in self._t2 or name in self._parked:
            self.access(name)
            return
        ghost = hash(name)
        if ghost in self._b1:
            step = max(1.0, len(self._b2) / len(self._b1))
            self._target = min(self._target + step, float(self._capacity()))
            del self._b1[ghost]
            self._t2[name] = 0
        elif ghost in self._b2:
            step = max(1.0, len(self._b1) / len(self._b2))
            self._target = max(self._target - step, 0.0)
            del self._b2[ghost]
            self._t2[name] = 0
        else:
            self._t1[name] = 0
        self._forget()

    def access(self, name: str) -> None:
        """See `EvictionPolicy.access`."""
        if name in self._t2:
            self._t2.move_to_end(name)
        elif self._t1.pop(name, None) is not None or self._parked.pop(name, None) is not None:
            self._t2[name] = 0

    def refresh(self, name: str) -> None:
        """See `EvictionPolicy.refresh`."""
        for queue in self._queues:
            if name in queue:
                queue.move_to_end(name)

    def remove(self, name: str, *, evicted: bool) -> None:
        """See `EvictionPolicy.remove`."""
        self.unpark(name)
        if evicted:
            self._held_when_full = len(self)
        for queue, ghosts in ((self._t1, self._b1), (self._t2, self._b2)):
            if queue.pop(name, None) is not None and evicted:
                ghosts[hash(name)] = None
        self._forget()

    def _next(self, tenant: Tenant) -> str | None:
        if self._t1 and (len(self._t1) > self._target or not self._t2):
            return next(iter(self._t1))
        return next(iter(self._t2), None)

    def _capacity(self) -> int:
        return max(self._held_when_full, len(self))

    def _forget(self) -> None:
        """Keep t1 and b1 within the capacity, and all four lists within twice that."""
        capacity = self._capacity()
        while self._b1 and len(self._t1) + len(self._b1) > capacity:
            self._b1.popitem(last=False)
        while self._b2 and len(self) + len(self._b1) + len(self._b2) > 2 * capacity:
            self._b2.popitem(last=False)
