"""Fences: what keeps a write that comes late from bringing old bytes back.

A write or delete that was given up may still reach its tier, after later ones that were
acknowledged; and a tier that did not take a put goes on holding what the key had before. So each
tier has a fence for such a key: the lowest generation that a load from there may bring.

======================================  =========================================================
the last put or delete of the key       the fence
======================================  =========================================================
ended UNKNOWN                           stands at its generation for `fence_s`
was carried out while one stands        is raised to its generation, and ends when it would have
was not carried out (full, down, …)     stands at its generation until a later one is carried
                                        out; the first kind becomes this one when its time is over
======================================  =========================================================

Where values do not tell their generation a fence shuts the tier for its key; there both kinds end
after `fence_s`.

Both kinds are bounded in number. Of those that guard against late writes the oldest becomes a floor
under the whole tier for the rest of its time; of the others the oldest is forgotten.

Not promised: that old bytes stay away when a write lands after `fence_s`, or after this process has
ended, or when the value comes from another process.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from tieredkv.results import GetStatus

__all__ = ["Fences", "Generations"]

_MOST_FENCES: Final = 65_536


class Generations:
    """The numbers of a store's writes and deletes.

    Each is higher than the one before, and than those of a process that ended earlier: they follow
    the clock, in microseconds, but never go back with it.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def draw(self) -> int:
        """Return the next number."""
        now_us = time.time_ns() // 1000
        self._last = now_us if now_us > self._last else self._last + 1
        return self._last


class _Fence(NamedTuple):
    generation: int
    until: float
    holds: GetStatus  # what the tier holds for the key, as far as it can be known
    nbytes: int = 0  # with HIT, the size of that


class Fences:
    """The fences of one tier, by wire name."""

    def __init__(
        self,
        fence_s: float = 600.0,
        *,
        framed: bool = True,
        most: int = _MOST_FENCES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up.

        Args:
            fence_s: Seconds for which a fence against a late write stands.
            framed: Whether values tell their generation.
            most: How many fences of either kind there may be.
            clock: Seconds that never go back.
        """
        self._fence_s = fence_s
        self._framed = framed
        self._most = most
        self._clock = clock
        self._late: OrderedDict[str, _Fence] = OrderedDict()  # the next to end is first
        self._missed: OrderedDict[str, _Fence] = OrderedDict()  # so here
        self._floor = 0
        self._floor_until = 0.0

    def __len__(self) -> int:
        self._drop_ended()
        return len(self._late) + len(self._missed)

    def unknown(self, name: str, generation: int, holds: GetStatus) -> None:
        """Note a put (`holds` is UNKNOWN) or delete (MISS) that may still take effect."""
        fence = _Fence(generation, self._clock() + self._fence_s, holds)
        standing = self._late.pop(name, None)
        if standing is not None and standing.generation > generation:
            fence = standing._replace(until=fence.until)
        self._late[name] = fence
        if len(self._late) > self._most:
            _, oldest = self._late.popitem(last=False)
            self._drop_ended()
            self._floor = max(self._floor, oldest.generation)
            self._floor_until = max(self._floor_until, oldest.until)

    def missed(self, name: str, generation: int) -> None:
        """Note a put or delete that the tier has not carried out, and never will."""
        self._raise(name, generation, GetStatus.MISS)
        standing = self._missed.pop(name, None)
        if standing is not None:
            generation = max(generation, standing.generation)
        until = math.inf if self._framed else self._clock() + self._fence_s
        self._missed[name] = _Fence(generation, until, GetStatus.MISS)
        if len(self._missed) > self._most:
            self._missed.popitem(last=False)

    def carried_out(self, name: str, generation: int, holds: GetStatus, nbytes: int = 0) -> None:
        """Note an acknowledged put of so many bytes (`holds` is HIT) or delete (MISS)."""
        self._raise(name, generation, holds, nbytes)
        standing = self._missed.get(name)
        if standing is not None and standing.generation <= generation:
            del self._missed[name]

    def floor(self, name: str) -> int:
        """Return the lowest generation that a load of this name may bring; 0 for any."""
        if not self._late and not self._missed and not self._floor:
            return 0
        self._drop_ended()
        own = (fences[name].generation for fences in (self._late, self._missed) if name in fences)
        return max(self._floor, *own, 0)

    def holds(self, name: str, nbytes: int) -> GetStatus | None:
        """Return what it is worth that a tier has so many bytes; None: there is no fence.

        HIT: the latest value, or one that came late and has its size, which only reading can tell.
        UNKNOWN: that, or an older one. MISS: nothing of use.
        """
        self._drop_ended()
        if name in self._missed:
            return GetStatus.MISS
        late = self._late.get(name)
        if late is None:
            return None
        is_other = late.holds is GetStatus.HIT and late.nbytes != nbytes
        return GetStatus.MISS if is_other else late.holds

    def _raise(self, name: str, generation: int, holds: GetStatus, nbytes: int = 0) -> None:
        standing = self._late.get(name)
        if standing is not None and standing.generation <= generation:
            self._late[name] = _Fence(generation, standing.until, holds, nbytes)  # keeps its place

    def _drop_ended(self) -> None:
        now = self._clock()
        while self._late and next(iter(self._late.values())).until <= now:
            name, ended = self._late.popitem(last=False)
            if self._framed and ended.holds is not GetStatus.HIT:
                self.missed(name, ended.generation)
        while self._missed and next(iter(self._missed.values())).until <= now:
            self._missed.popitem(last=False)
        if self._floor and self._floor_until <= now:
            self._floor = 0
