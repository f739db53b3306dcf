"""L1: the index over the arena, and who leaves when it is full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from tieredkv.frames import now_ms
from tieredkv.pool.arena import Arena, Entry
from tieredkv.pool.eviction import LRU, EvictionPolicy
from tieredkv.pool.lease import LeaseBook, MemoryObject

if TYPE_CHECKING:
    from tieredkv.config import L1Config
    from tieredkv.keys import Key
    from tieredkv.observe import Listeners

__all__ = ["MemoryTier"]

_MEMORY_WAIT_S: Final = 1.0
_MEMORY_POLL_S: Final = 0.005
_SETTLE_AFTER: Final = 64  # leases released since
_FRAGMENTED_AFTER: Final = 2  # times the request, evicted in vain


class MemoryTier:
    """The first tier. Everything on the event loop, nothing waits but `reserve_soon`.

    An entry is *resident* while the index is one of its users. It can be evicted while the index is
    its only user: leases, and writes and loads in flight, keep it.

    Attributes:
        name: ``"l1"``.
        arena: The memory.
        leases: The leases that are out.
        hits: Reads answered.
        misses: Reads not answered.
        hit_bytes: Payload bytes of the hits.
        evicted: Values evicted.
    """

    name: Final = "l1"

    def __init__(self, config: L1Config, listeners: Listeners, *, room_bytes: int) -> None:
        self.arena: Arena = Arena(
            config.capacity,
            alignment_bytes=config.alignment_bytes,
            overflow_bytes=config.overflow,
            room_bytes=room_bytes,
        )
        self.leases: LeaseBook = LeaseBook(config.lease_warn_s)
        self.hits: int = 0
        self.misses: int = 0
        self.hit_bytes: int = 0
        self.evicted: int = 0
        self._index: dict[str, Entry] = {}
        self._policy: EvictionPolicy = LRU()
        self._touch = self._policy.access
        self._listeners = listeners
        self._trims = config.eviction_ratio > 0
        self._high_bytes = int(config.trigger_watermark * self.arena.capacity_bytes)
        self._low_bytes = int(self._high_bytes * (1 - config.eviction_ratio))
        self._trimming = False

    def __len__(self) -> int:
        return len(self._index)

    @property
    def largest_bytes(self) -> int:
        """Largest payload that fits at all, in the pool or in the overflow."""
        largest = max(self.arena.capacity_bytes, self.arena.overflow_bytes)
        return largest - self.arena.room_bytes

    def peek(self, name: str) -> Entry | None:
        """Return a resident value's entry, without counting it as accessed."""
        entry = self._index.get(name)
        if entry is not None and entry.expires_ms and entry.expires_ms <= now_ms():
            self.discard(name)
            return None
        return entry

    def find(self, name: str) -> Entry | None:
        """Return a resident value's entry and count the hit; misses are the caller's to count."""
        entry = self._index.get(name)
        if entry is None or (entry.expires_ms and self.peek(name) is None):
            return None
        self._touch(name)
        self.hits += 1
        self.hit_bytes += entry.nbytes
        if self._listeners.registered:
            entry.users += 1  # a listener may delete it
            self._listeners.emit("accessed", self.name, (name,), (entry.nbytes,))
            self.arena.drop(entry)
            return self._index.get(name)
        return entry

    def lease(self, entry: Entry, key: Key) -> MemoryObject:
        """Return a new lease of a resident entry."""
        entry.users += 1
        if len(self.arena.dropped) > _SETTLE_AFTER:
            self.settle()
        return MemoryObject(entry, self.arena, self.leases, key, self.name)

    def settle(self) -> None:
        """Take back what readers have let go of, and warn of those that do not."""
        self.arena.drain()
        self.leases.look()

    def reserve(self, name: str, nbytes: int) -> Entry | None:
        """Return memory for a value, evicting for it, or None; its one user is the caller.

        What the pool cannot take goes to the overflow; such an entry cannot be admitted.
        """
        self.leases.look()
        entry = self.arena.allocate(name, nbytes)
        if entry is not None:
            return entry
        needed = self.arena.block_bytes(nbytes)
        evicted_bytes = 0
        # Beyond twice the request with enough bytes free, the rest is fragmentation.
        while needed <= self.arena.capacity_bytes and not (
            evicted_bytes >= _FRAGMENTED_AFTER * needed and self._free_bytes >= needed
        ):
            freed = self._evict(max(needed - self._free_bytes, 1))
            if not freed:
                break
            evicted_bytes += freed
            entry = self.arena.allocate(name, nbytes)
            if entry is not None:
                return entry
        return self.arena.allocate_overflow(name, nbytes)

    async def reserve_soon(self, name: str, nbytes: int) -> Entry | None:
        """Do as `reserve`, waiting up to a second for leases to be released."""
        entry = self.reserve(name, nbytes)
        if entry is None:
            with anyio.move_on_after(_MEMORY_WAIT_S):
                while entry is None:
                    # Memory comes back from the garbage collector and from other threads, too.
                    await anyio.sleep(_MEMORY_POLL_S)
                    entry = self.reserve(name, nbytes)
        return entry

    def admit(self, entry: Entry) -> bool:
        """Make a filled entry resident, in place of what its name held; False for overflow ones.

        The caller remains a user of the entry.
        """
        if not isinstance(entry.place, int):
            return False
        replaced = self._index.get(entry.name)
        self._index[entry.name] = entry
        entry.users += 1
        self._policy.insert(entry.name)
        if replaced is not None:
            self.arena.drop(replaced)
        self._trim(self.arena.block_bytes(entry.nbytes))
        self._listeners.emit("stored", self.name, (entry.name,), (entry.nbytes,))
        return True

    def discard(self, name: str) -> bool:
        """Remove a value from the index; its readers keep their bytes. False if there was none."""
        entry = self._index.pop(name, None)
        if entry is None:
            return False
        self._policy.remove(name, evicted=False)
        nbytes = entry.nbytes
        self.arena.drop(entry)
        self._listeners.emit("deleted", self.name, (name,), (nbytes,))
        return True

    def names(self) -> list[str]:
        """Return the wire names of all resident values."""
        return list(self._index)

    def clear(self) -> None:
        """Remove all values."""
        for name in self.names():
            self.discard(name)

    @property
    def _free_bytes(self) -> int:
        return self.arena.capacity_bytes - self.arena.used_bytes

    def _trim(self, admitted_bytes: int) -> None:
        """Above the high watermark evict twice what came in, until below the low one.

        Spread over the puts so that none of them pays for a whole pass.
        """
        occupied = self.arena.used_bytes - self.arena.held_bytes
        if occupied > self._high_bytes:
            self._trimming = True
        if self._trimming and self._trims:
            self._trimming = occupied > self._low_bytes and bool(self._evict(2 * admitted_bytes))

    def _evict(self, wanted_bytes: int) -> int:
        """Evict until at least this much is given up or nothing is left; return how much was."""
        victims: list[Entry] = []
        given_up = 0
        for name in self._policy.victims():
            entry = self._index[name]
            if entry.users == 1:
                victims.append(entry)
                given_up += self.arena.block_bytes(entry.nbytes)
                if given_up >= wanted_bytes:
                    break
        for entry in victims:
            del self._index[entry.name]
            self._policy.remove(entry.name, evicted=True)
            self.arena.drop(entry)
        self.evicted += len(victims)
        if self._listeners.registered:
            self._listeners.emit(
                "evicted", self.name, [e.name for e in victims], [e.nbytes for e in victims]
            )
        return given_up
