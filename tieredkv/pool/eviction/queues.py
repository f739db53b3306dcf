"""What the policies that are made of queues have in common."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from tieredkv.pool.eviction.base import EvictionPolicy

__all__ = ["Queue", "QueuePolicy"]

Queue: TypeAlias = OrderedDict[str, int]
"""Names with a number each; what leaves first is at the front."""


class QueuePolicy(EvictionPolicy):
    """A policy that keeps each held name in one of its queues, or parked.

    Parked names do not count for the length of a queue, so a policy that balances its queues does
    so over what it can evict.
    """

    def __init__(self, num_queues: int) -> None:
        self._queues: tuple[Queue, ...] = tuple(OrderedDict() for _ in range(num_queues))
        self._parked: dict[str, tuple[Queue, int]] = {}

    def park(self, name: str) -> None:
        """See `EvictionPolicy.park`."""
        for queue in self._queues:
            if name in queue:
                self._parked[name] = (queue, queue.pop(name))
                return

    def unpark(self, name: str) -> None:
        """See `EvictionPolicy.unpark`."""
        place = self._parked.pop(name, None)
        if place is not None:
            queue, number = place
            queue[name] = number
            queue.move_to_end(name, last=False)

    def __len__(self) -> int:
        return sum(map(len, self._queues)) + len(self._parked)
