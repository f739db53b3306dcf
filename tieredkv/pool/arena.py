"""L1 memory: one fixed region in blocks, private overflow blocks beside it, and who may touch them.

Why a block comes back late
---------------------------
`memoryview.release` does not notice slices, casts or NumPy arrays made from the view (CPython 3.11
to 3.13), so the end of a lease says nothing about who can still read the bytes. What does say it is
the *exporter*: every view of a block, a reader's or a worker's, is a slice of one ctypes array over
the block's part of the region, and that array lives as long as any of them. Its weak reference's
callback is ``deque.append``: it may run in any thread, and inside the garbage collector, so it does
nothing else. The event loop drains the queue before it allocates.

A block is therefore in one of three states, and moves through them in this order only:

=========  ============================  ====================================================
state      `Entry.users`                 memory
=========  ============================  ====================================================
used       above 0: the index, leases,   holds the value
           loads and writes in flight
held       0, but a view is alive        holds the value; counted in `Arena.held_blocks`
free       0, and no view is alive       belongs to the allocator (or, overflow, to nobody)
=========  ============================  ====================================================

Everything here runs on the event loop, but for `Arena.view` and ``Arena.dropped.append``, and
nothing here is ever called from a finalizer, but for the latter.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tieredkv.errors import ConfigError, LeaseReleasedError
from tieredkv.pool.allocator import Allocator

__all__ = ["Arena", "Entry"]

_MAX_CACHED_TYPES: Final = 1024
_PREFAULTED_BYTES: Final = 64 * 1024 * 1024  # at a time


def _nothing_parked(entry: Entry) -> None:
    raise AssertionError(f"{entry.name!r} is parked in an arena without evictions")


def _nobody_accounts(entry: Entry, change_bytes: int) -> None:
    pass


class _ExporterRef(weakref.ref[Any]):
    """Weak reference to an exporter that knows whose memory it is."""

    __slots__ = ("entry",)

    entry: Entry


class Entry:
    """One value in L1 memory: where it lies, what it is, and how many use it.

    Attributes:
        name: Wire name.
        nbytes: Payload bytes.
        block_bytes: Memory that it takes.
        generation: Number of the write that brought it.
        expires_ms: Unix milliseconds, 0 for never.
        users: The index, each lease, each load or write in flight. At 0 the memory is given up.
        source: Name of the tier that L1 has it from; None if it was put.
        hits: Reads that L1 has answered with it, as far as somebody counts them.
        touched: Read, and the eviction policy has yet to hear of it.
        parked: The eviction policy passes it over until its last use but the index's ends.
        leaving: It was evicted, and its memory comes back when it has been written.
        place: Offset in the arena, or the private memory of an overflow block, or None once freed.
        view: Read-only view of the payload, of which readers get slices; None before the first.
    """

    __slots__ = (
        "_exporter",
        "block_bytes",
        "expires_ms",
        "generation",
        "hits",
        "leaving",
        "name",
        "nbytes",
        "parked",
        "place",
        "source",
        "touched",
        "users",
        "view",
    )

    def __init__(
        self, name: str, nbytes: int, place: int | mmap.mmap, block_bytes: int = 0
    ) -> None:
        self.name: str = name
        self.nbytes: int = nbytes
        self.block_bytes: int = block_bytes
        self.place: int | mmap.mmap | None = place
        self.generation: int = 0
        self.expires_ms: int = 0
        self.users: int = 1
        self.source: str | None = None
        self.hits: int = 0
        self.touched: bool = False
        self.parked: bool = False
        self.leaving: bool = False
        self._exporter: _ExporterRef | None = None
        self.view: memoryview | None = None


class Arena:
    """The memory of a pool, with its accounting.

    Attributes:
        capacity_bytes: Size of the region, a multiple of the alignment.
        overflow_bytes: Most bytes of private blocks at a time.
        room_bytes: Bytes behind each payload that belong to its block (for a trailer).
        used_bytes: Bytes of the region that are in blocks, held ones included.
        overflow_used_bytes: Bytes of private blocks now.
        held_bytes: Bytes of the region's blocks that are held, part of `used_bytes`.
        dropped: Entries of which one user each is to be taken away at the next `drain`. Appended to
            from any thread, and from inside the garbage collector, which may interrupt the event
            loop in the middle of anything here.
    """

    def __init__(
        self,
        capacity_bytes: int,
        *,
        alignment_bytes: int,
        overflow_bytes: int,
        room_bytes: int,
        memory: memoryview | None = None,
        unpark: Callable[[Entry], None] = _nothing_parked,
        account: Callable[[Entry, int], None] = _nobody_accounts,
    ) -> None:
        """Set up.

        Args:
            capacity_bytes: Bytes of the region, at most; whole blocks are used.
            alignment_bytes: Addresses and sizes of blocks are multiples of it.
            overflow_bytes: As the attribute.
            room_bytes: As the attribute.
            memory: Writable bytes to use as the region; the caller owns them and leaves them alone
                as long as the arena or a view of it lives. None for memory of our own.
            unpark: Called when the last use of a parked entry but the index's ends.
            account: Called with the size of each block of the region that an entry gets, and with
                its negative when the block is free again.

        Raises:
            ConfigError: The system has not so much memory, or `memory` not one aligned block.
        """
        self._unpark = unpark
        self._account = account
        self._alignment = alignment_bytes
        if memory is not None:
            skipped = -_address(memory) % alignment_bytes
            memory = memory[skipped : skipped + capacity_bytes]
            capacity_bytes = memory.nbytes
        pages = capacity_bytes // alignment_bytes
        if not pages:
            raise ConfigError(f"buffer: no aligned block of {alignment_bytes} bytes lies in it")
        self.capacity_bytes: int = pages * alignment_bytes
        self.overflow_bytes: int = overflow_bytes // alignment_bytes * alignment_bytes
        self.room_bytes: int = room_bytes
        self.used_bytes: int = 0
        self.overflow_used_bytes: int = 0
        self.held_bytes: int = 0
        self._region: mmap.mmap | memoryview
        if memory is not None:
            self._region = memory
        else:
            try:
                self._region = _anonymous(self.capacity_bytes)
                _prefer_huge_pages(self._region)
            except OSError as error:
                raise ConfigError(
                    f"capacity={capacity_bytes}: the system has not so much memory "
                    f"({error.strerror})"
                ) from None
        self._bytes = memoryview(self._region)
        self._allocator = Allocator(pages)
        self._types: dict[int, type[ctypes.Array[ctypes.c_char]]] = {}
        # Held entries are referenced by nothing else, and a weak reference that is garbage itself
        # never calls back.
        self._held: set[Entry] = set()
        self._dead: deque[_ExporterRef] = deque()
        self.dropped: deque[Entry] = deque()
        self._exporting = threading.RLock()  # a finalizer may ask for a view in the middle of one

    @property
    def held_blocks(self) -> int:
        """Blocks whose users are gone while a view of theirs lives on."""
        return len(self._held)

    def prefault(self) -> None:
        """Touch all of the region, before it is used; from any thread, and others run meanwhile."""
        address = _address(memoryview(self._region))
        for at in range(0, self.capacity_bytes, _PREFAULTED_BYTES):
            ctypes.memset(address + at, 0, min(_PREFAULTED_BYTES, self.capacity_bytes - at))

    def block_bytes(self, nbytes: int) -> int:
        """Return the memory that a payload of this size takes."""
        return (-(-(nbytes + self.room_bytes) // self._alignment) or 1) * self._alignment

    def allocate(self, name: str, nbytes: int) -> Entry | None:
        """Return an entry with one user and undefined contents, or None if nothing fits."""
        if self.dropped or self._dead:
            self.drain()
        pages = -(-(nbytes + self.room_bytes) // self._alignment) or 1
        first = self._allocator.allocate(pages)
        if first is None:
            return None
        size = pages * self._alignment
        entry = Entry(name, nbytes, first * self._alignment, size)
        self.used_bytes += size
        self._account(entry, size)
        return entry

    def allocate_overflow(self, name: str, nbytes: int) -> Entry | None:
        """Return an entry in private memory with one user; None beyond the overflow's budget.

        None, too, where the system has no more.
        """
        self.drain()
        size = self.block_bytes(nbytes)
        if self.overflow_used_bytes + size > self.overflow_bytes:
            return None
        try:
            memory = _anonymous(size)
        except OSError:
            return None
        self.overflow_used_bytes += size
        return Entry(name, nbytes, memory, size)

    def drop(self, entry: Entry) -> None:
        """Take one user away; the last one gives the memory up."""
        entry.users -= 1
        if entry.users:
            if entry.parked and entry.users == 1:
                self._unpark(entry)
            return
        with self._exporting:
            entry.view = None  # the exporter's last reference, unless a view is alive elsewhere
            if entry._exporter is None:
                self._free(entry)
                return
            self._held.add(entry)
            if isinstance(entry.place, int):
                self.held_bytes += entry.block_bytes
        self._reap()

    def drain(self) -> None:
        """Settle what was dropped, and free the blocks whose last view has gone."""
        while self.dropped:
            self.drop(self.dropped.popleft())
        self._reap()

    def view(self, entry: Entry) -> memoryview:
        """Return a new read-only view of a payload, format ``"B"``; from any thread.

        The caller must be a user of the entry. The view may outlive that use.

        Raises:
            LeaseReleasedError: The memory is no longer the entry's.
        """
        view = entry.view
        if view is None:
            with self._exporting:  # what another thread has made meanwhile is of the same exporter
                view = memoryview(self._export(entry)).cast("B")[: entry.nbytes].toreadonly()
                entry.view = view
        return view[:]

    def address(self, entry: Entry) -> int:
        """Return the address of a payload's first byte; the caller must be a user of the entry.

        Raises:
            LeaseReleasedError: The memory is no longer the entry's.
        """
        return ctypes.addressof(self.view(entry).obj)  # type: ignore[arg-type]  # a ctypes array

    def writable(self, entry: Entry) -> memoryview:
        """Return a writable view of a payload and the room behind it, format ``"B"``.

        The caller must be a user of the entry. For filling it, and for workers: the memory is not
        used again before the view is gone.
        """
        with self._exporting:
            return memoryview(self._export(entry)).cast("B")[: entry.nbytes + self.room_bytes]

    def fresh(self, entry: Entry) -> memoryview:
        """Return the bytes of a payload for its only user to fill at once, on the event loop.

        Cheaper than `writable`, and unguarded: it must be gone before the entry has another user.
        """
        place = entry.place
        if isinstance(place, int):
            return self._bytes[place : place + entry.nbytes]
        return self.writable(entry)[: entry.nbytes]

    def _export(self, entry: Entry) -> ctypes.Array[ctypes.c_char]:
        reference = entry._exporter
        exporter = reference() if reference is not None else None
        if exporter is None:
            size = entry.block_bytes
            array_type = self._types.get(size)
            if array_type is None:
                array_type = ctypes.c_char * size
                if len(self._types) < _MAX_CACHED_TYPES:
                    self._types[size] = array_type
            if isinstance(entry.place, int):
                exporter = array_type.from_buffer(self._region, entry.place)
            elif entry.place is not None:
                exporter = array_type.from_buffer(entry.place)
            else:
                raise LeaseReleasedError(f"the memory of {entry.name!r} has been given up")
            reference = _ExporterRef(exporter, self._dead.append)
            reference.entry = entry
            # A finalizer that ran meanwhile may have made one, and handed out views of it.
            made = entry._exporter() if entry._exporter is not None else None
            if made is None:
                entry._exporter = reference
            else:
                exporter = made
        return exporter

    def _reap(self) -> None:
        """Free the blocks whose last view has gone."""
        while self._dead:
            reference = self._dead.popleft()
            entry = reference.entry
            with self._exporting:
                if entry._exporter is not reference:  # a newer exporter has taken its place
                    continue
                entry._exporter = None
                if entry.users == 0:
                    self._held.discard(entry)
                    if isinstance(entry.place, int):
                        self.held_bytes -= entry.block_bytes
                    self._free(entry)

    def _free(self, entry: Entry) -> None:
        size = entry.block_bytes
        if isinstance(entry.place, int):
            self._allocator.free(entry.place // self._alignment, size // self._alignment)
            self.used_bytes -= size
            self._account(entry, -size)
        else:
            self.overflow_used_bytes -= size
        entry.place = None


def _address(memory: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _anonymous(size: int) -> mmap.mmap:
    # Private: a forked child must not write into its parent's values.
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _prefer_huge_pages(memory: mmap.mmap) -> None:
    """Ask for large pages, where the system has them: copies then look up fewer of them."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
