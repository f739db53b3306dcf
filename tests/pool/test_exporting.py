"""Views asked for while another is being made, or while their memory is given up."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest

from tieredkv.errors import LeaseReleasedError
from tieredkv.pool.arena import Arena, Entry

PAGE = 4096


def entry_of(arena: Arena) -> Entry:
    entry = arena.allocate("key", 100)
    assert entry is not None
    return entry


def test_a_finalizer_may_ask_for_a_view_while_its_own_thread_makes_one() -> None:
    arena = Arena(4 * PAGE, alignment_bytes=PAGE, overflow_bytes=0, room_bytes=0)
    entry = entry_of(arena)
    inner: list[memoryview] = []

    array_type = ctypes.c_char * PAGE

    class Interrupted:
        @staticmethod
        def from_buffer(*args: Any) -> object:  # as if the garbage collector ran just now
            made = array_type.from_buffer(*args)
            if not inner:
                inner.append(memoryview(b""))
                inner.append(arena.view(entry))
            return made

    arena._types[PAGE] = Interrupted  # type: ignore[assignment]
    outer = arena.view(entry)
    assert inner[1].obj is outer.obj, "two exporters of one block"
    arena.drop(entry)
    del outer
    arena.drain()
    assert arena.held_blocks == 1
    inner.clear()
    arena.drain()
    assert (arena.held_blocks, arena.used_bytes) == (0, 0)


def test_no_view_of_memory_that_was_given_up() -> None:
    arena = Arena(4 * PAGE, alignment_bytes=PAGE, overflow_bytes=0, room_bytes=0)
    entry = entry_of(arena)
    arena.drop(entry)
    with pytest.raises(LeaseReleasedError, match="'key'"):
        arena.view(entry)
    with pytest.raises(LeaseReleasedError, match="'key'"):
        arena.writable(entry)


def test_a_view_asked_for_in_another_thread_is_whole_or_refused() -> None:
    arena = Arena(4 * PAGE, alignment_bytes=PAGE, overflow_bytes=0, room_bytes=0)
    for _ in range(300):
        entry = entry_of(arena)
        arena.fresh(entry)[:] = b"a" * 100
        views: list[memoryview] = []
        start = threading.Barrier(2)

        def look(
            entry: Entry = entry,
            views: list[memoryview] = views,
            start: threading.Barrier = start,
        ) -> None:
            start.wait()
            try:
                views.append(arena.view(entry))
            except LeaseReleasedError:
                return

        thread = threading.Thread(target=look)
        thread.start()
        start.wait()
        arena.drop(entry)
        others = [entry_of(arena) for _ in range(3)]
        for other in others:
            arena.fresh(other)[:] = b"b" * 100
        thread.join()
        assert all(view == b"a" * 100 for view in views)
        for other in others:
            arena.drop(other)
        views.clear()
        del look, thread
        arena.drain()
        assert arena.used_bytes == 0
