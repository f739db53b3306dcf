"""What the eviction policy hears of L1's traffic, and when."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tieredkv.keys import ALL, Tenant

if TYPE_CHECKING:
    from tieredkv.pool.arena import Entry
    from tieredkv.pool.eviction import EvictionPolicy

__all__ = ["Order"]

_MAX_TOUCHED: Final = 1024
_MAX_NOTED_NAMES: Final = 65_536


class _Request:
    """A request of which some values were missing: its names, head first, and how many are."""

    __slots__ = ("missing", "names")

    def __init__(self, names: Sequence[str], missing: int) -> None:
        self.names = names
        self.missing = missing


class Order:
    """An eviction policy, and what it has yet to hear.

    *Reads are told late.* A hit marks its entry and no more; the policy hears of all marked ones
    before the next insert or eviction, or when there are 1,024. So a hit costs next to nothing, and
    reads of a value that follow each other closely count as one (the correlated references of
    E. O'Neil, P. O'Neil, G. Weikum, "The LRU-K page replacement algorithm", SIGMOD 1993).

    *Requests are kept whole.* What a request lacked is loaded or computed, and comes in later, in
    any order. When the last of it is there, the whole request is refreshed, so that it leaves from
    its tail. See `tieredkv.pool.eviction.base`.

    *Entries in use are parked* when an eviction meets them, until their last use ends.

    Attributes:
        touched: Marked entries (`Entry.touched`), in the order in which the policy is to hear of
            them.
    """

    def __init__(self, policy: EvictionPolicy) -> None:
        self.touched: list[Entry] = []
        self._policy = policy
        self._awaited: dict[str, _Request] = {}
        self._requests: deque[_Request] = deque()
        self._noted_names = 0

    def tell(self, *, at_least: int = 1) -> None:
        """Tell the policy of the marked entries, if there are so many."""
        if len(self.touched) < at_least:
            return
        for entry in self.touched:
            entry.touched = False
            self._policy.access(entry.name)
        self.touched.clear()

    def tell_some(self) -> None:
        """Tell the policy before too much has piled up."""
        self.tell(at_least=_MAX_TOUCHED)

    def expect(self, names: Sequence[str], missing: Collection[str]) -> None:
        """Note a request, its names head first, of which some are not there yet.

        The latest requests are remembered, up to 65,536 names.
        """
        if not 2 <= len(names) <= _MAX_NOTED_NAMES:
            return
        request = _Request(names, len(missing))
        self._awaited.update(dict.fromkeys(missing, request))
        self._requests.append(request)
        self._noted_names += len(names)
        while self._noted_names > _MAX_NOTED_NAMES:
            oldest = self._requests.popleft()
            for name in oldest.names:
                if self._awaited.get(name) is oldest:
                    del self._awaited[name]
            self._noted_names -= len(oldest.names)

    def insert(self, name: str) -> None:
        """Note that a name has come in, after room was made for it."""
        if self.touched:
            self.tell()
        self._policy.insert(name)
        request = self._awaited.pop(name, None)
        if request is not None:
            request.missing -= 1
            if not request.missing:
                self._policy.refresh_chain(request.names)

    def remove(self, entry: Entry, *, evicted: bool) -> None:
        """Note that an entry has left."""
        entry.parked = False
        self._policy.remove(entry.name, evicted=evicted)

    def victims(self, tenant: Tenant = ALL) -> Iterator[str]:
        """Iterate as `EvictionPolicy.victims` does, over all that was told and marked."""
        self.tell()
        return self._policy.victims(tenant)

    def park(self, entry: Entry) -> None:
        """Let no eviction meet an entry until its last use ends."""
        entry.parked = True
        self._policy.park(entry.name)

    def unpark(self, entry: Entry) -> None:
        """Let an entry be evicted again: nobody uses it any more."""
        entry.parked = False
        self._policy.unpark(entry.name)
