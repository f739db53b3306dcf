"""L1's pool against a model: bytes, users, events and free memory, in any order of calls."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tieredkv.config import L1Config
from tieredkv.errors import LeaseReleasedError
from tieredkv.observe import CacheEvent, Listeners
from tieredkv.pool.arena import Entry
from tieredkv.pool.lease import MemoryObject
from tieredkv.tiers.memory import MemoryTier

PAGE = 256
PAGES = 24  # below 32 the allocator's classes are exact, so it overlooks nothing
OVERFLOW_PAGES = 5
ROOM = 64
NAMES = ["a", "b", "c", "d", "e"]

picks = st.integers(0, 2**16)


@attrs.define(eq=False)
class Block:
    """What the model knows of one value; never a reference to the pool's own objects."""

    name: str
    payload: bytes
    place: int | None  # None: in the overflow
    callers: int = 1
    indexed: bool = False
    leases: int = 0
    views: int = 0

    @property
    def nbytes(self) -> int:
        return (len(self.payload) + ROOM + PAGE - 1) // PAGE * PAGE

    @property
    def users(self) -> int:
        return self.callers + self.indexed + self.leases

    @property
    def alive(self) -> bool:
        return bool(self.users or self.views)


class PoolMachine(RuleBasedStateMachine):
    """Callers fill and admit entries, readers lease and keep views, and everybody lets go."""

    @initialize(
        watermark=st.sampled_from([0.0, 0.5, 0.8, 1.0]), ratio=st.sampled_from([0.0, 0.2, 1.0])
    )
    def begin(self, watermark: float, ratio: float) -> None:
        gc.freeze()  # so that collecting what the machine leaves behind costs little
        self.events: list[CacheEvent] = []
        listeners = Listeners()
        listeners.subscribe(self.events.append)
        config = L1Config(
            capacity=PAGES * PAGE + 100,
            overflow=OVERFLOW_PAGES * PAGE + 100,
            alignment_bytes=PAGE,
            trigger_watermark=watermark,
            eviction_ratio=ratio,
        )
        self.tier = MemoryTier(config, listeners, room_bytes=ROOM)
        self.blocks: list[Block] = []
        self.indexed: set[str] = set()  # names
        self.callers: list[tuple[Block, Entry]] = []
        self.leases: list[tuple[Block, MemoryObject]] = []
        self.released: list[MemoryObject] = []
        self.views: list[tuple[Block, Any, bytes]] = []
        self.filled = 0
        self.hits = 0

    # -- the model ---------------------------------------------------------------------------------

    def resident(self, name: str) -> Block | None:
        return next((b for b in self.blocks if b.indexed and b.name == name), None)

    def gaps(self) -> list[int]:
        """Pages of each free extent."""
        taken = sorted((b.place, b.nbytes) for b in self.blocks if b.alive and b.place is not None)
        gaps, at = [], 0
        for place, nbytes in [*taken, (PAGES * PAGE, 0)]:
            assert place >= at, "two blocks share memory"
            if place > at:
                gaps.append((place - at) // PAGE)
            at = place + nbytes
        return gaps

    def overflow_bytes(self) -> int:
        return sum(b.nbytes for b in self.blocks if b.alive and b.place is None)

    def settle_evictions(self) -> int:
        """Take the evictions of the last call into the model; return how much they gave up."""
        given_up = 0
        while self.events and self.events[0].kind == "evicted":
            event = self.events.pop(0)
            assert len(set(event.names)) == len(event.names)
            for name, nbytes in zip(event.names, event.sizes, strict=True):
                block = self.resident(name)
                assert block is not None
                assert block.users == 1, "somebody was using it"
                assert nbytes == len(block.payload)
                block.indexed = False
                self.indexed.remove(name)
                given_up += block.nbytes
        return given_up

    def expect_events(self, *events: tuple[str, str, int]) -> None:
        seen = [(e.kind, *e.names, *e.sizes) for e in self.events]
        assert seen == list(events)
        self.events.clear()

    # -- calls -------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(NAMES),
        nbytes=st.one_of(st.integers(0, 3 * PAGE), st.integers(0, (PAGES + 2) * PAGE)),
    )
    def reserve_and_fill(self, name: str, nbytes: int) -> None:
        entry = self.tier.reserve(name, nbytes)
        given_up = self.settle_evictions()
        needed = (nbytes + ROOM + PAGE - 1) // PAGE * PAGE
        if entry is None or not isinstance(entry.place, int):
            gaps = self.gaps()
            assert all(gap * PAGE < needed for gap in gaps), "there was room"
            free = sum(gaps) * PAGE
            fragmented = given_up >= 2 * needed and free >= needed
            evictable = sum(b.nbytes for b in self.blocks if b.indexed and b.users == 1)
            if needed > PAGES * PAGE or free + evictable < needed:
                assert given_up == 0 or not evictable, "it evicted in vain"
            else:
                assert fragmented or not evictable, "it gave up too early"
        if entry is None:
            assert self.overflow_bytes() + needed > OVERFLOW_PAGES * PAGE
            return
        assert (entry.name, entry.nbytes, entry.users) == (name, nbytes, 1)
        self.filled += 1
        payload = (self.filled.to_bytes(4, "little") * (nbytes // 4 + 1))[:nbytes]
        with self.tier.arena.writable(entry) as memory:
            assert memory.nbytes == nbytes + ROOM
            memory[:] = payload + b"\xa5" * ROOM
        place = entry.place if isinstance(entry.place, int) else None
        self.blocks.append(Block(name, payload, place))
        self.callers.append((self.blocks[-1], entry))

    @precondition(lambda self: self.callers)
    @rule(pick=picks)
    def admit(self, pick: int) -> None:
        block, entry = self.callers[pick % len(self.callers)]
        admitted = self.tier.admit(entry)
        assert admitted == (block.place is not None)
        if not admitted:
            return
        replaced = self.resident(block.name)
        if replaced is not None:
            replaced.indexed = False
            self.indexed.remove(block.name)
        block.indexed = True
        self.indexed.add(block.name)
        self.settle_evictions()
        self.expect_events(("stored", block.name, len(block.payload)))

    @precondition(lambda self: self.callers)
    @rule(pick=picks)
    def caller_lets_go(self, pick: int) -> None:
        block, entry = self.callers.pop(pick % len(self.callers))
        block.callers -= 1
        self.tier.arena.drop(entry)

    @rule(name=st.sampled_from(NAMES))
    def get(self, name: str) -> None:
        lease = self.tier.lease(name, name)
        block = self.resident(name)
        assert (lease is None) == (block is None)
        if lease is None or block is None:
            return
        self.hits += 1
        self.expect_events(("accessed", name, len(block.payload)))
        self.keep(block, lease)

    @precondition(lambda self: self.callers)
    @rule(pick=picks)
    def lease_what_need_not_be_resident(self, pick: int) -> None:
        block, entry = self.callers[pick % len(self.callers)]
        entry.users += 1
        self.keep(block, MemoryObject(entry, self.tier.arena, self.tier.leases, block.name, "disk"))

    def keep(self, block: Block, lease: MemoryObject) -> None:
        assert len(lease) == lease.nbytes == len(block.payload)
        block.leases += 1
        self.leases.append((block, lease))

    @precondition(lambda self: self.leases)
    @rule(pick=picks, how=st.sampled_from(["view", "slice", "cast", "again", "numpy", "pickle"]))
    def view(self, pick: int, how: str) -> None:
        block, lease = self.leases[pick % len(self.leases)]
        view = lease.view
        assert view.readonly
        assert (view.format, view.ndim, view.nbytes) == ("B", 1, len(block.payload))
        kept: Any = view
        expected = block.payload
        half = len(expected) // 2
        match how:
            case "slice":
                kept, expected = view[half:], expected[half:]
            case "cast":
                kept = view.cast("b") if view.nbytes else view
            case "again":
                kept = memoryview(view)
            case "numpy" if view.nbytes:
                kept = np.frombuffer(view, np.uint8)
            case "pickle":
                kept = memoryview(lease.view[:half]).toreadonly()
                expected = expected[:half]
        if kept is not view:
            view.release()  # which memoryview notices of no slice, and we must not need
        block.views += 1
        self.views.append((block, kept, expected))

    @precondition(lambda self: self.callers)
    @rule(pick=picks)
    def worker_keeps_a_writable_view(self, pick: int) -> None:
        block, entry = self.callers[pick % len(self.callers)]
        memory = self.tier.arena.writable(entry)
        block.views += 1
        self.views.append((block, memory, block.payload + bytes(memory[-ROOM:])))

    @precondition(lambda self: self.views)
    @rule(pick=picks)
    def drop_a_view(self, pick: int) -> None:
        block, _, _ = self.views.pop(pick % len(self.views))
        block.views -= 1

    @precondition(lambda self: self.leases)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        block, lease = self.leases.pop(pick % len(self.leases))
        lease.release()
        block.leases -= 1
        self.released.append(lease)

    @precondition(lambda self: self.leases)
    @rule(pick=picks)
    def drop_a_lease(self, pick: int) -> None:
        block, _ = self.leases.pop(pick % len(self.leases))
        block.leases -= 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del _
        assert [warning.category for warning in caught] == [ResourceWarning]

    @precondition(lambda self: self.leases)
    @rule(pick=picks)
    def drop_a_lease_in_a_cycle(self, pick: int) -> None:
        block, lease = self.leases.pop(pick % len(self.leases))
        block.leases -= 1
        cycle: list[object] = [lease]
        cycle.append(cycle)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del lease, cycle
            gc.collect()
        assert [warning.category for warning in caught] == [ResourceWarning]

    @precondition(lambda self: self.released)
    @rule(pick=picks)
    def use_a_released_lease(self, pick: int) -> None:
        lease = self.released[pick % len(self.released)]
        with pytest.raises(LeaseReleasedError):
            lease.release()
        with pytest.raises(LeaseReleasedError):
            _ = lease.view
        with pytest.raises(LeaseReleasedError):
            bytes(lease)
        with pytest.raises(LeaseReleasedError):
            _ = lease.address

    @rule(name=st.sampled_from(NAMES))
    def discard(self, name: str) -> None:
        block = self.resident(name)
        assert self.tier.discard(name) == (block is not None)
        if block is not None:
            block.indexed = False
            self.indexed.remove(name)
            self.expect_events(("deleted", name, len(block.payload)))

    @rule()
    def clear(self) -> None:
        self.tier.clear()
        deleted = {event.names[0] for event in self.events if event.kind == "deleted"}
        assert deleted == self.indexed
        assert len(self.events) == len(self.indexed)
        self.events.clear()
        self.indexed.clear()
        for block in self.blocks:
            block.indexed = False

    @rule()
    def collect_garbage(self) -> None:
        gc.collect()

    # -- what always holds -------------------------------------------------------------------------

    @invariant()
    def the_pool_is_as_the_model(self) -> None:
        tier, arena = self.tier, self.tier.arena
        arena.drain()
        assert self.events == []
        pooled = [b for b in self.blocks if b.alive and b.place is not None]
        assert arena.used_bytes == sum(b.nbytes for b in pooled)
        assert arena.overflow_used_bytes == self.overflow_bytes()
        held = [b for b in self.blocks if b.alive and not b.users]
        assert arena.held_blocks == len(held)
        assert arena.held_bytes == sum(b.nbytes for b in held if b.place is not None)
        assert [pages for _, pages in arena._allocator.extents()] == self.gaps()
        assert sorted(tier.names()) == sorted(self.indexed)
        assert len(tier) == len(self.indexed)
        assert tier.hits == self.hits
        assert len(tier.leases) == len(self.leases)

    @invariant()
    def users_are_counted(self) -> None:
        for block, entry in self.callers:
            assert entry.users == block.users
        for block, lease in self.leases:
            assert lease._entry is not None
            assert lease._entry.users == block.users
        for name in self.indexed:
            resident, known = self.tier.peek(name), self.resident(name)
            assert resident is not None
            assert known is not None
            assert resident.users == known.users

    @invariant()
    def bytes_never_change_under_a_view_or_a_lease(self) -> None:
        for _, view, expected in self.views:
            assert bytes(view) == expected
        for block, lease in self.leases:
            assert bytes(lease) == block.payload

    def teardown(self) -> None:
        gc.unfreeze()
        if not hasattr(self, "tier"):
            return
        self.views.clear()
        for _, lease in self.leases:
            lease.release()
        for _, entry in self.callers:
            self.tier.arena.drop(entry)
        self.tier.clear()
        arena = self.tier.arena
        arena.drain()
        assert (arena.used_bytes, arena.overflow_used_bytes) == (0, 0)
        assert (arena.held_blocks, arena.held_bytes) == (0, 0)
        assert arena._allocator.extents() == [(0, PAGES)]
        assert len(self.tier.leases) == 0


TestPoolMachine = pytest.mark.stateful(PoolMachine.TestCase)
