"""Leases that end anywhere: in other threads, in finalizers, in the middle of an allocation."""

from __future__ import annotations

import faulthandler
import gc
import itertools
import random
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tieredkv.config import L1Config
from tieredkv.observe import Listeners
from tieredkv.pool.arena import Arena
from tieredkv.pool.lease import LeaseBook, MemoryObject
from tieredkv.tiers.memory import MemoryTier

PAGE = 4096
PAGES = 256


class Node:
    """Something of the user's that can be part of a cycle, and dies with a callback."""


def self_referring() -> Node:
    node = Node()
    node.itself = node  # type: ignore[attr-defined]
    return node


@pytest.fixture(autouse=True)
def _a_deadlock_is_a_failure() -> Iterator[None]:
    """End the process with every thread's stack instead of hanging for ever."""
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def _gc_settings() -> Iterator[None]:
    before, enabled = gc.get_threshold(), gc.isenabled()
    gc.collect()
    gc.freeze()  # so that collecting what a test leaves behind costs little
    yield
    gc.unfreeze()
    gc.set_threshold(*before)
    if enabled:
        gc.enable()
    gc.collect()


def pattern(serial: int, nbytes: int) -> bytes:
    return (serial.to_bytes(8, "little") * (nbytes // 8 + 1))[:nbytes]


def tier_of(pages: int = PAGES) -> MemoryTier:
    config = L1Config(capacity=pages * PAGE, overflow=0)
    return MemoryTier(config, Listeners(), room_bytes=64)


def put(tier: MemoryTier, name: str, payload: bytes) -> bool:
    entry = tier.reserve(name, len(payload))
    if entry is None:
        return False
    with tier.arena.writable(entry) as memory:
        memory[: len(payload)] = payload
    tier.admit(entry)
    tier.arena.drop(entry)
    return True


def take(tier: MemoryTier, name: str) -> MemoryObject | None:
    return tier.lease(name, name)


def assert_all_memory_returns(tier: MemoryTier) -> None:
    gc.collect()
    tier.clear()
    tier.arena.drain()
    assert tier.arena.used_bytes == 0
    assert tier.arena.held_blocks == 0
    assert tier.arena._allocator.extents() == [(0, tier.arena.capacity_bytes // PAGE)]
    assert len(tier.leases) == 0


@pytest.mark.usefixtures("_gc_settings")
class TestGarbageCollection:
    @pytest.mark.filterwarnings("ignore::ResourceWarning")
    def test_at_every_allocation_over_cycles_of_leases_and_views(self) -> None:
        tier = tier_of(32)
        chance = random.Random(7)
        kept: list[tuple[Any, bytes]] = []
        lease: MemoryObject | None = None
        gc.set_threshold(1)
        for serial in range(3000):
            name = f"key {serial % 40}"
            put(tier, name, pattern(serial, chance.choice([100, 5000, 9000])))
            lease = take(tier, name)
            if lease is not None:
                node = self_referring()
                if chance.random() < 0.7:
                    node.view = lease.view[8:]  # type: ignore[attr-defined]
                if chance.random() < 0.3:
                    kept.append((np.frombuffer(lease.view, np.uint8), bytes(lease)))
                if chance.random() < 0.5:
                    node.lease = lease  # type: ignore[attr-defined]
                else:
                    lease.release()
                del node
            if len(kept) > 6:
                kept.pop(chance.randrange(len(kept)))
            assert all(array.tobytes() == expected for array, expected in kept)
        kept.clear()
        lease = None
        assert_all_memory_returns(tier)

    @pytest.mark.parametrize("operation", ["allocate", "drop", "drain", "look", "view"])
    def test_a_release_by_a_finalizer_in_the_middle_of_anything(self, operation: str) -> None:
        for delay in range(30):  # so many allocations later the collector runs
            arena = Arena(PAGES * PAGE, alignment_bytes=PAGE, overflow_bytes=0, room_bytes=64)
            book = LeaseBook(1e-9)
            entries = [arena.allocate(f"key {n}", 100) for n in range(60)]
            assert None not in entries
            blocks = [entry for entry in entries if entry is not None]
            for entry in blocks[1:40:4]:
                arena.drop(entry)  # holes of one page
            gc.disable()
            for entry in blocks[2:40:4]:  # beside the holes
                lease = MemoryObject(entry, arena, book, entry.name, "l1")
                weakref.finalize(self_referring(), lease.release)
                del lease
            views = [arena.view(blocks[50])]
            arena.drop(blocks[50])
            gc.set_threshold(gc.get_count()[0] + delay)
            gc.enable()
            match operation:
                case "allocate":
                    assert arena.allocate("new", 100) is not None
                case "drop":
                    arena.drop(blocks[44])
                case "drain":
                    views.clear()
                    arena.drain()
                case "look":
                    book.look()
                case "view":
                    assert arena.view(blocks[45]).nbytes == 100
            gc.disable()
            gc.collect()
            views.clear()
            arena.drain()
            extents = arena._allocator.extents()
            assert sum(pages for _, pages in extents) == arena._allocator.free_pages
            for (first, pages), (after, _) in itertools.pairwise(extents):
                assert first + pages < after, "not merged, or overlapping"
            assert len(book) == 0

    def test_a_generator_that_dies_inside_its_with(self) -> None:
        tier = tier_of()
        assert put(tier, "key", b"payload")

        def read(lease: MemoryObject) -> Iterator[bytes]:
            with lease:
                yield bytes(lease)

        entry = tier.peek("key")
        assert entry is not None
        lease = tier.lease("key", "key")
        assert lease is not None
        reader = read(lease)
        assert next(reader) == b"payload"
        node = self_referring()
        node.reader = reader  # type: ignore[attr-defined]
        del reader, node
        gc.collect()
        tier.arena.drain()
        assert entry.users == 1
        assert repr(lease) == "<MemoryObject 'key': released>"
        del entry
        assert_all_memory_returns(tier)

    @pytest.mark.filterwarnings("ignore::ResourceWarning")
    def test_many_leases_that_die_together_while_the_book_looks(self) -> None:
        for delay in range(40):
            tier = tier_of()
            assert put(tier, "key", b"payload")
            entry = tier.peek("key")
            assert entry is not None
            gc.disable()
            for _ in range(30):
                self_referring().lease = tier.lease("key", "key")  # type: ignore[attr-defined]
            tier.leases._next_look = 0.0
            gc.set_threshold(gc.get_count()[0] + delay)
            gc.enable()
            tier.leases.look()
            gc.disable()
            gc.collect()
            tier.arena.drain()
            assert entry.users == 1
            assert len(tier.leases) == 0


class TestThreads:
    @pytest.fixture
    def _impatient(self) -> Iterator[None]:
        """Let threads take turns as often as the interpreter can."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(before)

    @pytest.mark.usefixtures("_impatient", "_gc_settings")
    @pytest.mark.parametrize("threshold", [1, 700])
    def test_four_that_drop_leases_while_the_loop_allocates(self, threshold: int) -> None:
        tier = tier_of(64)
        inbox: list[list[MemoryObject]] = [[], [], [], []]
        stop = threading.Event()
        wrong: list[str] = []

        def read(mine: list[MemoryObject], chance: random.Random) -> None:
            views: list[tuple[Any, bytes]] = []
            while not (stop.is_set() and not mine):
                if not mine:
                    continue
                lease = mine.pop()
                view = lease.view
                views.append((np.frombuffer(view, np.uint8)[1:], bytes(view[1:])))
                if chance.random() < 0.5:
                    lease.release()
                elif chance.random() < 0.5:
                    node = self_referring()
                    node.lease = lease  # type: ignore[attr-defined]
                    del node
                del lease, view
                while len(views) > 3:
                    kept, expected = views.pop(0)
                    if kept.tobytes() != expected:
                        wrong.append("bytes changed under a view")

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            threads = [
                threading.Thread(target=read, args=(mine, random.Random(n)))
                for n, mine in enumerate(inbox)
            ]
            gc.set_threshold(threshold)
            for thread in threads:
                thread.start()
            try:
                for serial in range(2000):
                    name = f"key {serial % 100}"
                    put(tier, name, pattern(serial, 3000 + serial % 3 * 4000))
                    lease = take(tier, name)
                    if lease is not None:
                        inbox[serial % 4].append(lease)
                    del lease
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
            assert wrong == []
            del threads
            assert_all_memory_returns(tier)

    @pytest.mark.usefixtures("_impatient")
    def test_many_that_release_one_lease_free_it_once(self) -> None:
        tier = tier_of(4)
        assert put(tier, "key", b"payload")
        entry = tier.peek("key")
        assert entry is not None
        for _ in range(200):
            lease = tier.lease("key", "key")
            assert lease is not None
            start = threading.Barrier(4)
            refused: list[str] = []

            def release(
                lease: MemoryObject = lease,
                start: threading.Barrier = start,
                refused: list[str] = refused,
            ) -> None:
                start.wait()
                try:
                    lease.release()
                except RuntimeError as error:
                    refused.append(type(error).__name__)

            threads = [threading.Thread(target=release) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert refused == ["LeaseReleasedError"] * 3
            tier.arena.drain()
            assert entry.users == 1

    def test_a_release_in_another_thread_counts_at_the_next_allocation(self) -> None:
        tier = tier_of(1)
        assert put(tier, "key", b"payload")
        lease = take(tier, "key")
        assert lease is not None
        assert tier.reserve("other", 1) is None
        thread = threading.Thread(target=lease.release)
        thread.start()
        thread.join()
        assert put(tier, "other", b"x")
