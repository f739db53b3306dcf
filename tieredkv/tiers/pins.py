"""Pins: what look-ups have found and hold, so that it is still there when they load it.

A pinned name is not deleted, in any tier. Of what L1 holds, a pin is also a user of the entry, so
that it is not evicted; but pins keep at most half of L1, so that puts and loads always find room:
what is pinned beyond that may leave L1, to be loaded again. A tier below may still evict by its own
capacity.

A pin that is not given back lapses after its time to live. Nothing watches the clock: pins that
have lapsed go when the next call comes that could need what they hold (`Pins.drop_lapsed`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tieredkv.pool.arena import Entry
    from tieredkv.tiers.memory import MemoryTier

__all__ = ["Pin", "Pins"]

_log: Final = logging.getLogger(__name__)

_SHARE_OF_L1: Final = 2


class Pin:
    """What one look-up holds.

    Attributes:
        owner: Who holds it, for diagnostics.
        since: When it was taken, by `time.monotonic`.
        until: When it lapses.
        names: The wire names.
        entries: Those of L1 whose memory it keeps.
    """

    __slots__ = ("entries", "names", "owner", "since", "until")

    def __init__(self, owner: str, ttl_s: float) -> None:
        self.owner: str = owner
        self.since: float = time.monotonic()
        self.until: float = self.since + ttl_s
        self.names: set[str] = set()
        self.entries: list[Entry] = []

    def status(self) -> dict[str, object]:
        """Return who holds how much, and for how long, ready for JSON."""
        now = time.monotonic()
        return {
            "owner": self.owner,
            "keys": len(self.names),
            "kept_bytes": sum(entry.nbytes for entry in self.entries),
            "age_s": now - self.since,
            "lapses_in_s": self.until - now,
        }


class Pins:
    """The pins of one store, and the deletes that keep new ones away."""

    def __init__(self, l1: MemoryTier) -> None:
        self._l1 = l1
        self._pins: set[Pin] = set()
        self._names: dict[str, int] = {}  # → how many pins
        self._deleting: dict[str, int] = {}  # → how many deletes
        self._kept_bytes = 0
        self._next_lapse = float("inf")

    def __iter__(self) -> Iterator[Pin]:
        return iter(tuple(self._pins))

    def __contains__(self, name: object) -> bool:
        """Say whether a wire name is pinned now; its entry is not to be cleared from L1 either."""
        self.drop_lapsed()
        return name in self._names

    def take(self, owner: str, ttl_s: float, names: Iterable[str]) -> Pin:
        """Pin names, but for those that are being deleted."""
        self.drop_lapsed()
        pin = Pin(owner, ttl_s)
        self._pins.add(pin)
        self._next_lapse = min(self._next_lapse, pin.until)
        for name in names:
            if name not in pin.names and name not in self._deleting:
                pin.names.add(name)
                self._names[name] = self._names.get(name, 0) + 1
                self._keep(pin, name)
        return pin

    def release(self, pin: Pin, names: Collection[str] | None = None) -> None:
        """Give some names of a pin back, or all of it; again does nothing."""
        if pin not in self._pins:
            return
        given_back = set(pin.names if names is None else names)
        for name in given_back & pin.names:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]
        pin.names -= given_back
        entries, pin.entries = pin.entries, []
        for entry in entries:
            if entry.name in pin.names:
                pin.entries.append(entry)
                continue
            self._kept_bytes -= entry.block_bytes
            self._l1.arena.drop(entry)
        if names is None:
            self._pins.remove(pin)

    def drop_lapsed(self) -> None:
        """Give back what was held beyond its time; cheap when called often."""
        if not self._pins or (now := time.monotonic()) < self._next_lapse:
            return
        for pin in [pin for pin in self._pins if pin.until <= now]:
            _log.warning(
                "a look-up of %r has held %d keys for more than %.0f s: they are pinned no longer",
                pin.owner or "somebody",
                len(pin.names),
                pin.until - pin.since,
            )
            self.release(pin)
        self._next_lapse = min((pin.until for pin in self._pins), default=float("inf"))

    @contextmanager
    def kept_away(self, names: Collection[str]) -> Iterator[None]:
        """Let nobody pin these names, which are being deleted."""
        for name in names:
            self._deleting[name] = self._deleting.get(name, 0) + 1
        try:
            yield
        finally:
            for name in names:
                self._deleting[name] -= 1
                if not self._deleting[name]:
                    del self._deleting[name]

    def _keep(self, pin: Pin, name: str) -> None:
        entry = self._l1.peek(name)
        if entry is None:
            return
        if self._kept_bytes + entry.block_bytes > self._l1.arena.capacity_bytes // _SHARE_OF_L1:
            return
        self._kept_bytes += entry.block_bytes
        entry.users += 1
        pin.entries.append(entry)
