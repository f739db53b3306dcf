"""The arena: whose memory a block is, and when it can be used again."""

from __future__ import annotations

import ctypes
import gc
import mmap
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieredkv.errors import ConfigError
from tieredkv.pool import arena as arena_module
from tieredkv.pool.arena import Arena, Entry

PAGE = 4096
ROOM = 64


def arena_of(pages: int = 4, *, overflow_pages: int = 2, room_bytes: int = ROOM) -> Arena:
    return Arena(
        pages * PAGE,
        alignment_bytes=PAGE,
        overflow_bytes=overflow_pages * PAGE,
        room_bytes=room_bytes,
    )


def filled(arena: Arena, payload: bytes) -> Entry:
    entry = arena.allocate("name", len(payload))
    assert entry is not None
    with arena.writable(entry) as memory:
        memory[: len(payload)] = payload
    return entry


def refill(arena: Arena, byte: int) -> int:
    """Write over all memory that can be had; return how many blocks that were."""
    entries = []
    while (entry := arena.allocate("refill", PAGE - ROOM)) is not None:
        with arena.writable(entry) as memory:
            memory[:] = bytes([byte]) * len(memory)
        entries.append(entry)
    for entry in entries:
        arena.drop(entry)
    return len(entries)


class TestRegion:
    def test_asks_for_large_pages_where_the_system_has_them(self) -> None:
        arena = arena_of(2048)
        block = arena.allocate("name", PAGE)
        assert block is not None
        address = ctypes.addressof(arena.view(block).obj)  # type: ignore[arg-type]
        has_them = Path("/sys/kernel/mm/transparent_hugepage").exists()
        assert ("hg" in flags_of_memory_at(address)) == has_them

    def test_is_touched_ahead_whole_and_nothing_beside_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(arena_module, "_PREFAULTED_BYTES", 2 * PAGE)
        memory = memoryview(bytearray(b"\xff" * 12 * PAGE))
        skipped = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % PAGE + 4 * PAGE
        arena = Arena(
            5 * PAGE,
            alignment_bytes=PAGE,
            overflow_bytes=0,
            room_bytes=0,
            memory=memory[skipped : skipped + 5 * PAGE],
        )
        arena.prefault()
        assert bytes(memory[skipped : skipped + 5 * PAGE]).count(0) == 5 * PAGE
        assert bytes(memory).count(0xFF) == 7 * PAGE


def flags_of_memory_at(address: int) -> list[str]:
    """Return the flags of a mapping, as proc(5) lists them in ``smaps``; none elsewhere."""
    smaps = Path("/proc/self/smaps")
    is_inside = False
    for line in smaps.read_text().splitlines() if smaps.exists() else ():
        first, *rest = line.split()
        if bounds := re.fullmatch("([0-9a-f]+)-([0-9a-f]+)", first):
            is_inside = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif is_inside and first == "VmFlags:":
            return rest
    return []


class TestBlocks:
    @given(st.integers(0, 10 * PAGE))
    def test_have_room_for_payload_and_trailer(self, nbytes: int) -> None:
        arena = arena_of(1)
        size = arena.block_bytes(nbytes)
        assert size % PAGE == 0
        assert nbytes + ROOM <= size < nbytes + ROOM + PAGE

    def test_an_empty_value_has_a_block_too(self) -> None:
        arena = arena_of(room_bytes=0)
        entry = arena.allocate("name", 0)
        assert entry is not None
        assert arena.used_bytes == PAGE
        assert arena.view(entry).nbytes == 0
        assert arena.writable(entry).nbytes == 0
        arena.drop(entry)
        arena.drain()
        assert arena.used_bytes == 0

    def test_a_capacity_between_blocks_is_rounded_down(self) -> None:
        arena = Arena(3 * PAGE - 1, alignment_bytes=PAGE, overflow_bytes=PAGE + 1, room_bytes=0)
        assert (arena.capacity_bytes, arena.overflow_bytes) == (2 * PAGE, PAGE)

    @pytest.mark.parametrize("alignment", [64, 4096, 65536])
    def test_start_at_multiples_of_the_alignment(self, alignment: int) -> None:
        arena = Arena(
            8 * alignment, alignment_bytes=alignment, overflow_bytes=0, room_bytes=alignment // 2
        )
        addresses = []
        for _ in range(8):
            entry = arena.allocate("name", 1)
            assert entry is not None
            exporter: Any = arena.view(entry).obj
            addresses.append(ctypes.addressof(exporter))
        assert sorted(addresses) == list(range(min(addresses), max(addresses) + 1, alignment))
        assert min(addresses) % min(alignment, mmap.PAGESIZE) == 0

    def test_do_not_overlap(self) -> None:
        arena = arena_of(8)
        entries = [filled(arena, bytes([n]) * (PAGE - ROOM)) for n in range(8)]
        assert arena.allocate("name", 0) is None
        for n, entry in enumerate(entries):
            assert arena.view(entry) == bytes([n]) * (PAGE - ROOM)

    def test_a_view_is_read_only_flat_and_new_each_time(self) -> None:
        arena = arena_of()
        entry = filled(arena, b"payload")
        one, other = arena.view(entry), arena.view(entry)
        assert one.readonly
        assert (one.format, one.ndim, one.shape, one.c_contiguous) == ("B", 1, (7,), True)
        assert one is not other
        one.release()
        assert other == arena.view(entry) == b"payload"
        assert other[0] == ord("p")
        with pytest.raises(TypeError):
            other[0] = 0

    def test_may_have_any_number_of_sizes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(arena_module, "_MAX_CACHED_TYPES", 2)
        arena = arena_of(10)
        for pages in range(1, 5):
            value = bytes([pages]) * (pages * PAGE - ROOM)
            assert arena.view(filled(arena, value)) == value
        assert len(arena._types) == 2


KEEPERS: dict[str, Callable[[memoryview], Any]] = {
    "the view": lambda view: view,
    "a slice": lambda view: view[1:-1],
    "a cast": lambda view: view.cast("I"),
    "a view of it": memoryview,
    "read-only again": lambda view: view.toreadonly(),
    "an array": lambda view: np.frombuffer(view, np.uint8),
    "a reshaped slice of an array": lambda view: np.frombuffer(view, np.uint16).reshape(2, -1)[
        :, ::2
    ],
    "a pickle buffer": lambda view: pickle.PickleBuffer(view[:]),
    "the exporter itself": lambda view: view.obj,
}


class TestBlocksComeBackWithTheirLastView:
    @pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS.keys())
    def test_and_its_bytes_never_change_before(self, keep: Callable[[memoryview], Any]) -> None:
        arena = arena_of()
        payload = bytes(range(240))
        entry = filled(arena, payload)
        view = arena.view(entry)
        kept = keep(view)
        if kept is not view:
            view.release()
        del view
        before = bytes(memoryview(kept).tobytes())
        arena.drop(entry)
        del entry
        gc.collect()
        assert (arena.held_blocks, arena.held_bytes, arena.used_bytes) == (1, PAGE, PAGE)
        assert refill(arena, 0xEE) == 3
        assert memoryview(kept).tobytes() == before
        del kept
        assert refill(arena, 0xDD) == 4
        assert (arena.held_blocks, arena.held_bytes, arena.used_bytes) == (0, 0, 0)

    def test_of_several(self) -> None:
        arena = arena_of()
        entry = filled(arena, bytes(range(100)))
        views = [arena.view(entry)[n:] for n in range(10)]
        arena.drop(entry)
        del entry
        while views:
            assert refill(arena, 0xEE) == 3
            assert all(view[-1] == 99 for view in views)
            views.pop(0)
        assert refill(arena, 0xEE) == 4

    def test_that_of_a_worker_who_writes(self) -> None:
        arena = arena_of()
        entry = arena.allocate("name", 100)
        assert entry is not None
        memory = arena.writable(entry)
        assert memory.nbytes == 100 + ROOM
        arena.drop(entry)
        del entry
        gc.collect()
        assert refill(arena, 0xEE) == 3
        memory[:] = b"\x11" * len(memory)  # late, and harms nobody
        assert refill(arena, 0xEE) == 3
        del memory
        assert refill(arena, 0xEE) == 4

    def test_a_used_block_stays_however_often_its_views_come_and_go(self) -> None:
        arena = arena_of()
        entry = arena.allocate("name", 7)
        assert entry is not None
        for turn in range(5):
            with arena.writable(entry) as memory:
                memory[:7] = f"value {turn}".encode()
            assert refill(arena, 0xEE) == 3
        assert arena.view(entry) == b"value 4"

    def test_a_view_in_a_cycle_of_garbage(self) -> None:
        arena = arena_of()
        entry = filled(arena, b"payload")
        cycle: list[Any] = [arena.view(entry)]
        cycle.append(cycle)
        arena.drop(entry)
        del entry, cycle
        assert refill(arena, 0xEE) == 3
        gc.collect()
        assert refill(arena, 0xEE) == 4

    def test_also_after_the_arena_is_gone(self) -> None:
        arena = arena_of()
        entry = filled(arena, b"payload")
        view = arena.view(entry)
        del arena, entry
        gc.collect()
        assert view == b"payload"

    def test_readers_in_threads_share_one_exporter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        arena = arena_of()
        export = arena._export
        exporting: list[Entry] = []

        def alone(entry: Entry) -> ctypes.Array[ctypes.c_char]:
            exporting.append(entry)
            try:
                for _ in range(50):
                    assert len(exporting) == 1
                return export(entry)
            finally:
                exporting.pop()

        monkeypatch.setattr(arena, "_export", alone)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for _ in range(100):
                entry = filled(arena, b"payload")
                owners = self.owners_of_views_taken_at_once(arena, entry)
                assert len(owners) == 4
                assert len({id(owner) for owner in owners}) == 1
                owners.clear()
                arena.drop(entry)
                del entry
                arena.drain()
                assert arena.used_bytes == 0
        finally:
            sys.setswitchinterval(interval)

    @staticmethod
    def owners_of_views_taken_at_once(arena: Arena, entry: Entry) -> list[Any]:
        start = threading.Barrier(4)
        owners: list[Any] = []

        def read() -> None:
            start.wait()
            owners.append(arena.view(entry).obj)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return owners


class TestOverflow:
    def test_has_a_budget_in_whole_blocks(self) -> None:
        arena = arena_of(overflow_pages=2)
        one = arena.allocate_overflow("a", PAGE - ROOM)
        two = arena.allocate_overflow("b", 1)
        assert one is not None
        assert two is not None
        assert arena.allocate_overflow("c", 0) is None
        assert (arena.overflow_used_bytes, arena.used_bytes) == (2 * PAGE, 0)
        arena.drop(one)
        assert arena.allocate_overflow("d", PAGE) is None
        assert arena.allocate_overflow("c", 0) is not None

    def test_zero_turns_it_off(self) -> None:
        assert arena_of(overflow_pages=0).allocate_overflow("a", 0) is None

    def test_its_bytes_are_counted_until_the_last_view_is_gone(self) -> None:
        arena = arena_of()
        entry = arena.allocate_overflow("a", 100)
        assert entry is not None
        with arena.writable(entry) as memory:
            memory[:100] = b"x" * 100
        view = arena.view(entry)[10:]
        arena.drop(entry)
        del entry
        gc.collect()
        arena.drain()
        assert (arena.held_blocks, arena.overflow_used_bytes) == (1, PAGE)
        assert (arena.held_bytes, arena.used_bytes) == (0, 0), "it is no part of the region"
        assert view == b"x" * 90
        assert arena.allocate_overflow("b", 2 * PAGE - ROOM) is None
        del view
        assert arena.allocate_overflow("b", 2 * PAGE - ROOM) is not None
        assert (arena.held_blocks, arena.overflow_used_bytes) == (0, 2 * PAGE)

    def test_memory_that_the_system_refuses_is_not_counted(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        arena = arena_of()

        def refuse(size: int) -> mmap.mmap:
            raise OSError(12, "Cannot allocate memory")

        with monkeypatch.context() as patch:
            patch.setattr(arena_module, "_anonymous", refuse)
            assert arena.allocate_overflow("a", 1) is None
        assert arena.overflow_used_bytes == 0
        assert arena.allocate_overflow("a", 2 * PAGE - ROOM) is not None


FORK = """
import os
from tieredkv.pool.arena import Arena

arena = Arena(16384, alignment_bytes=4096, overflow_bytes=0, room_bytes=0)
kept, dropped = arena.allocate("kept", 4096), arena.allocate("dropped", 4096)
arena.writable(kept)[:] = b"p" * 4096
child = os.fork()
if not child:
    arena.writable(kept)[:] = b"c" * 4096
    arena.drop(kept)
    arena.drop(dropped)
    while arena.allocate("child", 4096):
        pass
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert arena.view(kept) == b"p" * 4096
arena.drop(dropped)
assert arena.used_bytes == 4096
arena.drop(kept)
arena.drain()
assert arena.used_bytes == 0
assert arena._allocator.extents() == [(0, 4)]
"""


def test_a_forked_child_touches_neither_values_nor_bookkeeping() -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORK], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_memory_of_the_host_is_used_from_its_first_aligned_byte() -> None:
    memory = memoryview(bytearray(4 * PAGE))
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    arena = Arena(
        3 * PAGE,
        alignment_bytes=PAGE,
        overflow_bytes=0,
        room_bytes=0,
        memory=memory[1:] if start % PAGE == 0 else memory,
    )
    entry = filled(arena, b"value")
    address = ctypes.addressof(ctypes.c_char.from_buffer(arena.writable(entry)))
    assert address % PAGE == 0
    assert bytes(memory[address - start :][:5]) == b"value"


def test_memory_without_an_aligned_block_is_refused() -> None:
    with pytest.raises(ConfigError, match="no aligned block of 4096 bytes"):
        Arena(
            PAGE,
            alignment_bytes=PAGE,
            overflow_bytes=0,
            room_bytes=0,
            memory=memoryview(bytearray(100)),
        )


def test_an_overflow_block_is_filled_like_any_other() -> None:
    arena = arena_of()
    entry = arena.allocate_overflow("name", 5)
    assert entry is not None
    arena.fresh(entry)[:] = b"value"
    assert arena.view(entry) == b"value"
