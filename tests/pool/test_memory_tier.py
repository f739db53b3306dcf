"""L1: the index, who leaves when it is full, and what waits for memory."""

from __future__ import annotations

import random
from types import SimpleNamespace

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from tieredkv.config import L1Config
from tieredkv.observe import CacheEvent, Listeners
from tieredkv.pool.arena import Entry
from tieredkv.pool.lease import MemoryObject
from tieredkv.tiers import memory as memory_module
from tieredkv.tiers.memory import MemoryTier

PAGE = 4096
ROOM = 64

pytestmark = pytest.mark.anyio


class L1(MemoryTier):
    """A tier of so many pages that remembers its events."""

    def __init__(
        self, pages: int, *, overflow_pages: int = 0, watermark: float = 1.0, ratio: float = 0.0
    ) -> None:
        self.events: list[CacheEvent] = []
        listeners = Listeners()
        listeners.subscribe(self.events.append)
        config = L1Config(
            capacity=pages * PAGE,
            overflow=overflow_pages * PAGE,
            trigger_watermark=watermark,
            eviction_ratio=ratio,
            eviction_policy="lru",
        )
        super().__init__(config, listeners, room_bytes=ROOM)

    def put(self, name: str, pages: int = 1, *, expires_ms: int = 0) -> None:
        entry = self.reserve(name, pages * PAGE - ROOM)
        assert entry is not None
        entry.expires_ms = expires_ms
        assert self.admit(entry)
        self.arena.drop(entry)

    def read(self, name: str) -> MemoryObject:
        lease = self.lease(name, name)
        assert lease is not None
        return lease

    @property
    def evicted_names(self) -> list[str]:
        return [name for event in self.events if event.kind == "evicted" for name in event.names]


class TestEviction:
    def test_the_least_recently_used_leave_first(self) -> None:
        tier = L1(4)
        for name in "abcd":
            tier.put(name)
        tier.read("a").release()
        tier.peek("b")  # a look that counts as no use
        tier.put("e", 2)
        assert tier.evicted_names == ["b", "c"]
        assert sorted(tier.names()) == ["a", "d", "e"]
        assert tier.evicted == 2

    def test_a_replaced_value_is_as_new(self) -> None:
        tier = L1(3)
        for name in "aba":
            tier.put(name)
        tier.put("c")
        tier.put("d")
        assert tier.evicted_names == ["b"]

    def test_what_is_leased_stays(self) -> None:
        tier = L1(3)
        for name in "abc":
            tier.put(name)
        with tier.read("a"), tier.read("b"):
            tier.put("d")
            assert tier.evicted_names == ["c"]
            tier.put("e")
            assert tier.evicted_names == ["c", "d"]
        tier.put("f", 3)
        assert tier.names() == ["f"]

    def test_what_is_being_written_stays(self) -> None:
        tier = L1(2)
        tier.put("a")
        entry = tier.peek("a")
        assert entry is not None
        entry.users += 1  # as a write in flight
        tier.put("b")
        tier.put("c")
        assert tier.evicted_names == ["b"]
        tier.arena.drop(entry)
        tier.put("d", 2)
        assert tier.names() == ["d"]

    def test_views_alone_keep_the_bytes_but_not_the_place_in_the_index(self) -> None:
        tier = L1(2)
        entry = tier.reserve("a", 100)
        assert entry is not None
        with tier.arena.writable(entry) as memory:
            memory[:100] = b"a" * 100
        tier.admit(entry)
        view = tier.arena.view(entry)
        tier.arena.drop(entry)
        del entry
        tier.put("b")
        tier.put("c")
        assert tier.peek("a") is None
        assert view == b"a" * 100
        assert tier.arena.held_bytes == PAGE

    def test_nothing_leaves_for_a_value_that_can_never_fit(self) -> None:
        tier = L1(3)
        for name in "abc":
            tier.put(name)
        assert tier.reserve("big", 4 * PAGE) is None
        assert sorted(tier.names()) == ["a", "b", "c"]

    def test_a_full_pool_with_every_value_leased(self) -> None:
        tier = L1(2, overflow_pages=1)
        tier.put("a")
        tier.put("b")
        with tier.read("a"), tier.read("b"):
            entry = tier.reserve("c", 100)
            assert entry is not None
            assert not isinstance(entry.place, int)
            assert not tier.admit(entry)
            assert tier.peek("c") is None
            assert tier.reserve("d", 0) is None
            tier.arena.drop(entry)
        assert tier.evicted_names == []

    def test_fragmentation_ends_at_twice_the_request(self) -> None:
        pages = 64
        tier = L1(pages)
        for n in range(pages):
            tier.put(f"{n}")
        pinned = [tier.read(f"{n}") for n in range(1, pages, 2)]  # no two neighbours can be free
        assert tier.reserve("big", 2 * PAGE - ROOM) is None
        assert 2 <= len(tier.evicted_names) <= 4
        for lease in pinned:
            lease.release()

    @given(st.data())
    def test_the_hard_limit_holds(self, data: st.DataObject) -> None:
        tier = L1(8, overflow_pages=2, watermark=data.draw(st.sampled_from([0.5, 1.0])), ratio=0.2)
        for n in range(30):
            pages = data.draw(st.integers(1, 10))
            entry = tier.reserve(f"{n % 7}", pages * PAGE - ROOM)
            if entry is not None:
                tier.admit(entry)
                tier.arena.drop(entry)
            assert tier.arena.used_bytes <= 8 * PAGE
            assert tier.arena.overflow_used_bytes <= 2 * PAGE


class TestWatermarks:
    def test_count_bytes_not_values(self) -> None:
        tier = L1(100, watermark=0.8, ratio=0.5)
        tier.put("large", 79)
        tier.put("at the mark")
        assert tier.evicted_names == []
        tier.put("above it")
        assert tier.evicted_names == ["large"]

    def test_are_reached_again_from_above_the_low_one(self) -> None:
        tier = L1(100, watermark=0.8, ratio=0.25)
        for n in range(500):
            tier.put(f"{n}")
            assert tier.arena.used_bytes <= 81 * PAGE
            if n >= 120:
                assert tier.arena.used_bytes >= 58 * PAGE

    def test_zero_evicts_only_what_a_put_needs(self) -> None:
        tier = L1(10, watermark=0.5, ratio=0.0)
        for n in range(10):
            tier.put(f"{n}")
        assert tier.evicted_names == []
        tier.put("one more")
        assert tier.evicted_names == ["0"]

    def test_an_admitted_value_is_never_its_own_victim(self) -> None:
        tier = L1(4, watermark=0.0, ratio=1.0)
        for n in range(20):
            tier.put(f"{n}")
            assert f"{n}" in tier.names()


class TestExpiry:
    @pytest.fixture
    def now(self, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
        clock = SimpleNamespace(ms=1000)
        monkeypatch.setattr(memory_module, "now_ms", lambda: clock.ms)
        return clock

    def test_a_value_is_there_until_then_and_its_readers_keep_it(
        self, now: SimpleNamespace
    ) -> None:
        tier = L1(4)
        tier.put("a", expires_ms=2000)
        now.ms = 1999
        lease = tier.read("a")
        now.ms = 2000
        assert tier.peek("a") is None
        assert tier.peek("a") is None
        assert len(tier) == 0
        assert lease.view.nbytes == PAGE - ROOM
        lease.release()
        tier.arena.drain()
        assert tier.arena.used_bytes == 0

    def test_zero_is_never(self, now: SimpleNamespace) -> None:
        tier = L1(4)
        tier.put("a")
        now.ms = 2**62
        assert tier.peek("a") is not None

    def test_a_listener_that_looks_at_the_value_as_it_expires(self, now: SimpleNamespace) -> None:
        tier = L1(4)
        tier.put("a", expires_ms=2000)

        def look(event: CacheEvent) -> None:
            if event.kind == "accessed":
                now.ms = 2000
                tier.peek("a")

        tier._listeners.subscribe(look)
        lease = tier.lease("a", "a")
        assert lease is not None
        with lease:
            assert lease.view.nbytes == PAGE - ROOM
        del lease
        tier.arena.drain()
        assert (tier.arena.used_bytes, tier.arena.overflow_used_bytes) == (0, 0)


class TestLimits:
    def test_the_largest_value_is_that_of_pool_or_overflow(self) -> None:
        assert L1(4).largest_bytes == 4 * PAGE - ROOM
        assert L1(4, overflow_pages=9).largest_bytes == 9 * PAGE - ROOM

    @pytest.mark.parametrize("overflow", [0, 5 * PAGE, 5 * PAGE + 1, 6 * PAGE - 1])
    def test_the_largest_value_fits_and_one_byte_more_does_not(self, overflow: int) -> None:
        config = L1Config(capacity=4 * PAGE + 17, overflow=overflow)
        tier = MemoryTier(config, Listeners(), room_bytes=ROOM)
        entry = tier.reserve("a", tier.largest_bytes)
        assert entry is not None
        tier.arena.drop(entry)
        assert tier.reserve("a", tier.largest_bytes + 1) is None


class TestEvents:
    def kinds(self, tier: L1) -> list[str]:
        return [f"{event.kind} {','.join(event.names)}" for event in tier.events]

    def test_of_a_value_s_life(self) -> None:
        tier = L1(2)
        tier.put("a")
        tier.read("a").release()
        tier.put("b")
        tier.put("c")
        tier.discard("b")
        assert self.kinds(tier) == [
            "stored a",
            "accessed a",
            "stored b",
            "evicted a",
            "stored c",
            "deleted b",
        ]
        assert all(event.tier == "l1" for event in tier.events)
        assert all(size == PAGE - ROOM for event in tier.events for size in event.sizes)

    def test_discarding_what_is_not_there_is_none(self) -> None:
        tier = L1(2)
        assert not tier.discard("a")
        assert tier.events == []

    def test_a_listener_sees_settled_state(self) -> None:
        tier = L1(3)
        seen: list[tuple[str, int, int]] = []
        tier._listeners.subscribe(
            lambda event: seen.append((event.kind, len(tier), tier.arena.used_bytes // PAGE))
        )
        for name in "abcd":
            tier.put(name)
        tier.clear()
        assert seen == [
            ("stored", 1, 1),
            ("stored", 2, 2),
            ("stored", 3, 3),
            ("evicted", 2, 2),
            ("stored", 3, 3),
            ("deleted", 2, 2),
            ("deleted", 1, 1),
            ("deleted", 0, 0),
        ]


class TestWaitingForMemory:
    async def test_until_a_lease_is_released(self) -> None:
        tier = L1(1)
        tier.put("a")
        lease = tier.read("a")
        got: list[Entry | None] = []

        async def wait() -> None:
            got.append(await tier.reserve_soon("b", 1))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await checkpoint()
            await checkpoint()
            assert got == []
            lease.release()
        assert got[0] is not None

    async def test_until_a_view_is_gone(self) -> None:
        tier = L1(1)
        tier.put("a")
        lease = tier.read("a")
        views = [lease.view[1:]]
        lease.release()
        async with anyio.create_task_group() as group:
            group.start_soon(tier.reserve_soon, "b", 1)
            await checkpoint()
            views.clear()
        assert tier.evicted_names == ["a"]

    async def test_not_for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory_module, "_MEMORY_WAIT_S", 0.02)
        tier = L1(1)
        tier.put("a")
        with tier.read("a"):
            assert await tier.reserve_soon("b", 1) is None

    async def test_a_cancelled_wait_keeps_nothing(self) -> None:
        tier = L1(1)
        tier.put("a")
        lease = tier.read("a")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await tier.reserve_soon("b", 1)
        assert scope.cancelled_caught
        lease.release()
        tier.clear()
        tier.arena.drain()
        assert tier.arena.used_bytes == 0

    async def test_not_at_all_when_there_is_some(self) -> None:
        tier = L1(1)
        with anyio.CancelScope() as scope:
            scope.cancel()
            assert await tier.reserve_soon("a", 1) is not None


def test_one_size_stays_full_through_30_000_replacements() -> None:
    chance = random.Random(3)
    tier = L1(17 * 300 + 8)
    for n in range(600):
        tier.put(f"{n}", 17)
    full = len(tier)
    assert full == 300
    for n in range(30_000):
        if (lease := tier.lease(name := f"{chance.randrange(600)}", name)) is None:
            tier.put(name, 17)
        else:
            lease.release()
        if n % 1000 == 0:
            tier.events.clear()
    assert len(tier) >= 0.99 * full
