"""What a test left behind: descriptors, threads, clients, leases.

::

    from tieredkv.testing.leaks import no_leaks  # in conftest.py


    async def test_a_store(no_leaks): ...

Needs pytest.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Final, Self

import pytest

from tieredkv.backends.threaded import ThreadedBackend
from tieredkv.pool.lease import MemoryObject

__all__ = ["LeakCheck", "no_leaks"]

_DESCRIPTORS: Final = "/proc/self/fd"
_POOLED: Final = ("AnyIO worker thread", "Trio thread ")  # an event loop keeps these for later use


class LeakCheck:
    """A context manager: what its block began must have ended with it.

    Leaving it raises AssertionError with a list of what is left, after waiting a while for threads
    that are on their way out. Not checked if the block itself raised.

    Counted are open descriptors; threads, but for those that an event loop keeps idle in its pool;
    the clients of watched backends; leases that nobody has released. Enter it before the event loop
    starts and leave it after the loop has ended, or both inside: a loop has descriptors.
    """

    def __init__(self, *, leases: bool = True, patience_s: float = 10.0) -> None:
        """Set up.

        Args:
            leases: Look for leases, too; takes some milliseconds.
            patience_s: How long to wait for what is ending.
        """
        self._leases = leases
        self._patience_s = patience_s
        self._watched: list[ThreadedBackend[Any]] = []

    def watch(self, backend: ThreadedBackend[Any]) -> None:
        """Expect a backend to have closed all its clients."""
        self._watched.append(backend)

    def __enter__(self) -> Self:
        _open_what_stays()
        self._descriptors = _open_descriptors()
        self._threads = set(threading.enumerate())
        self._known_leases = {id(lease) for lease in self._live_leases()}
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is not None:
            return
        ends = time.monotonic() + self._patience_s
        while leaks := self._leaks():
            if time.monotonic() > ends:
                raise AssertionError("left behind: " + "; ".join(leaks))
            gc.collect()
            for thread in set(threading.enumerate()) - self._threads:
                if not thread.name.startswith(_POOLED):
                    thread.join(timeout=0.1)

    def _leaks(self) -> list[str]:
        descriptors = Counter(_open_descriptors())
        descriptors.subtract(self._descriptors)
        leaks = [
            f"{count} x descriptor of {what}" for what, count in descriptors.items() if count > 0
        ]
        leaks += [f"thread {thread.name!r}" for thread in self._live_threads()]
        leaks += [
            f"{backend._workers.num_clients} clients of {backend.name!r}"
            for backend in self._watched
            if backend._workers.num_clients
        ]
        leaks += [
            f"the lease of {lease.key!r}"
            for lease in self._live_leases()
            if id(lease) not in self._known_leases
        ]
        return leaks

    def _live_threads(self) -> Iterator[threading.Thread]:
        frames = sys._current_frames()
        for thread in set(threading.enumerate()) - self._threads:
            pooled = thread.name.startswith(_POOLED)
            if not pooled or _is_ours(frames.get(thread.ident or 0)):
                yield thread

    def _live_leases(self) -> list[MemoryObject]:
        if not self._leases:
            return []
        return [
            thing
            for thing in gc.get_objects()
            if type(thing) is MemoryObject and thing._entry is not None
        ]


@pytest.fixture
def no_leaks() -> Iterator[LeakCheck]:
    """Check that the test leaves nothing behind; request it before async fixtures."""
    with LeakCheck() as check:
        yield check


@functools.cache
def _open_what_stays() -> None:
    """Have libuv open the pipe that it keeps, from its first loop on, for the whole process."""
    if importlib.util.find_spec("uvloop") is not None:
        importlib.import_module("uvloop").new_event_loop().close()


def _open_descriptors() -> Counter[str]:
    """Return what the process has open, by what the descriptors stand for."""
    found: Counter[str] = Counter()
    with os.scandir(_DESCRIPTORS) as entries:
        for entry in entries:
            try:
                found[os.readlink(entry.path)] += 1  # noqa: PTH115 - may be no path
            except FileNotFoundError:  # another thread has closed it meanwhile
                continue
    return found


def _is_ours(frame: FrameType | None) -> bool:
    """Whether a thread is inside this library now."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("tieredkv."):
            return True
        frame = frame.f_back
    return False
