"""L1: the index over the arena, and who leaves when it is full."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import anyio

from tieredkv.config import L1_NAME
from tieredkv.frames import now_ms
from tieredkv.keys import ALL, Tenant, tenant_of
from tieredkv.observe import Histogram, Removal
from tieredkv.pool.arena import Arena, Entry
from tieredkv.pool.eviction import make_policy
from tieredkv.pool.lease import LeaseBook, MemoryObject
from tieredkv.tiers.buffers import flat_target
from tieredkv.tiers.capacity import Quotas
from tieredkv.tiers.order import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tieredkv.config import L1Config
    from tieredkv.keys import Key
    from tieredkv.observe import Listeners
    from tieredkv.tiers.spill import Spill

__all__ = ["MemoryTier"]

_MEMORY_WAIT_S: Final = 1.0
_WRITE_WAIT_S: Final = 0.05  # then more is evicted, at last without being written
_MEMORY_POLL_S: Final = 0.005
_TRIMMED_TOGETHER: Final = 16  # times the latest value
_FRAGMENTED_AFTER: Final = 2  # times the request, evicted in vain


class MemoryTier:
    """The first tier. Everything on the event loop, nothing waits but `reserve_soon`.

    An entry is *resident* while the index is one of its users. It can be evicted while the index is
    its only user: leases, and writes and loads in flight, keep it.

    Attributes:
        name: ``"l1"``.
        arena: The memory.
        leases: The leases that are out.
        largest_bytes: Largest payload that fits at all, in the pool or in the overflow.
        hits: Reads answered.
        misses: Reads not answered.
        hit_bytes: Payload bytes of the hits.
        evicted: Values evicted.
        removed: Why values left, and how many.
        residence: Ages of the evicted ones.
        usage_bytes: Memory of values by tenant: of those that are resident, that are being filled,
            and that readers still hold; not of those evicted that are being written.
        quotas: How much of it each tenant may have.
        outlet: Where evicted values go; None: nowhere.
        watch: Called with the entry of each hit; None: nobody counts them.
    """

    name: Final = L1_NAME

    def __init__(self, config: L1Config, listeners: Listeners, *, room_bytes: int) -> None:
        self._order = Order(make_policy(config.eviction_policy))
        self.arena: Arena = Arena(
            config.capacity,
            alignment_bytes=config.alignment_bytes,
            overflow_bytes=config.overflow,
            room_bytes=room_bytes,
            memory=None if config.buffer is None else flat_target(config.buffer),
            unpark=self._order.unpark,
            account=self._account,
        )
        self._max_age_ms = None if config.max_age_s is None else round(config.max_age_s * 1000)
        self.leases: LeaseBook = LeaseBook(config.lease_warn_s)
        largest_block = max(self.arena.capacity_bytes, self.arena.overflow_bytes)
        self.largest_bytes: int = largest_block - room_bytes
        self.hits: int = 0
        self.misses: int = 0
        self.hit_bytes: int = 0
        self.evicted: int = 0
        self.removed: Counter[str] = Counter()
        self.residence: Histogram = Histogram()
        self.usage_bytes: dict[str, int] = {}
        self.quotas: Quotas = Quotas()
        self.outlet: Spill | None = None
        self.watch: Callable[[Entry], None] | None = None
        self._index: dict[str, Entry] = {}
        self._touched = self._order.touched
        self._listeners = listeners
        self._trims = config.eviction_ratio > 0
        self._high_bytes = int(config.trigger_watermark * self.arena.capacity_bytes)
        self._low_bytes = int(self._high_bytes * (1 - config.eviction_ratio))
        self._trimming = False
        self._due_bytes = 0

    def __len__(self) -> int:
        return len(self._index)

    def peek(self, name: str) -> Entry | None:
        """Return a resident value's entry, without counting it as accessed."""
        entry = self._index.get(name)
        if entry is not None and entry.expires_ms and entry.expires_ms <= now_ms():
            self.discard(name, "expired")
            return None
        return entry

    def lease(self, name: str, key: Key) -> MemoryObject | None:
        """Return a lease of a resident value and count the hit; the caller counts misses."""
        entry = self._index.get(name)
        if entry is None or (entry.expires_ms and self.peek(name) is None):
            return None
        entry.users += 1
        if not entry.touched:
            entry.touched = True
            self._touched.append(entry)
        self.hits += 1
        self.hit_bytes += entry.nbytes
        if self.watch is not None:
            self.watch(entry)
        lease = MemoryObject(entry, self.arena, self.leases, key, "l1")
        if self._listeners.registered:
            self._listeners.emit("accessed", self.name, (name,), (entry.nbytes,))
        return lease

    def lease_many(
        self, names: Sequence[str], keys: Sequence[Key], hits: list[Entry]
    ) -> list[MemoryObject | None]:
        """Do as `lease` for several names, in order; append those held to `hits` for `touch`."""
        index, arena, book = self._index, self.arena, self.leases
        leases: list[MemoryObject | None] = []
        known = len(hits)
        for name, key in zip(names, keys, strict=True):
            entry = index.get(name)
            if entry is None or (entry.expires_ms and self.peek(name) is None):
                leases.append(None)
                continue
            entry.users += 1
            hits.append(entry)
            leases.append(MemoryObject(entry, arena, book, key, "l1"))
        fresh = hits[known:]
        sizes = [entry.nbytes for entry in fresh]
        self.hits += len(fresh)
        self.hit_bytes += sum(sizes)
        if self.watch is not None:
            for entry in fresh:
                self.watch(entry)
        if self._listeners.registered:
            self._listeners.emit("accessed", self.name, [entry.name for entry in fresh], sizes)
        return leases

    def touch(self, hits: Sequence[Entry]) -> None:
        """Note what a request has read, head first; it is to leave from its tail."""
        for entry in reversed(hits):
            if not entry.touched:
                entry.touched = True
                self._touched.append(entry)

    def settle(self) -> None:
        """Take back what readers have let go of, and warn of those that do not.

        To be called before every few hundred hits.
        """
        self.arena.drain()
        self.leases.look()
        self._order.tell_some()

    def expect(self, names: Sequence[str], missing: Collection[str]) -> None:
        """Note a request, its names head first: what is missing comes in later, or never."""
        self._order.expect(names, missing)

    def reserve(self, name: str, nbytes: int, *, waits: bool = False) -> Entry | None:
        """Return memory for a value, evicting for it, or None; its one user is the caller.

        What the pool cannot take goes to the overflow; such an entry cannot be admitted. With
        `waits`, there is none while evicted values are being written whose memory suffices.
        """
        self.leases.look()
        if self.quotas.limits and not self._fit_quota(name, nbytes):
            return self.arena.allocate_overflow(name, nbytes)
        entry = self.arena.allocate(name, nbytes)
        if entry is not None:
            return entry
        needed = self.arena.block_bytes(nbytes)
        evicted_bytes = 0
        # Beyond twice the request with enough bytes free, the rest is fragmentation.
        while needed <= self.arena.capacity_bytes and not (
            evicted_bytes >= _FRAGMENTED_AFTER * needed and self._free_bytes >= needed
        ):
            coming = self._leaving_bytes if waits else 0
            if coming and self._free_bytes + coming >= needed:
                return None
            wanted_bytes = max(needed - self._free_bytes - coming, 1)
            freed = self._evict(wanted_bytes, "room", in_part=False)
            if not freed:
                break
            evicted_bytes += freed
            entry = self.arena.allocate(name, nbytes)
            if entry is not None:
                return entry
        return self.arena.allocate_overflow(name, nbytes)

    def why_not(self, name: str, nbytes: int) -> str:
        """Return the reason for which the pool had no place for a value."""
        if self._over_quota(name, nbytes) > 0:
            return "quota"
        free = self._free_bytes >= self.arena.block_bytes(nbytes)
        return "fragmented" if free else "no_memory"

    async def reserve_soon(self, name: str, nbytes: int) -> Entry | None:
        """Do as `reserve`, waiting up to a second for leases and writes to end."""
        entry = self.reserve(name, nbytes, waits=True)
        if entry is None:
            patient_until = anyio.current_time() + _WRITE_WAIT_S
            with anyio.move_on_after(_MEMORY_WAIT_S):
                while entry is None:
                    # Memory comes back from the garbage collector and from other threads, too.
                    await anyio.sleep(_MEMORY_POLL_S)
                    patient = anyio.current_time() < patient_until
                    entry = self.reserve(name, nbytes, waits=patient)
        return entry

    def admit(self, entry: Entry) -> bool:
        """Make a filled entry resident, in place of what its name held.

        The caller remains a user of the entry. False, and nothing is done, for one of the overflow,
        and beyond its tenant's quota.
        """
        if not isinstance(entry.place, int):
            return False
        if self.quotas.limits and not self._fit_quota(entry.name, entry.nbytes, counted=True):
            return False
        replaced = self._index.get(entry.name)
        self._index[entry.name] = entry
        entry.users += 1
        self._order.insert(entry.name)
        if replaced is not None:
            replaced.parked = False
            self.removed["replaced"] += 1
            self.arena.drop(replaced)
        self._trim(entry.block_bytes)
        if self._listeners.registered:
            self._listeners.emit("stored", self.name, (entry.name,), (entry.nbytes,))
        return True

    def promoted_until(self, expires_ms: int) -> int:
        """Return when a copy that L2 brings now ceases to count, in Unix ms, 0 for never."""
        if self._max_age_ms is None:
            return expires_ms
        aged_ms = now_ms() + self._max_age_ms
        return min(expires_ms, aged_ms) if expires_ms else aged_ms

    def discard(self, name: str, cause: Removal = "deleted") -> bool:
        """Remove a value from the index; its readers keep their bytes. False if there was none."""
        entry = self._index.get(name)
        if entry is None:
            return False
        nbytes = entry.nbytes
        del self._index[name]
        self._order.remove(entry, evicted=False)
        self.removed[cause] += 1
        self.arena.drop(entry)
        del entry  # a listener may look at the memory
        self._listeners.emit("deleted", self.name, (name,), (nbytes,))
        return True

    def names(self) -> list[str]:
        """Return the wire names of all resident values."""
        return list(self._index)

    def clear(self) -> None:
        """Remove all values; those that are in use keep their memory until that ends."""
        for name in self.names():
            self.discard(name, "cleared")

    def set_quotas(self, limits: Mapping[Tenant, int]) -> None:
        """Set the quotas of all tenants; what exceeds them and is not in use leaves at once."""
        self.quotas.replace(limits)
        for tenant, used_bytes in tuple(self.usage_bytes.items()):
            if (limit := self.quotas.limit(tenant)) is not None and used_bytes > limit:
                self._evict(used_bytes - limit, "quota", in_part=True, tenant=tenant)

    def _over_quota(self, name: str, nbytes: int, *, counted: bool = False) -> int:
        """Return by how many bytes a value would exceed its tenant's quota; at most 0: it fits.

        With `counted` its memory is in use, and so counted, already.
        """
        limit = self.quotas.limit(tenant_of(name))
        if limit is None:
            return 0
        replaced = self._index.get(name)
        used_bytes = self.usage_bytes.get(tenant_of(name), 0)
        used_bytes += 0 if counted else self.arena.block_bytes(nbytes)
        return used_bytes - limit - (replaced.block_bytes if replaced else 0)

    def _fit_quota(self, name: str, nbytes: int, *, counted: bool = False) -> bool:
        """Make room for a value within its tenant's quota, at the cost of that tenant alone."""
        self.arena.drain()
        while (surplus := self._over_quota(name, nbytes, counted=counted)) > 0:
            in_vain = self.arena.block_bytes(nbytes) > (self.quotas.limit(tenant_of(name)) or 0)
            if in_vain or not self._evict(surplus, "quota", in_part=False, tenant=tenant_of(name)):
                return False
        return True

    @property
    def _free_bytes(self) -> int:
        return self.arena.capacity_bytes - self.arena.used_bytes

    @property
    def _leaving_bytes(self) -> int:
        return 0 if self.outlet is None else self.outlet.leaving_bytes

    def disown(self, entry: Entry) -> None:
        """Count an evicted value, which is being written, for its tenant no more."""
        self._account(entry, -entry.block_bytes)
        entry.leaving = True

    def _account(self, entry: Entry, change_bytes: int) -> None:
        """Count the memory of a tenant's values."""
        if entry.leaving:
            return
        tenant = tenant_of(entry.name)
        usage = self.usage_bytes.get(tenant, 0) + change_bytes
        if usage:
            self.usage_bytes[tenant] = usage
        else:
            del self.usage_bytes[tenant]

    def _trim(self, admitted_bytes: int) -> None:
        """Above the high watermark evict until below the low one.

        Not at once, so that no put pays for a whole pass; and not at every put, as each eviction of
        several costs less.
        """
        occupied = self.arena.used_bytes - self.arena.held_bytes
        if self.outlet is not None:
            occupied -= self.outlet.leaving_bytes
        together = _TRIMMED_TOGETHER * admitted_bytes
        if self._trimming:
            self._due_bytes += 2 * admitted_bytes
        elif occupied > self._high_bytes and self._trims:
            self._trimming = True
            self._due_bytes = together
        else:
            return
        if self._due_bytes >= together:
            surplus = min(self._due_bytes, occupied - self._low_bytes)
            self._due_bytes = 0
            self._trimming = surplus > 0 and bool(self._evict(surplus, "watermark", in_part=True))

    def _evict(
        self, wanted_bytes: int, cause: Removal, *, in_part: bool, tenant: Tenant = ALL
    ) -> int:
        """Evict until at least this much is given up, and return how much was.

        If there is not so much to evict: all of it with `in_part`, else nothing.
        """
        self.arena.drain()
        gone: list[Entry] = []
        chosen: list[Entry] = []  # to leave, too, if all of them suffice
        given_up = 0
        for name in self._order.victims(tenant):
            entry = self._index[name]
            if entry.users > 1:
                self._order.park(entry)
                continue
            given_up += entry.block_bytes
            if in_part:
                del self._index[name]
                self._order.remove(entry, evicted=True)
                gone.append(entry)
            else:
                chosen.append(entry)
            if given_up >= wanted_bytes:
                break
        else:
            if not in_part:
                return 0
        for entry in chosen:
            del self._index[entry.name]
            self._order.remove(entry, evicted=True)
        gone += chosen
        self.evicted += len(gone)
        self.removed[cause] += len(gone)
        now_us = time.time_ns() // 1000  # as generations are
        for entry in gone:
            self.residence.record(max(0, now_us - entry.generation) / 1e6)
        if self.outlet is not None:
            self.outlet.take(gone)
        for entry in gone:
            self.arena.drop(entry)
        if self._listeners.registered:
            self._listeners.emit(
                "evicted", self.name, [e.name for e in gone], [e.nbytes for e in gone]
            )
        return given_up
